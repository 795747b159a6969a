// The options that the agent is loaded with.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
    char ring[4096];
    uint64_t size;
    bool classes;
    unsigned stacks_ms;  // 0: off
    unsigned mounts;     // at most a second; 0: off
    char text[4096];     // as given
};

// Parses "ring=PATH,size=64m,classes=on|off,stacks=100,mounts=10000", or dir=DIR for DIR/jit-PID.ring. On failure false,
// and one line in `error`.
bool options_parse(const char *text, struct options *options, char *error, size_t error_size);
