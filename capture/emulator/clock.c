#define _GNU_SOURCE
#include "clock.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "emulator.h"

struct clock clock_;

uint64_t perf_time(uint64_t tsc) {
    uint64_t quotient = tsc >> clock_.shift, rest = tsc & ((1ull << clock_.shift) - 1);
    return clock_.zero + quotient * clock_.mult + (rest * clock_.mult >> clock_.shift);
}

static uint64_t ns(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

// The kernel's own conversion, from the control page of an event that counts nothing; where perf is not allowed,
// measured against CLOCK_MONOTONIC_RAW.
static bool clock_of_kernel(void) {
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
                                   .size = sizeof attr,
                                   .config = PERF_COUNT_SW_DUMMY,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0) return false;
    struct perf_event_mmap_page *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) return false;
    bool usable = page->cap_user_time_zero && page->time_mult;
    if (usable) clock_ = (struct clock){page->time_mult, page->time_shift, page->time_zero, 0};
    munmap(page, PAGE);
    return usable;
}

static void clock_measured(void) {
    uint64_t ns0 = ns(CLOCK_MONOTONIC_RAW), tsc0 = rdtsc(), ns1, tsc1;
    do {
        ns1 = ns(CLOCK_MONOTONIC_RAW);
        tsc1 = rdtsc();
    } while (ns1 - ns0 < 50000000);
    clock_.shift = 31;
    clock_.mult = (uint32_t)((double)(ns1 - ns0) / (double)(tsc1 - tsc0) * (1u << 31));
    clock_.zero = 0;
    clock_.zero = ns1 - perf_time(tsc1);
}

void clock_init(void) {
    if (!clock_of_kernel()) clock_measured();
    uint64_t wall = ns(CLOCK_REALTIME);
    clock_.wall_zero = wall - perf_time(rdtsc());
}

double tsc_hz(void) {
    return 1e9 * (double)(1ull << clock_.shift) / clock_.mult;
}
