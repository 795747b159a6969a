// The blocks that really ran, for comparison with the decoded ones (docs/emulator.md).
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct block;
struct stream;
struct thread;
struct truth;

enum truth_kind {
    TRUTH_COME = 1,
    TRUTH_GO,
    TRUTH_STOP,
    TRUTH_RESUME,
    TRUTH_PARTIAL,
    TRUTH_TIME,
    TRUTH_PSB,
    TRUTH_SIGNAL
};
extern atomic_bool truth_cut;  // something could not be written; after that nothing is
void truth_init(void);
struct truth *truth_thread(uint32_t tid);  // NULL: it cannot be written
void truth_close(struct truth *truth);
void truth_block(const struct block *b, uint64_t tsc, const uint8_t *lengths);
void truth_code(uint64_t tsc, uint64_t address, const uint8_t *bytes, uint32_t size, bool changed);
void truth_ran(struct truth *truth, const struct block *b);
void truth_mark(struct thread *t, struct stream *s, enum truth_kind kind, uint64_t tsc, uint64_t ip);
// The same, of a thread that comes back to its last block.
void truth_mark_resumed(struct thread *t, struct stream *s, enum truth_kind kind, uint64_t tsc, uint64_t ip);
