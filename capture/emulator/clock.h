// The TSC, and its conversion to perf time.
#pragma once

#include <stdint.h>
#include <x86intrin.h>

// TSC → perf time, as struct perf_event_mmap_page has it.
struct clock {
    uint32_t mult;
    uint16_t shift;
    uint64_t zero, wall_zero;
};

extern struct clock clock_;

static inline uint64_t rdtsc(void) {
    return __rdtsc();
}

void clock_init(void);
uint64_t perf_time(uint64_t tsc);
double tsc_hz(void);
