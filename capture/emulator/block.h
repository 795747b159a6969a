// A translated block of guest code.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Lives as long as the process: QEMU may still hold it.
struct block {
    uint64_t start, last, end;  // first instruction, last instruction, behind it
    uint64_t target;            // of a direct branch at the end
    uint32_t id;
    uint16_t instructions;
    uint8_t flow;         // enum flow of the last instruction
    bool rep;             // the last instruction is a string instruction with REP: a block each iteration
    const uint8_t *code;  // as translated; only with psb_on_code_change
};
