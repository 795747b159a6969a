// JDK: share/code/stubs.hpp (StubQueue), share/interpreter/interpreter.hpp (InterpreterCodelet),
// share/interpreter/templateInterpreter.hpp (DispatchTable), cpu/x86/interp_masm_x86.cpp (dispatch_base).
#include "interpreter.h"

#include <string.h>
#include <sys/uio.h>

#include "record.h"
#include "ring.h"
#include "vmstructs.h"

enum {
    ALIGNMENT = 32,  // CodeEntryAlignment
    BYTECODES = 256,
    TOS_STATES = 10,
    VTOS = 9,
    NOP = 0x00,
    GOTO = 0xa7,
};

static struct {
    const void *queue;  // address of AbstractInterpreter::_code
    int64_t buffer, begin, end, size, description, bytecode;
    uint64_t header;
    bool usable;
} at;

bool interpreter_open(void) {
    at.queue = vm_static("AbstractInterpreter", "_code");
    at.buffer = vm_offset("StubQueue", "_stub_buffer");
    at.begin = vm_offset("StubQueue", "_queue_begin");
    at.end = vm_offset("StubQueue", "_queue_end");
    at.size = vm_offset("InterpreterCodelet", "_size");
    at.description = vm_offset("InterpreterCodelet", "_description");
    at.bytecode = vm_offset("InterpreterCodelet", "_bytecode");
    at.header = vm_size("InterpreterCodelet");
    at.usable = at.queue && at.buffer >= 0 && at.begin >= 0 && at.end >= 0 && at.size >= 0 && at.description >= 0 &&
                at.bytecode >= 0 && at.header;
    return at.usable;
}

static int32_t half(uint64_t base, int64_t offset) {
    return *(const int32_t *)(base + (uint64_t)offset);
}

// The code of a codelet begins at the next aligned address behind its header (InterpreterCodelet::code_begin).
static uint64_t code_of(uint64_t codelet) {
    return (codelet + at.header + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
}

static void write_codelet(uint64_t codelet, uint64_t size) {
    char description[128];
    safe_string((const void *)*(const uint64_t *)(codelet + (uint64_t)at.description), description, sizeof description);
    int32_t bytecode = half(codelet, at.bytecode);
    struct rec_codelet record = {
        .start = code_of(codelet),
        .end = codelet + size,
        .bytecode = bytecode >= 0 && bytecode < BYTECODES ? bytecode : -1,
        .description_size = (uint32_t)strlen(description),
    };
    struct iovec parts[] = {part(&record, sizeof record), part(description, record.description_size)};
    ring_write_patiently(REC_CODELET, parts, 2);
}

// The table whose row for vtos is the immediate of a `mov r10, imm64` (49 ba) in the code [start, end).
// `skip`: a table already known.
static uint64_t find_table(uint64_t start, uint64_t end, uint64_t skip, uint64_t low, uint64_t high) {
    for (uint64_t p = start; p + 10 <= end; p++) {
        const uint8_t *code = (const uint8_t *)p;
        if (code[0] != 0x49 || code[1] != 0xba) continue;
        uint64_t row;
        memcpy(&row, code + 2, sizeof row);
        uint64_t table = row - VTOS * BYTECODES * sizeof(uint64_t);
        // Every bytecode that exists, such as nop, leads into the interpreter.
        uint64_t entry = safe_pointer((const void *)row);
        if (table != skip && entry >= low && entry < high) return table;
    }
    return 0;
}

static void write_table(uint64_t table) {
    uint64_t entries[TOS_STATES][BYTECODES];
    for (int row = 0; row < TOS_STATES; row++)
        if (!safe_read((const void *)(table + (uint64_t)row * sizeof entries[0]), entries[row], sizeof entries[0]))
            return;
    struct rec_dispatch_table record = {table, TOS_STATES, BYTECODES};
    struct iovec parts[] = {part(&record, sizeof record), part(entries, sizeof entries)};
    ring_write_patiently(REC_DISPATCH_TABLE, parts, 2);
}

bool interpreter_bounds(uint64_t *low, uint64_t *high) {
    uint64_t queue = at.usable ? *(const uint64_t *)at.queue : 0;
    if (!queue) return false;
    uint64_t buffer = *(const uint64_t *)(queue + (uint64_t)at.buffer);
    *low = buffer + (uint64_t)half(queue, at.begin), *high = buffer + (uint64_t)half(queue, at.end);
    return *low < *high && *high - *low <= 16u << 20;
}

bool interpreter_write(void) {
    uint64_t low, high;
    if (!interpreter_bounds(&low, &high)) return false;
    struct rec_interpreter record = {low, high, (uint32_t)(high - low), 0};
    struct iovec parts[] = {part(&record, sizeof record), part((const void *)low, high - low)};
    ring_write_patiently(REC_INTERPRETER, parts, 2);
    uint64_t nop = 0, nop_end = 0, jump = 0, jump_end = 0;
    for (uint64_t codelet = low, size; codelet + at.header < high; codelet += size) {
        size = (uint64_t)(int64_t)half(codelet, at.size);
        if (size < at.header || size > high - codelet) break;
        if (code_of(codelet) >= codelet + size) continue;  // some entry points of JDK 25 are empty
        write_codelet(codelet, size);
        if (half(codelet, at.bytecode) == NOP) nop = code_of(codelet), nop_end = codelet + size;
        if (half(codelet, at.bytecode) == GOTO) jump = code_of(codelet), jump_end = codelet + size;
    }
    uint64_t active = find_table(nop, nop_end, 0, low, high);
    if (active) {
        write_table(active);
        // Backward jumps poll for safepoints and then use the other table.
        uint64_t other = find_table(jump, jump_end, active, low, high);
        if (other) write_table(other);
    }
    return true;
}
