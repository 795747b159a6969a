// Whose stream it is: guest threads on host CPUs.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "emulator.h"
#include "stream.h"

struct block;
struct truth;

struct thread {
    atomic_bool busy;  // in a callback, using its stream
    bool inside;       // the last block lay in the filter: `at`
    struct block *at;
    struct stream *stream;
    const volatile uint32_t *cpu;  // where the kernel says this thread runs; own_cpu without rseq
    uint32_t own_cpu;
    uint32_t tid;
    char comm[16];
    uint64_t introduced[16];  // bit n: the ring of CPU n knows this thread
    struct truth *truth;
    uint64_t code_epoch;  // when it entered `at`
};

extern atomic_bool ended;  // the process exits, or this is a forked child: write nothing
extern __thread struct thread *self;
extern bool asymmetric;  // the kernel can fence other threads for us
void cpus_init(void);
struct thread *thread_begin(void);
void thread_end(void);
void thread_renamed(void);
struct stream *stream_acquire(struct thread *t);  // t is busy; NULL: everything has ended, or its ring was refused
extern atomic_uint_fast64_t refused;              // rings that could not be made, each try
void streams_end(void);
void streams_json(FILE *file);

static inline void thread_enter(struct thread *t) {
    atomic_store_explicit(&t->busy, true, memory_order_relaxed);
    if (likely(asymmetric))
        atomic_signal_fence(memory_order_seq_cst);
    else
        atomic_thread_fence(memory_order_seq_cst);
}

static inline void thread_leave(struct thread *t) {
    atomic_store_explicit(&t->busy, false, memory_order_release);
}

// The stream on which t may write now; t is busy.
static inline struct stream *stream_of(struct thread *t) {
    struct stream *s = t->stream;
    if (likely(s && atomic_load_explicit(&s->owner, memory_order_relaxed) == t && s->cpu == (int)*t->cpu)) return s;
    return stream_acquire(t);
}
