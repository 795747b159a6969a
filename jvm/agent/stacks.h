// Tells now and then the stack of each thread that runs.
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool stacks_open(void);

// Looks whether something is to be told; `period` is that of the option, in ms (0: off), `window` that of ring.h.
// Returns after how many ms, or in another window, it wants to be called again. To be called by the agent's own thread
// alone.
unsigned stacks_poll(unsigned period, uint32_t window);
