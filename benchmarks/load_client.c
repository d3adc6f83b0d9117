/* The neutral load client of the benchmarks: librdkafka as the confluent-kafka wheel ships it, driven from C so that the client is not the limit.
 *
 *   load_client LIBRDKAFKA produce BOOTSTRAP TOPIC COUNT SIZE [NAME=VALUE ...]     send COUNT messages of SIZE bytes to partition 0
 *   load_client LIBRDKAFKA consume BOOTSTRAP TOPIC COUNT FROM [NAME=VALUE ...]     read COUNT messages of partition 0 from offset FROM
 *   load_client LIBRDKAFKA latency BOOTSTRAP TOPIC COUNT RATE [NAME=VALUE ...]     send at a constant pace (open loop) while reading; the first
 *                                                                                  quarter of the messages warms up and is not counted
 *   load_client LIBRDKAFKA acks BOOTSTRAP TOPIC COUNT RATE [NAME=VALUE ...]        send batches of 50 at a constant pace (open loop); the first
 *                                                                                  quarter is not counted
 *   load_client LIBRDKAFKA each BOOTSTRAP TOPIC COUNT RATE [NAME=VALUE ...]        the same with single messages, while reading
 *
 * For produce and consume TOPIC may be TOPIC:PARTITIONS: librdkafka's partitioner spreads the messages, all partitions are read.
 *
 * Prints one line of JSON: messages, failed, seconds (from the first send to the last acknowledgement, or from the first to the last message),
 * for latency the microseconds from the send to the reader's hands, and for acks and each those from the send to the acknowledgement.
 * Declares the few functions it uses, so that no headers are needed.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct {
    int error;
    void *topic;
    int32_t partition;
    void *payload;
    size_t length;
    void *key;
    size_t key_length;
    int64_t offset;
    void *opaque;
} message_t;

enum { PRODUCER = 0, CONSUMER = 1, COPY = 2, BATCH = 10000, BEGINNING = -2, BY_PARTITIONER = -1, FIXED = 7, IDLE_LIMIT = 30 };

enum { GROUP_MAX = 50, SIZE = 200 };

static void *library;
static long delivered, failed;
static double *sent_at, *waited;
static long group = GROUP_MAX;
static volatile int polling = 1;

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "load_client: %s\n", dlerror());
        exit(1);
    }
    return found;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void on_delivery(void *client, const message_t *message, void *opaque) {
    (void)client;
    (void)opaque;
    if (waited) {
        long number = (long)(intptr_t)message->opaque;
        waited[number] = now() - sent_at[number / group];
    }
    if (message->error)
        failed++;
    else
        delivered++;
}

static void *configuration(int producing, const char *bootstrap, int count, char **settings) {
    void *(*conf_new)(void) = symbol("rd_kafka_conf_new");
    int (*conf_set)(void *, const char *, const char *, char *, size_t) = symbol("rd_kafka_conf_set");
    void (*set_delivery)(void *, void (*)(void *, const message_t *, void *)) = symbol("rd_kafka_conf_set_dr_msg_cb");
    char text[512];
    void *conf = conf_new();
    conf_set(conf, "bootstrap.servers", bootstrap, text, sizeof text);
    conf_set(conf, "log_level", "3", text, sizeof text);
    if (producing) {
        conf_set(conf, "queue.buffering.max.messages", "500000", text, sizeof text);
        set_delivery(conf, on_delivery);
    }
    for (int i = 0; i < count; i++) {
        char *value = strchr(settings[i], '=');
        if (value) *value++ = 0;
        if (!value || conf_set(conf, settings[i], value, text, sizeof text)) {
            fprintf(stderr, "load_client: %s: %s\n", settings[i], value ? text : "NAME=VALUE expected");
            exit(1);
        }
    }
    return conf;
}

static void *start(int kind, void *conf) {
    void *(*new_client)(int, void *, char *, size_t) = symbol("rd_kafka_new");
    char text[512];
    void *client = new_client(kind, conf, text, sizeof text);
    if (!client) {
        fprintf(stderr, "load_client: %s\n", text);
        exit(1);
    }
    return client;
}

static double produce(void *client, void *topic, int partitions, long count, size_t size) {
    int (*produce_batch)(void *, int32_t, int, message_t *, int) = symbol("rd_kafka_produce_batch");
    int (*poll)(void *, int) = symbol("rd_kafka_poll");
    char *payload = malloc(size);
    memset(payload, 'x', size);
    message_t *batch = calloc(BATCH, sizeof *batch);
    double begun = now();
    for (long sent = 0; sent < count;) {
        int wanted = count - sent < BATCH ? (int)(count - sent) : BATCH;
        for (int i = 0; i < wanted; i++) {
            batch[i].payload = payload;
            batch[i].length = size;
        }
        sent += produce_batch(topic, partitions > 1 ? BY_PARTITIONER : 0, COPY, batch, wanted); /* less than wanted: the queue is full */
        poll(client, 0);
    }
    double limit = now() + 300;
    while (delivered + failed < count && now() < limit) poll(client, 100);
    return now() - begun;
}

