/* How fast a client is when the broker costs next to nothing.
 *
 *   answering_relay PORT BROKER_PORT
 *
 * Listens on PORT of the loopback interface and passes every request on to the broker, and its answer back, but for Produce: only the first of a
 * connection is passed on. To the others the answer to that one is given again, with their correlation ids, and their bytes are dropped. One
 * thread per connection; ends when it is killed.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PRODUCE = 0, READ_MAX = 256 * 1024, ROOM = 128 * 1024 * 1024, ANSWER_MAX = 4096, OUT_MAX = 4 * 1024 * 1024 };

static int broker_port;

static int loopback(int port, int listening) {
    int made = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (listening ? bind(made, (struct sockaddr *)&address, sizeof address) || listen(made, 64)
                  : connect(made, (struct sockaddr *)&address, sizeof address)) {
        perror("answering_relay");
        exit(1);
    }
    return made;
}

static int32_t size_at(const char *at) {
    uint32_t size;
    memcpy(&size, at, 4);
    return (int32_t)ntohl(size);
}

/* Pass one request on and read its answer, size included, into `answer`; its length. */
static long ask(int broker, const char *request, long length, char *answer) {
    if (send(broker, request, length, MSG_NOSIGNAL) != length || recv(broker, answer, 4, MSG_WAITALL) != 4) return -1;
    long size = size_at(answer);
    return recv(broker, answer + 4, size, MSG_WAITALL) == size ? size + 4 : -1;
}

static void *serve(void *argument) {
    int client = (int)(intptr_t)argument, broker = loopback(broker_port, 0);
    char *in = malloc(ROOM), *out = malloc(OUT_MAX), repeated[ANSWER_MAX];
    long end = 0, repeated_size = 0;
    for (;;) {
        long got = recv(client, in + end, ROOM - end < READ_MAX ? ROOM - end : READ_MAX, 0), start = 0, answered = 0;
        if (got <= 0) break;
        end += got;
        while (end - start >= 12 && end - start >= 4 + size_at(in + start)) {
            char *request = in + start;
            long length = 4 + size_at(request);
            int is_produce = request[4] == 0 && request[5] == PRODUCE;
            if (is_produce && repeated_size) {
                memcpy(out + answered, repeated, repeated_size);
                memcpy(out + answered + 4, request + 8, 4);
                answered += repeated_size;
            } else {
                long size = ask(broker, request, length, out + answered);
                if (size < 0) goto done;
                if (is_produce && size <= ANSWER_MAX) memcpy(repeated, out + answered, repeated_size = size);
                answered += size;
            }
            start += length;
        }
        if (answered && send(client, out, answered, MSG_NOSIGNAL) != answered) break;
        memmove(in, in + start, end -= start);
    }
done:
    close(client);
    close(broker);
    free(in);
    free(out);
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "answering_relay PORT BROKER_PORT\n");
        return 1;
    }
    broker_port = atoi(arguments[2]);
    int listening = loopback(atoi(arguments[1]), 1), one = 1;
    for (;;) {
        int client = accept(listening, NULL, NULL);
        pthread_t thread;
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        pthread_create(&thread, NULL, serve, (void *)(intptr_t)client);
        pthread_detach(thread);
    }
}
