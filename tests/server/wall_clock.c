/* Preloaded into a server, it sets that server's wall clock off by the seconds in the file $WALL_CLOCK_OFFSET, which
   may change at any time. Other clocks stay. libfaketime would do, but it breaks what processes share: Boost's locks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset(void) {
    char text[32] = "";
    const char *path = getenv("WALL_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file >= 0) {
        if (read(file, text, sizeof text - 1) < 0) text[0] = 0;
        close(file);
    }
    return atol(text);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    if (result == 0) now->tv_sec += offset();
    return result;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}

/* Waiting is done by the kernel's clock, which is right. Ends of waiting by a clock that began at boot are small. */
static struct timespec for_kernel(const struct timespec *end) {
    struct timespec right = *end;
    if (right.tv_sec > 100000000) right.tv_sec -= offset();
    return right;
}

#define NEXT(name, version) \
    static __typeof__(&name) next; \
    if (!next) next = (__typeof__(&name))(version ? dlvsym(RTLD_NEXT, #name, version) : dlsym(RTLD_NEXT, #name))

int pthread_mutex_timedlock(pthread_mutex_t *mutex, const struct timespec *end) {
    NEXT(pthread_mutex_timedlock, (const char *)0);
    struct timespec right = for_kernel(end);
    return next(mutex, &right);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *end) {
    NEXT(pthread_cond_timedwait, "GLIBC_2.3.2");
    struct timespec right = for_kernel(end);
    return next(condition, mutex, &right);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *end) {
    NEXT(sem_timedwait, (const char *)0);
    struct timespec right = for_kernel(end);
    return next(semaphore, &right);
}
