// Rare events of a stream: PSB+, MTC, full buffers, overflow.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct block;
struct stream;
struct thread;

extern uint64_t ctc_num, ctc_den;  // of CPUID.15H
extern uint32_t cbr;
extern bool timed;  // something depends on the time at each block
void service_init(void);
void service_start(struct stream *s, uint64_t tsc);                       // tracing begins, outside the filter
void service_switched(struct thread *t, struct stream *s, uint64_t tsc);  // t has just come
void service_time(struct thread *t, struct stream *s);                    // before the packets of a block
void service(struct thread *t, struct stream *s, const struct block *b, bool entering);  // `b`: is entered now
// Whether s can show the block in the middle of which t comes back: a PSB says that code has changed, where it has and
// that block still stands. Only with psb_on_code_change can it be that it does not.
bool service_shows(struct thread *t, struct stream *s);
void service_commit(struct stream *s);              // if it is time to
void service_left(struct stream *s, uint64_t tsc);  // by its thread: as perf does, all that it wrote comes into view
void service_end(struct stream *s, uint64_t tsc);
