// Methods of interpreted frames: their ids and records.
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool stack_methods_open(void);

// The id of the Method* `method`, told by a METHOD record before, and the bci of `bcp` in it (−1: a native method);
// 0 if there is no such method, or no such bytecode in it. To be called by one thread alone.
uint32_t stack_method(uint64_t method, uint64_t bcp, int32_t *bci);