static double consume(void *client, void *topic, int partitions, long count, int64_t from) {
    int (*consume_start)(void *, int32_t, int64_t) = symbol("rd_kafka_consume_start");
    int (*consume_start_queue)(void *, int32_t, int64_t, void *) = symbol("rd_kafka_consume_start_queue");
    void *(*queue_new)(void *) = symbol("rd_kafka_queue_new");
    ssize_t (*consume_batch)(void *, int32_t, int, message_t **, size_t) = symbol("rd_kafka_consume_batch");
    ssize_t (*consume_batch_queue)(void *, int, message_t **, size_t) = symbol("rd_kafka_consume_batch_queue");
    void (*destroy)(message_t *) = symbol("rd_kafka_message_destroy");
    message_t **batch = calloc(BATCH, sizeof *batch);
    void *queue = partitions > 1 ? queue_new(client) : NULL;
    double begun = 0, seen = now();
    if (!queue) consume_start(topic, 0, from);
    for (int partition = 0; queue && partition < partitions; partition++) consume_start_queue(topic, partition, from, queue);
    while (delivered < count && now() - seen < IDLE_LIMIT) {
        size_t wanted = count - delivered < BATCH ? (size_t)(count - delivered) : BATCH; /* librdkafka waits until it has so many */
        ssize_t got = queue ? consume_batch_queue(queue, 1000, batch, wanted) : consume_batch(topic, 0, 1000, batch, wanted);
        if (got > 0) seen = now();
        if (got > 0 && !begun) begun = seen;
        for (ssize_t i = 0; i < got; i++) {
            if (batch[i]->error == 0)
                delivered++;
            else if (batch[i]->error > 0)
                failed++;
            destroy(batch[i]);
        }
    }
    return seen - begun;
}

typedef struct {
    void *topic;
    long count, seen;
    double *seconds;
} reading_t;

static void *read_stamps(void *argument) {
    reading_t *reading = argument;
    message_t *(*consume_one)(void *, int32_t, int) = symbol("rd_kafka_consume");
    void (*destroy)(message_t *) = symbol("rd_kafka_message_destroy");
    double last = now(), sent;
    while (reading->seen < reading->count && now() - last < IDLE_LIMIT) {
        message_t *message = consume_one(reading->topic, 0, 1000);
        if (!message) continue;
        if (!message->error) {
            last = now();
            memcpy(&sent, message->payload, sizeof sent);
            reading->seconds[reading->seen++] = last - sent;
        }
        destroy(message);
    }
    return NULL;
}

