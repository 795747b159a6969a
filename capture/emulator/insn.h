// Lengths of x86-64 instructions, and their effects on the flow of control.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum flow {
    FLOW_NEXT,   // goes on with the next instruction
    FLOW_COND,   // conditional: Jcc, LOOPcc, JrCXZ
    FLOW_JUMP,   // direct near jump
    FLOW_CALL,   // direct near call
    FLOW_IJUMP,  // indirect near jump
    FLOW_ICALL,  // indirect near call
    FLOW_RET,    // near return
    FLOW_FAR,    // far jump, call or return, SYSCALL, INT: a TIP, or an exit to the kernel
};

struct insn {
    uint8_t length;  // in bytes
    uint8_t flow;    // enum flow
    uint8_t rep;     // a string instruction with REP: may be interrupted and resumed at itself
    int32_t offset;  // of a direct branch: target − next instruction
};

// Decodes the 64-bit instruction at `code`. False: it is longer than `size` bytes (or than 15), or is none.
_Bool insn_decode(struct insn *insn, const uint8_t *code, size_t size);
