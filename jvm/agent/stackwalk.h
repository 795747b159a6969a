// The Java frames of a thread, read from outside while it goes on.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { STACK_FRAMES = 1024 };

struct walked_frame {
    uint64_t pc;
    uint64_t method, bcp;  // of an interpreted frame: Method* and where its bytecode goes on; else 0
};

struct walked {
    uint64_t before, after;  // TSC: the frames stood like this in between
    bool whole;              // the outermost is the thread's first
    int count;
    struct walked_frame frames[STACK_FRAMES];  // innermost first
};

// Reads the offsets; false if this VM's vmStructs do not say enough. Nothing is then walked.
bool stackwalk_open(void);

enum walk_result {
    WALK_DONE,
    WALK_LATER,      // the thread runs Java code, or went on meanwhile
    WALK_NO_FRAMES,  // it has no Java frames: one of the VM's own, or gone
};

// Of a JavaThread. To be called by one thread alone.
enum walk_result stackwalk(uint64_t java_thread, struct walked *stack);
