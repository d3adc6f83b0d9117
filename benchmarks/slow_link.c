/* A slow link between two network namespaces: delay, loss and a bound on the rate, for the real TCP of the kernel.
 *
 *   slow_link NAMESPACE NAMESPACE DELAY_MS LOSS_PERCENT MBIT QUEUE_MS
 *
 * Makes a TUN device `wan` in each namespace and carries packets between them, each way alike: a packet is lost with this probability, one
 * independent of the other; else it leaves when those before it have left at this rate, or is lost too where that takes longer than QUEUE_MS,
 * and arrives DELAY_MS after that. It is what `tc qdisc add ... netem delay limit loss rate` does, for kernels without netem. Segments come
 * one by one and are at most as large as the MTU of the devices.
 *
 * Says "ready" when the devices are there. At SIGTERM it prints what it carried, a line of JSON, and the devices vanish. Needs root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_MAX = 2048, PACKETS = 16384, READ_MAX = 64, SLEEP_NS_MIN = 200000 };

struct packet {
    int64_t due_ns;
    int size;
    char data[PACKET_MAX];
};

/* One way. */
struct way {
    int from, to;
    int64_t free_ns; /* when the last packet has left */
    struct packet *ring;
    unsigned long begin, end;
    long carried, bytes, lost, overflowed;
};

static int64_t delay_ns, queue_ns;
static double loss, ns_per_byte;
static volatile sig_atomic_t is_over;

static void stop(int number) {
    (void)number;
    is_over = 1;
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int fail(const char *what) {
    perror(what);
    exit(1);
}

static int device(const char *name) {
    char path[256];
    snprintf(path, sizeof path, "/var/run/netns/%s", name);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET)) fail(path);
    close(space);
    int made = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {.ifr_name = "wan", .ifr_flags = IFF_TUN | IFF_NO_PI};
    if (made < 0 || ioctl(made, TUNSETIFF, &request)) fail("/dev/net/tun");
    return made;
}

static void take(struct way *way) {
    for (int count = 0; count < READ_MAX; count++) {
        struct packet *packet = &way->ring[way->end % PACKETS];
        ssize_t size = read(way->from, packet->data, PACKET_MAX);
        if (size <= 0) return;
        if (drand48() < loss) {
            way->lost++;
            continue;
        }
        int64_t now = now_ns(), leaves = (way->free_ns > now ? way->free_ns : now) + (int64_t)(size * ns_per_byte);
        if (leaves - now > queue_ns || way->end - way->begin == PACKETS - 1) {
            way->overflowed++;
            continue;
        }
        way->free_ns = leaves;
        packet->due_ns = leaves + delay_ns;
        packet->size = size;
        way->end++;
    }
}

/* Deliver what is due; when the next one is. */
static int64_t deliver(struct way *way, int64_t next) {
    int64_t now = now_ns();
    for (; way->begin < way->end; way->begin++) {
        struct packet *packet = &way->ring[way->begin % PACKETS];
        if (packet->due_ns > now) return packet->due_ns < next ? packet->due_ns : next;
        if (write(way->to, packet->data, packet->size) == packet->size) {
            way->carried++;
            way->bytes += packet->size;
        }
    }
    return next;
}

int main(int count, char **arguments) {
    if (count != 7) {
        fprintf(stderr, "usage: slow_link NAMESPACE NAMESPACE DELAY_MS LOSS_PERCENT MBIT QUEUE_MS\n");
        return 2;
    }
    delay_ns = (int64_t)(atof(arguments[3]) * 1e6);
    loss = atof(arguments[4]) / 100;
    ns_per_byte = 8000 / atof(arguments[5]);
    queue_ns = (int64_t)(atof(arguments[6]) * 1e6);
    int ends[] = {device(arguments[1]), device(arguments[2])};
    struct way ways[2] = {{.from = ends[0], .to = ends[1]}, {.from = ends[1], .to = ends[0]}};
    for (int each = 0; each < 2; each++)
        if (!(ways[each].ring = malloc(PACKETS * sizeof(struct packet)))) fail("malloc");
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    struct sched_param priority = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &priority); /* the link is no slower where the processors are busy; without the right it may be */
    puts("ready");
    fflush(stdout);
    while (!is_over) {
        int64_t now = now_ns(), next = deliver(&ways[1], deliver(&ways[0], now + 100000000)), sleep = next - now;
        if (sleep < SLEEP_NS_MIN) sleep = SLEEP_NS_MIN;
        struct timespec most = {.tv_nsec = sleep};
        struct pollfd both[] = {{.fd = ends[0], .events = POLLIN}, {.fd = ends[1], .events = POLLIN}};
        if (ppoll(both, 2, &most, NULL) < 0 && errno != EINTR) fail("ppoll");
        for (int each = 0; each < 2; each++) take(&ways[each]);
    }
    for (int each = 0; each < 2; each++)
        printf("%s{\"carried\": %ld, \"bytes\": %ld, \"lost\": %ld, \"overflowed\": %ld}%s", each ? ", " : "[", ways[each].carried, ways[each].bytes,
               ways[each].lost, ways[each].overflowed, each ? "]\n" : "");
    return 0;
}
