// The emulator's options, given when it is loaded (capture/emulator/options.py).
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *dir;
    bool per_thread;
    uint64_t aux_size, data_size, psb_bytes;  // bytes
    bool tsc;
    int mtc, cyc;  // −1: off
    bool retcomp, retcomp_strict, long_tnt;
    double ovf_mb_s;  // 0: off
    bool psb_on_code_change;
    const char *truth;  // NULL: off
};

extern struct options options;

// Takes one "name=value", which is cut in two; ends the process if there is no such option.
void options_take(char *argument);
