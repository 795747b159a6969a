// The JIT-export ring: a file that many threads of the JVM append records to and one other process consumes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum ring_result {
    RING_OK,
    RING_DROPPED,  // no room, or no space left on the device; counted in the header
    RING_FAULT,    // a part could not be read (its memory is gone); nothing was written
};

// Makes the file and its directory, under a temporary name until it is whole. A ring that is open is ended first.
// On failure false, with one line in `error`.
bool ring_open(const char *path, uint64_t size, char *error, size_t error_size);

// Appends a record made of `parts`, at most RING_PARTS of them; `kind` is its type, and flags << 16. Never waits for
// the consumer. The parts are read by the kernel, so they may point at code that vanishes meanwhile.
enum { RING_PARTS = 12 };
enum ring_result ring_write(uint32_t kind, const struct iovec *parts, int count);

// The same, of what was so at `tsc`; 0: now.
enum ring_result ring_write_as_of(uint64_t tsc, uint32_t kind, const struct iovec *parts, int count);

// For what may as well not be told: half of the ring is left for the rest.
bool ring_has_spare_room(void);

// The same, but on the agent's own thread during a replay waits for room first, until the consumer has stood still for
// a second: so a replay that is larger than the ring comes through whole. To be called with no lock held.
enum ring_result ring_write_patiently(uint32_t kind, const struct iovec *parts, int count);
void ring_wait_for_room(size_t size);

void ring_set_state(uint32_t state);
uint32_t ring_replay_requested(void);
void ring_set_replay_done(uint32_t number);

// Of the consumer: 0: it traces all the time; odd: in this window; even: not now.
uint32_t ring_window(void);

// Sleeps for so long, or until the window is another than `seen`.
void ring_sleep(uint32_t seen, unsigned milliseconds);

// While set, records of this thread carry FLAG_REPLAYED.
extern __thread bool ring_replaying;

uint64_t clock_tsc(void);
uint64_t clock_ns(int clock);
uint32_t os_tid(void);

// A part, and the zeros that align the next part to 8 bytes.
static inline struct iovec part(const void *data, size_t size) {
    return (struct iovec){(void *)data, size};
}
struct iovec part_padding(size_t size_so_far);
