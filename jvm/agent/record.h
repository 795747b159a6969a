// JIT-export records and the header page of the ring: the C side of docs/jit-export.md.
#pragma once

#include <stdint.h>

#define RING_MAGIC "JITRING1"
#define FORMAT_VERSION 1
#define AGENT_VERSION 1
#define RING_HEADER_SIZE 4096

enum record_type {
    REC_PAD = 0,
    REC_AGENT_INFO = 1,
    REC_CODE_CACHE = 2,
    REC_INTERPRETER = 3,
    REC_CODELET = 4,
    REC_DISPATCH_TABLE = 5,
    REC_CLASS = 6,
    REC_CLASS_DEF = 7,
    REC_METHOD = 8,
    REC_NMETHOD_LOAD = 9,
    REC_NMETHOD_UNLOAD = 10,
    REC_DYNAMIC_CODE = 11,
    REC_BLOB = 12,
    REC_THREAD_START = 13,
    REC_THREAD_END = 14,
    REC_OVERFLOW = 15,
    REC_REPLAY_BEGIN = 16,
    REC_REPLAY_END = 17,
    REC_VM_DEATH = 18,
    REC_NMETHOD_STATE = 19,
    REC_CLASS_UNLOAD = 21,  // 20 is capture's
    REC_STACK = 22,
    REC_MOUNT = 23,
};

enum { FLAG_REPLAYED = 1, FLAG_RECONSTRUCTED = 2 };

enum ring_state { STATE_STARTING = 0, STATE_RUNNING = 1, STATE_ENDED = 2 };

enum blob_kind {
    BLOB_UNKNOWN = 0,
    BLOB_NMETHOD = 1,
    BLOB_BUFFER = 2,
    BLOB_ADAPTER = 3,
    BLOB_VTABLE = 4,
    BLOB_MH_ADAPTER = 5,
    BLOB_RUNTIME_STUB = 6,
    BLOB_DEOPTIMIZATION = 7,
    BLOB_SAFEPOINT = 8,
    BLOB_EXCEPTION = 9,
    BLOB_UNCOMMON_TRAP = 10,
    BLOB_UPCALL = 11,
};

enum nmethod_status { NM_UNKNOWN = -2, NM_NOT_INSTALLED = -1, NM_IN_USE = 0, NM_NOT_ENTRANT = 1, NM_GONE = 2 };

// The header page. Words that different processes write stand on different cache lines.
struct ring_header {
    char magic[8];
    uint32_t version;
    uint32_t header_size;
    uint64_t ring_size;
    uint32_t pid;
    uint32_t state;
    uint32_t agent_version;
    uint32_t reserved;
    uint64_t tsc;
    uint64_t monotonic_ns;
    uint64_t wall_ns;
    uint8_t pad0[128 - 64];
    uint64_t head;
    uint8_t pad1[192 - 136];
    uint64_t tail;
    uint8_t pad2[256 - 200];
    uint64_t dropped_records;
    uint64_t dropped_bytes;
    uint64_t dropped_classes;
    uint8_t pad3[320 - 280];
    uint32_t replay_requested;
    uint32_t replay_done;
    uint32_t window;
};
_Static_assert(__builtin_offsetof(struct ring_header, head) == 128, "header layout");
_Static_assert(__builtin_offsetof(struct ring_header, tail) == 192, "header layout");
_Static_assert(__builtin_offsetof(struct ring_header, dropped_records) == 256, "header layout");
_Static_assert(__builtin_offsetof(struct ring_header, replay_requested) == 320, "header layout");

struct record_header {
    uint32_t size;
    uint16_t type;
    uint16_t flags;
    uint64_t tsc;
    uint32_t tid;
    uint32_t checksum;  // 0: filled in by capture, in the export file (jvm/export/seal.py)
};
_Static_assert(sizeof(struct record_header) == 24, "record header");

struct rec_agent_info {
    uint32_t version, pid;
    uint64_t monotonic_ns, wall_ns;
    uint16_t name_size, vm_version_size, options_size, reserved;
};
struct rec_code_cache {
    uint64_t low, high;
    uint32_t heaps, reserved;
};
struct rec_heap {
    uint64_t low, high, committed;
    uint32_t name_size, reserved;
};
struct rec_interpreter {
    uint64_t start, end;
    uint32_t size, reserved;
};
struct rec_codelet {
    uint64_t start, end;
    int32_t bytecode;
    uint32_t description_size;
};
struct rec_dispatch_table {
    uint64_t address;
    uint32_t rows, columns;
};
struct rec_class {
    uint32_t id, definition, loader, modifiers, signature_size, reserved;
};
struct rec_class_def {
    uint32_t id, loader, name_size, size;
};
struct rec_method {
    uint32_t id, class_id, modifiers, code_size;
    uint16_t class_size, name_size, signature_size, reserved;
};
struct rec_frame {
    uint32_t method;
    int32_t bci;
};
struct rec_location {
    uint32_t offset;
    int32_t bci;
};
struct rec_nmethod {
    uint64_t address, entry, verified_entry, osr_entry, blob;
    uint32_t method, compile_id;
    int32_t level, entry_bci, exception_offset, deopt_offset, stub_offset, state;
    uint32_t code_size, pcs, frames, locations;
};
_Static_assert(sizeof(struct rec_nmethod) == 88, "nmethod record");
struct rec_unload {
    uint64_t address;
    uint32_t method, reserved;
};
struct rec_code {
    uint64_t address;
    uint32_t size, code_size, name_size, kind;
};
struct rec_thread {
    uint32_t tid, name_size;
};
struct rec_overflow {
    uint64_t records, bytes;
};
struct rec_number {
    uint32_t number, reserved;
};
enum { STACK_WHOLE = 1 };  // the bottom was reached
struct rec_stack {
    uint32_t tid, frames, flags, reserved;
    uint64_t before;  // TSC when the anchor had not been read yet; the header's: when it was found unchanged
};
struct rec_stack_frame {
    uint64_t pc;
    uint32_t method;
    int32_t bci;
};
_Static_assert(sizeof(struct rec_stack_frame) == 16, "frame of a stack record");
struct rec_mount {
    uint64_t thread;  // Thread.threadId() of the virtual thread; 0: what runs on the carriers is not known from here on
};
struct rec_nmethod_state {
    uint64_t address;
    int32_t compile_id, state;
};
