// Perf events in files: a stream's AUX area and its records.
#pragma once

#include <stdint.h>

struct stream;
struct thread;

extern uint32_t process;  // pid, in all records

struct stream *ring_open(const char *name, int cpu);               // NULL, with errno: there is none
void ring_commit(struct stream *s, uint64_t flags, uint64_t tsc);  // AUX record, then aux_head
void ring_switch(struct stream *s, struct thread *to, uint64_t tsc);
void ring_switch_out(struct stream *s, uint64_t tsc);
void ring_thread_starts(struct stream *s, struct thread *t, uint64_t tsc);
void ring_comm(struct stream *s, struct thread *t, uint64_t tsc);
void ring_exit(struct stream *s, struct thread *t, uint64_t tsc);
void ring_maps(struct stream *s, uint64_t tsc);
void ring_end(struct stream *s);
