// The code cache as it stands in memory: heaps, blocks, blobs (JDK: src/hotspot/share/code/{codeCache,codeBlob,
// nmethod}.hpp, memory/heap.hpp).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "record.h"

struct blob {
    uint64_t address;  // of the CodeBlob itself
    uint64_t code, code_end;
    uint64_t name;  // char* in the VM
    enum blob_kind kind;
};

// Reads the offsets; false if this VM's vmStructs do not say enough. Everything below then finds nothing.
bool codecache_open(void);

bool codecache_bounds(uint64_t *low, uint64_t *high);
void codecache_write_bounds(void);  // a CODE_CACHE record

// Calls `visit` for each blob in use. Reads without a lock while the JVM goes on, so a blob may be older or younger
// than its neighbour; each is checked to be sound in itself.
void codecache_walk(void (*visit)(const struct blob *, void *), void *context);

// The use that code makes of the stack at some pc in it.
struct blob_frame {
    enum blob_kind kind;
    uint32_t words;    // between the sp and the sender's
    bool native;       // nmethods: the wrapper of a native method
    bool deoptimised;  // nmethods: the pc is a handler's, not one of the code
};
// False if no blob is there, or one without a frame of a known size.
bool codecache_frame(uint64_t pc, struct blob_frame *frame);

// Fills the fields of `record` that are found only in the nmethod whose code begins at record->address.
void codecache_describe_nmethod(struct rec_nmethod *record);
// Compile id and state of the nmethod at `blob`; state NM_UNKNOWN if the VM does not tell.
void codecache_nmethod_state(uint64_t blob, int32_t *compile_id, int32_t *state);
