// The code of the filter's range as it was last translated, to notice changes.
//
// QEMU translates a block again when its code was written to, so each version that runs is seen here before it runs.
// Epochs are even; an odd epoch says that a change is being recorded: a reader of a TSC with its epoch reads both until
// nothing moved (service.c).
#define _GNU_SOURCE
#include "code.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "block.h"
#include "clock.h"
#include "options.h"
#include "range.h"
#include "say.h"
#include "truth.h"

atomic_uint_fast64_t code_epoch;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint8_t *bytes_seen, *is_seen;  // a byte each of the range; reserved, used where code is

void code_init(void) {
    if (!options.truth && !options.psb_on_code_change) return;
    uint64_t size = filter_hi - filter_lo;
    uint8_t *both = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (both == MAP_FAILED) {
        say("cannot map a copy of the code cache: %s; its changes are not noticed", strerror(errno));
        return;
    }
    bytes_seen = both;
    is_seen = both + size;
}

// Or has another thread translated newer bytes since: then b was entered before they were written.
bool code_is_as_last_seen(const struct block *b) {
    pthread_mutex_lock(&lock);
    bool same = !bytes_seen || !memcmp(b->code, bytes_seen + (b->start - filter_lo), b->end - b->start);
    pthread_mutex_unlock(&lock);
    return same;
}

void code_seen(uint64_t address, const uint8_t *bytes, uint32_t size) {
    if (!bytes_seen) return;
    pthread_mutex_lock(&lock);
    uint8_t *known = bytes_seen + (address - filter_lo), *seen = is_seen + (address - filter_lo);
    bool changed = false, fresh = false;
    for (uint32_t i = 0; i < size; i++) {
        fresh |= !seen[i];
        changed |= seen[i] && known[i] != bytes[i];
    }
    if (fresh || changed) {
        if (changed) atomic_fetch_add(&code_epoch, 1);
        memcpy(known, bytes, size);
        memset(seen, 1, size);
        if (options.truth) truth_code(rdtsc(), address, bytes, size, changed);
        if (changed) atomic_fetch_add(&code_epoch, 1);
    }
    pthread_mutex_unlock(&lock);
}
