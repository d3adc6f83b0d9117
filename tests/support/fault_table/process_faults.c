/* Loaded before the C library by the processes of a cluster: what one of them is made to believe of its clock and of its disk.
 *
 * The file that MOLDAU_PROCESS_FAULTS names has two numbers of 64 bits for each process, at 16 times its id: by how many seconds its
 * clock is wrong, and whether there is no space for its data (1) or for the metadata that brokers share (2).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct faults {
    int64_t clock_step_s;
    int64_t no_space;
};

static volatile struct faults *own;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_gettimeofday)(struct timeval *, void *);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_pwritev2)(int, const struct iovec *, int, off_t, int);
static int (*real_posix_fallocate)(int, off_t, off_t);
static int (*real_fallocate)(int, int, off_t, off_t);

static void find_real(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_gettimeofday = dlsym(RTLD_NEXT, "gettimeofday");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_pwritev = dlsym(RTLD_NEXT, "pwritev64");
    real_pwritev2 = dlsym(RTLD_NEXT, "pwritev64v2");
    real_posix_fallocate = dlsym(RTLD_NEXT, "posix_fallocate64");
    real_fallocate = dlsym(RTLD_NEXT, "fallocate64");
}

__attribute__((constructor)) static void begin(void) {
    find_real();
    const char *path = getenv("MOLDAU_PROCESS_FAULTS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat found;
    if (file < 0)
        return;
    off_t at = (off_t)getpid() * sizeof(struct faults), page = at & ~(off_t)4095;
    if (fstat(file, &found) == 0 && found.st_size >= page + 4096) {
        char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, page);
        if (mapped != MAP_FAILED)
            own = (struct faults *)(mapped + (at - page));
    }
    close(file);
}

static int is_full(int file) {
    if (!own || !own->no_space)
        return 0;
    int before = errno;
    struct stat found;
    char name[64], path[4096];
    int is_refused = 0;
    if (fstat(file, &found) == 0 && S_ISREG(found.st_mode)) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", file);
        ssize_t length = readlink(name, path, sizeof path - 1);
        if (length > 0) {
            path[length] = 0;
            is_refused = ((own->no_space & 1) && strstr(path, "/brokers/")) || ((own->no_space & 2) && strstr(path, "/cluster.sqlite"));
        }
    }
    errno = is_refused ? ENOSPC : before;
    return is_refused;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    if (!real_clock_gettime)
        find_real();
    int result = real_clock_gettime(which, now);
    if (result == 0 && own && which == CLOCK_REALTIME)
        now->tv_sec += own->clock_step_s;
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    if (!real_gettimeofday)
        find_real();
    int result = real_gettimeofday(now, zone);
    if (result == 0 && own)
        now->tv_sec += own->clock_step_s;
    return result;
}

ssize_t write(int file, const void *data, size_t count) { return is_full(file) ? -1 : real_write(file, data, count); }

ssize_t pwrite(int file, const void *data, size_t count, off_t at) { return is_full(file) ? -1 : real_pwrite(file, data, count, at); }

ssize_t pwrite64(int file, const void *data, size_t count, off64_t at) { return is_full(file) ? -1 : real_pwrite(file, data, count, at); }

ssize_t writev(int file, const struct iovec *parts, int count) { return is_full(file) ? -1 : real_writev(file, parts, count); }

ssize_t pwritev(int file, const struct iovec *parts, int count, off_t at) { return is_full(file) ? -1 : real_pwritev(file, parts, count, at); }

ssize_t pwritev64(int file, const struct iovec *parts, int count, off64_t at) { return is_full(file) ? -1 : real_pwritev(file, parts, count, at); }

ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t at, int flags) {
    return is_full(file) ? -1 : real_pwritev2(file, parts, count, at, flags);
}

ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t at, int flags) {
    return is_full(file) ? -1 : real_pwritev2(file, parts, count, at, flags);
}

int posix_fallocate(int file, off_t at, off_t count) { return is_full(file) ? ENOSPC : real_posix_fallocate(file, at, count); }

int posix_fallocate64(int file, off64_t at, off64_t count) { return is_full(file) ? ENOSPC : real_posix_fallocate(file, at, count); }

int fallocate(int file, int mode, off_t at, off_t count) { return is_full(file) ? -1 : real_fallocate(file, mode, at, count); }

int fallocate64(int file, int mode, off64_t at, off64_t count) { return is_full(file) ? -1 : real_fallocate(file, mode, at, count); }