static int by_size(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static int latency(void *client, void *topic, void *reader_topic, long count, long rate) {
    int (*produce_batch)(void *, int32_t, int, message_t *, int) = symbol("rd_kafka_produce_batch");
    int (*consume_start)(void *, int32_t, int64_t) = symbol("rd_kafka_consume_start");
    int (*poll)(void *, int) = symbol("rd_kafka_poll");
    reading_t reading = {reader_topic, count, 0, calloc(count, sizeof(double))};
    pthread_t thread;
    consume_start(reader_topic, 0, BEGINNING);
    pthread_create(&thread, NULL, read_stamps, &reading);
    struct timespec settle = {1, 0};
    nanosleep(&settle, NULL);
    char payload[200] = {0};
    double begun = now(), late = 0;
    for (long sent = 0; sent < count; sent++) {
        double due = begun + (double)sent / rate, left = due - now();
        if (left > 0) {
            struct timespec pause = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
            nanosleep(&pause, NULL);
        }
        double stamp = now();
        if (stamp - due > late) late = stamp - due;
        memcpy(payload, &stamp, sizeof stamp);
        message_t message = {.payload = payload, .length = sizeof payload};
        if (produce_batch(topic, 0, COPY, &message, 1) != 1) failed++;
        poll(client, 0);
    }
    double seconds = now() - begun;
    pthread_join(thread, NULL);
    poll(client, 1000);
    long skip = count / 4, kept = reading.seen - skip;
    if (kept <= 0) return 1;
    double *kept_seconds = reading.seconds + skip;
    qsort(kept_seconds, kept, sizeof(double), by_size);
    printf("{\"messages\": %ld, \"failed\": %ld, \"seconds\": %.3f, \"pacer_late_ms\": %.1f, \"p50_us\": %.0f, \"p90_us\": %.0f, "
           "\"p99_us\": %.0f, \"p999_us\": %.0f, \"max_us\": %.0f}\n",
           reading.seen, failed, seconds, late * 1e3, kept_seconds[kept / 2] * 1e6, kept_seconds[kept * 9 / 10] * 1e6,
           kept_seconds[kept * 99 / 100] * 1e6, kept_seconds[kept * 999 / 1000] * 1e6, kept_seconds[kept - 1] * 1e6);
    return reading.seen == count ? 0 : 1;
}

static void wait_until(double due) {
    double left = due - now();
    if (left > 0) {
        struct timespec pause = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
        nanosleep(&pause, NULL);
    }
}

static void *poll_acks(void *client) {
    int (*poll)(void *, int) = symbol("rd_kafka_poll");
    while (polling) poll(client, 100);
    return NULL;
}

static int acks(void *client, void *topic, void *reader_topic, long count, long rate) {
    int (*produce_batch)(void *, int32_t, int, message_t *, int) = symbol("rd_kafka_produce_batch");
    int (*consume_start)(void *, int32_t, int64_t) = symbol("rd_kafka_consume_start");
    sent_at = calloc(count / group + 1, sizeof(double));
    waited = calloc(count, sizeof(double));
    static char payload[SIZE];
    message_t batch[GROUP_MAX] = {0};
    reading_t reading = {reader_topic, count, 0, calloc(count, sizeof(double))};
    pthread_t poller, reader;
    pthread_create(&poller, NULL, poll_acks, client);
    if (reader_topic) {
        consume_start(reader_topic, 0, BEGINNING);
        pthread_create(&reader, NULL, read_stamps, &reading);
        wait_until(now() + 1);
    }
    double begun = now(), late = 0;
    for (long sent = 0; sent + group <= count; sent += group) {
        double due = begun + (double)sent / rate;
        wait_until(due);
        sent_at[sent / group] = now();
        if (sent_at[sent / group] - due > late) late = sent_at[sent / group] - due;
        memcpy(payload, &sent_at[sent / group], sizeof(double));
        for (int i = 0; i < group; i++) {
            batch[i].payload = payload;
            batch[i].length = SIZE;
            batch[i].opaque = (void *)(intptr_t)(sent + i);
        }
        if (produce_batch(topic, 0, COPY, batch, (int)group) != group) failed++;
    }
    double seconds = now() - begun, limit = now() + 30;
    while (delivered + failed < count / group * group && now() < limit) wait_until(now() + 0.01);
    polling = 0;
    pthread_join(poller, NULL);
    if (reader_topic) pthread_join(reader, NULL);
    long skip = count / 4, kept = count / group * group - skip;
    if (kept <= 0 || failed || delivered < count / group * group || (reader_topic && reading.seen < count)) return 1;
    qsort(waited + skip, kept, sizeof(double), by_size);
    double *each = waited + skip;
    printf("{\"messages\": %ld, \"failed\": %ld, \"seconds\": %.3f, \"pacer_late_ms\": %.1f, \"p50_us\": %.0f, \"p90_us\": %.0f, "
           "\"p99_us\": %.0f, \"p999_us\": %.0f, \"max_us\": %.0f}\n",
           delivered, failed, seconds, late * 1e3, each[kept / 2] * 1e6, each[kept * 9 / 10] * 1e6, each[kept * 99 / 100] * 1e6,
           each[kept * 999 / 1000] * 1e6, each[kept - 1] * 1e6);
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "";
    int single = !strcmp(mode, "each"), acking = single || !strcmp(mode, "acks"), paced = !strcmp(mode, "latency");
    int producing = acking || paced || !strcmp(mode, "produce");
    if (argc < FIXED) {
        fprintf(stderr, "usage: load_client LIBRDKAFKA produce|consume|latency|acks|each BOOTSTRAP TOPIC COUNT SIZE|FROM|RATE [NAME=VALUE ...]\n");
        return 2;
    }
    library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        fprintf(stderr, "load_client: %s\n", dlerror());
        return 1;
    }
    char *colon = strchr(argv[4], ':');
    int partitions = colon ? atoi(colon + 1) : 1;
    if (colon) *colon = 0;
    long count = atol(argv[5]), last = atol(argv[6]);
    void *client = start(producing ? PRODUCER : CONSUMER, configuration(producing, argv[3], argc - FIXED, argv + FIXED));
    void *(*topic_new)(void *, const char *, void *) = symbol("rd_kafka_topic_new");
    void *topic = topic_new(client, argv[4], NULL), *reader_topic = NULL;
    if (single || paced) reader_topic = topic_new(start(CONSUMER, configuration(0, argv[3], 0, NULL)), argv[4], NULL);
    if (single) group = 1;
    if (acking) return acks(client, topic, reader_topic, count, last);
    if (paced) return latency(client, topic, reader_topic, count, last);
    double seconds = producing ? produce(client, topic, partitions, count, (size_t)last) : consume(client, topic, partitions, count, last);
    printf("{\"messages\": %ld, \"failed\": %ld, \"seconds\": %.6f}\n", delivered, failed, seconds);
    return delivered == count ? 0 : 1;
}
