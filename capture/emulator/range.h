// The range of code that is traced, and the executable mappings of the process.
#pragma once

#include <stdbool.h>
#include <stdint.h>

extern uint64_t filter_lo, filter_hi;  // the IP filter, [lo, hi)
extern uint64_t guest_base;
void range_syscall(int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6);
bool range_result(int64_t number, int64_t result);  // true: the filter range has just become known
struct mapping {
    uint64_t start, size, offset, inode;
    uint32_t prot, flags, major, minor;
    char name[232];
};
uint32_t range_count(void);
const struct mapping *range_mapping(uint32_t index);
