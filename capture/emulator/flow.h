// Which branches happened.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct stream;
struct thread;

extern atomic_uint_fast64_t unexplained;  // ways from block to block that no branch explains

void flow_inside(unsigned vcpu, void *block);
void flow_outside(uint64_t to);                                     // `self` was inside and goes on at `to`, outside
void flow_signal(uint64_t ip, bool synchronous);                    // `self` was inside and is interrupted at `ip`
void flow_taken(struct thread *t, struct stream *s, uint64_t tsc);  // t, not busy, loses the stream
