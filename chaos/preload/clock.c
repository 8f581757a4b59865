// Clocks that are off, or run at another rate.
//
// What a clock shows is a line over the real time, with a bend wherever the rate changes. So a
// monotonic clock stays monotonic. All waits of the node that name a time are converted, so that
// its timers follow its clocks.
#include "preload.h"
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>

#define SECOND 1000000000LL

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_epoll_wait)(int, struct epoll_event *, int, int);
static long (*real_syscall)(long, ...);

// Since the real time `real` of the monotonic clock, clocks run at `rate` permille of their rate.
// At that moment the monotonic clock showed `shown`.
static int64_t real, shown, rate = 1000;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void start(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_epoll_wait = dlsym(RTLD_NEXT, "epoll_wait");
    real_syscall = dlsym(RTLD_NEXT, "syscall");
}

static int64_t nanoseconds(struct timespec time) { return time.tv_sec * SECOND + time.tv_nsec; }

static struct timespec timespec(int64_t nanoseconds) {
    return (struct timespec){nanoseconds / SECOND, nanoseconds % SECOND};
}

// 128 bits, because the time since the machine was started may be months.
static int64_t times(int64_t duration, int64_t factor, int64_t divisor) {
    return (int64_t)((__int128)duration * factor / divisor);
}

// Takes a change of the rate into account. The mutex is held.
static void follow_rate(void) {
    struct timespec now;
    int64_t wanted = control->clock_rate_permille;
    if (wanted == rate || real_clock_gettime(CLOCK_MONOTONIC, &now))
        return;
    shown += times(nanoseconds(now) - real, rate, 1000);
    real = nanoseconds(now);
    rate = wanted;
}

// What the monotonic clock shows at a real time.
static int64_t shown_at(int64_t now) {
    pthread_mutex_lock(&mutex);
    follow_rate();
    int64_t result = shown + times(now - real, rate, 1000);
    pthread_mutex_unlock(&mutex);
    return result;
}

// The real time at which the monotonic clock shows this.
static int64_t real_at(int64_t later) {
    pthread_mutex_lock(&mutex);
    follow_rate();
    int64_t result = real + times(later - shown, 1000, rate);
    pthread_mutex_unlock(&mutex);
    return result;
}

// By how much the wall clock is ahead. It is right as long as it runs at its true rate: an
// operator who corrects the rate also sets the clock.
static int64_t wall_clock_ahead(void) {
    struct timespec now;
    int64_t ahead = 0;
    pthread_mutex_lock(&mutex);
    follow_rate();
    if (rate != 1000 && !real_clock_gettime(CLOCK_MONOTONIC, &now))
        ahead = times(nanoseconds(now) - real, rate - 1000, 1000);
    pthread_mutex_unlock(&mutex);
    return ahead;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime)
        real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real_clock_gettime(clock, now);
    if (done != 0 || !control)
        return done;
    switch (clock) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        *now = timespec(shown_at(nanoseconds(*now)));
        break;
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        *now = timespec(nanoseconds(*now) + wall_clock_ahead() + control->clock_offset_ns);
        break;
    }
    return done;
}

int epoll_wait(int epoll, struct epoll_event *events, int count, int timeout_ms) {
    if (timeout_ms > 0 && control) {
        int64_t scaled = ((int64_t)timeout_ms * 1000 + control->clock_rate_permille - 1) / control->clock_rate_permille;
        timeout_ms = scaled < INT32_MAX ? (int)scaled : INT32_MAX;
    }
    return real_epoll_wait(epoll, events, count, timeout_ms);
}

// The Rust library waits for a futex until a time of the monotonic clock.
long syscall(long number, ...) {
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (!real_syscall)
        real_syscall = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_futex && control && (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
        !(a[1] & FUTEX_CLOCK_REALTIME) && a[3]) {
        struct timespec until = timespec(real_at(nanoseconds(*(struct timespec *)a[3])));
        return real_syscall(number, a[0], a[1], a[2], &until, a[4], a[5]);
    }
    return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
