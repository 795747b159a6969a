// Two layouts: up to JDK 22 a CodeBlob holds pointers (_code_begin, _code_end), later ones hold offsets from the blob
// (_code_offset, _data_offset) and name their kind (JDK-8329629 and its neighbours).
//
// Code heaps only ever grow: memory up to VirtualSpace::_high stays mapped for the life of the VM, so it is read by
// plain loads. Pointers that lead elsewhere are followed by safe_read.
#include "codecache.h"

#include <string.h>
#include <sys/uio.h>

#include "record.h"
#include "ring.h"
#include "vmstructs.h"

enum { MAX_HEAPS = 8, MAX_FRAME_WORDS = 1 << 17 };

static struct {
    const void *low, *high, *heaps;  // addresses of static fields
    int64_t array_length, array_data, memory, segmap, log2_segment;
    int64_t space_low, space_high, space_low_boundary, space_high_boundary;
    int64_t block_length, block_used;
    uint64_t block_size, heap_size, nmethod_size;
    int64_t blob_name, blob_size, blob_kind, code_begin, code_end, code_offset, data_offset;
    int64_t compile_id, level, state, entry_bci, entry, verified, osr, exception, deopt, deopt_begin, stub, frame_size;
    int64_t entry_offset, verified_offset;
    bool old_states;  // JDK 17's numbers of nmethod::_state
    bool usable;
} at;

bool codecache_open(void) {
    at.low = vm_static("CodeCache", "_low_bound");
    at.high = vm_static("CodeCache", "_high_bound");
    at.heaps = vm_static("CodeCache", "_heaps");
    at.array_length = vm_offset("GrowableArrayBase", "_len");
    at.array_data = vm_offset("GrowableArray<int>", "_data");
    at.memory = vm_offset("CodeHeap", "_memory");
    at.segmap = vm_offset("CodeHeap", "_segmap");
    at.log2_segment = vm_offset("CodeHeap", "_log2_segment_size");
    at.space_low = vm_offset("VirtualSpace", "_low");
    at.space_high = vm_offset("VirtualSpace", "_high");
    at.space_low_boundary = vm_offset("VirtualSpace", "_low_boundary");
    at.space_high_boundary = vm_offset("VirtualSpace", "_high_boundary");
    at.block_length = vm_offset("HeapBlock::Header", "_length");
    at.block_used = vm_offset("HeapBlock::Header", "_used");
    at.block_size = vm_size("HeapBlock");
    at.heap_size = vm_size("CodeHeap");
    at.nmethod_size = vm_size("nmethod");
    at.blob_name = vm_offset("CodeBlob", "_name");
    at.blob_size = vm_offset("CodeBlob", "_size");
    at.blob_kind = vm_offset("CodeBlob", "_kind");
    at.code_begin = vm_offset("CodeBlob", "_code_begin");
    at.code_end = vm_offset("CodeBlob", "_code_end");
    at.code_offset = vm_offset("CodeBlob", "_code_offset");
    at.data_offset = vm_offset("CodeBlob", "_data_offset");
    at.compile_id = vm_offset("nmethod", "_compile_id");
    at.level = vm_offset("nmethod", "_comp_level");
    at.state = vm_offset("nmethod", "_state");
    at.entry_bci = vm_offset("nmethod", "_entry_bci");
    at.entry = vm_offset("nmethod", "_entry_point");
    at.verified = vm_offset("nmethod", "_verified_entry_point");
    at.entry_offset = vm_offset("nmethod", "_entry_offset");
    at.verified_offset = vm_offset("nmethod", "_verified_entry_offset");
    at.osr = vm_offset("nmethod", "_osr_entry_point");
    at.exception = vm_offset("nmethod", "_exception_offset");
    at.deopt = vm_offset("nmethod", "_deopt_handler_offset");
    at.deopt_begin = vm_offset("CompiledMethod", "_deopt_handler_begin");
    at.stub = vm_offset("nmethod", "_stub_offset");
    at.frame_size = vm_offset("CodeBlob", "_frame_size");
    at.old_states = vm_size("CompiledMethod") && vm_offset("nmethod", "_stack_traversal_mark") >= 0;
    bool places = at.code_begin >= 0 ? at.code_end >= 0 : at.code_offset >= 0 && at.data_offset >= 0;
    at.usable = at.low && at.high && at.heaps && at.array_length >= 0 && at.array_data >= 0 && at.memory >= 0 &&
                at.segmap >= 0 && at.log2_segment >= 0 && at.space_low >= 0 && at.space_high >= 0 &&
                at.block_length >= 0 && at.block_used >= 0 && at.block_size && at.blob_name >= 0 && at.blob_size >= 0 &&
                places;
    return at.usable;
}

static uint64_t word(uint64_t base, int64_t offset) {
    return *(const uint64_t *)(base + (uint64_t)offset);
}

static int32_t half(uint64_t base, int64_t offset) {
    return *(const int32_t *)(base + (uint64_t)offset);
}

bool codecache_bounds(uint64_t *low, uint64_t *high) {
    if (!at.usable) return false;
    *low = *(const uint64_t *)at.low;
    *high = *(const uint64_t *)at.high;
    return *low < *high && *high != UINT64_MAX;
}

struct heap {
    uint64_t address, low, high, segmap, segments;
    int log2_segment;
};

static int heaps(struct heap *found) {
    uint64_t low, high;
    if (!codecache_bounds(&low, &high)) return 0;
    uint64_t array = *(const uint64_t *)at.heaps;
    if (!array) return 0;
    int count = half(array, at.array_length);
    uint64_t data = word(array, at.array_data);
    if (count > MAX_HEAPS) count = MAX_HEAPS;
    int n = 0;
    for (int i = 0; i < count; i++) {
        struct heap h = {.address = ((const uint64_t *)data)[i]};
        h.low = word(h.address + (uint64_t)at.memory, at.space_low);
        h.high = word(h.address + (uint64_t)at.memory, at.space_high);
        h.segmap = word(h.address + (uint64_t)at.segmap, at.space_low);
        h.segments = word(h.address + (uint64_t)at.segmap, at.space_high) - h.segmap;
        h.log2_segment = half(h.address, at.log2_segment);
        if (h.low < low || h.high > high || h.low > h.high || h.log2_segment < 3 || h.log2_segment > 20) continue;
        uint64_t blocks = (h.high - h.low) >> h.log2_segment;
        if (h.segments > blocks) h.segments = blocks;
        found[n++] = h;
    }
    return n;
}

// CodeHeap::_name is not in vmStructs: it is the field that points at "CodeHeap '…'" or "CodeCache".
static void heap_name(uint64_t heap, char *name, size_t size) {
    for (uint64_t field = 0; field + 8 <= at.heap_size; field += 8) {
        if (!safe_string((const void *)word(heap, (int64_t)field), name, size)) continue;
        if (!strncmp(name, "CodeHeap", 8) || !strncmp(name, "CodeCache", 9)) return;
    }
    strcpy(name, "?");
}

void codecache_write_bounds(void) {
    struct heap found[MAX_HEAPS];
    int count = heaps(found);
    struct rec_code_cache record = {.heaps = (uint32_t)count};
    if (!codecache_bounds(&record.low, &record.high)) return;
    struct {
        struct rec_heap heap;
        char name[64];
    } entry[MAX_HEAPS];
    struct iovec parts[1 + MAX_HEAPS] = {part(&record, sizeof record)};
    memset(entry, 0, sizeof entry);
    for (int i = 0; i < count; i++) {
        uint64_t memory = found[i].address + (uint64_t)at.memory;
        heap_name(found[i].address, entry[i].name, sizeof entry[i].name);
        uint32_t size = (uint32_t)strlen(entry[i].name);
        entry[i].heap = (struct rec_heap){
            .low = at.space_low_boundary >= 0 ? word(memory, at.space_low_boundary) : found[i].low,
            .high = at.space_high_boundary >= 0 ? word(memory, at.space_high_boundary) : found[i].high,
            .committed = found[i].high,
            .name_size = size,
        };
        parts[1 + i] = part(&entry[i], sizeof(struct rec_heap) + ((size + 7) & ~7u));
    }
    ring_write_patiently(REC_CODE_CACHE, parts, 1 + count);
}

static enum blob_kind kind_of(const struct blob *blob) {
    if (at.blob_kind >= 0) {
        // JDK: CodeBlobKind, whose numbers are those of enum blob_kind
        uint8_t kind = *(const uint8_t *)(blob->address + (uint64_t)at.blob_kind);
        return kind <= BLOB_UPCALL ? (enum blob_kind)kind : BLOB_UNKNOWN;
    }
    static const struct {
        const char *name;
        enum blob_kind kind;
    } names[] = {
        {"nmethod", BLOB_NMETHOD},
        {"native nmethod", BLOB_NMETHOD},
        {"I2C/C2I adapters", BLOB_ADAPTER},
        {"vtable chunks", BLOB_VTABLE},
        {"MethodHandles adapters", BLOB_MH_ADAPTER},
        {"DeoptimizationBlob", BLOB_DEOPTIMIZATION},
        {"SafepointBlob", BLOB_SAFEPOINT},
        {"ExceptionBlob", BLOB_EXCEPTION},
        {"UncommonTrapBlob", BLOB_UNCOMMON_TRAP},
    };
    static uint64_t known[sizeof names / sizeof *names];  // where the VM has these: constants of its own
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (blob->name == __atomic_load_n(&known[i], __ATOMIC_RELAXED)) return names[i].kind;
    char name[32];
    safe_string((const void *)blob->name, name, sizeof name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name)) continue;
        __atomic_store_n(&known[i], blob->name, __ATOMIC_RELAXED);
        return names[i].kind;
    }
    return BLOB_UNKNOWN;
}

// The blob in the block at `block` of `size` bytes; false if no sound blob stands there (any longer).
static bool blob_at(uint64_t block, uint64_t size, struct blob *blob) {
    blob->address = block + at.block_size;
    int64_t blob_size = half(blob->address, at.blob_size);
    if (blob_size <= 0 || (uint64_t)blob_size > size - at.block_size) return false;
    if (at.code_begin >= 0) {
        blob->code = word(blob->address, at.code_begin);
        blob->code_end = word(blob->address, at.code_end);
    } else {
        blob->code = blob->address + (uint64_t)(int64_t)half(blob->address, at.code_offset);
        blob->code_end = blob->address + (uint64_t)(int64_t)half(blob->address, at.data_offset);
    }
    blob->name = word(blob->address, at.blob_name);
    uint64_t end = blob->address + (uint64_t)blob_size;
    if (blob->code < blob->address || blob->code_end > end || blob->code > blob->code_end || !blob->name) return false;
    blob->kind = kind_of(blob);
    return true;
}

static uint64_t block_bytes(const struct heap *heap, uint64_t block) {
    // size_t up to JDK 19, uint32_t later: the flag behind it tells how wide it is
    uint64_t length = at.block_used >= 8 ? word(block, at.block_length) : (uint32_t)half(block, at.block_length);
    return length > heap->segments ? 0 : length << heap->log2_segment;
}

void codecache_walk(void (*visit)(const struct blob *, void *), void *context) {
    struct heap found[MAX_HEAPS];
    int count = heaps(found);
    for (int i = 0; i < count; i++) {
        struct heap *heap = &found[i];
        const uint8_t *segmap = (const uint8_t *)heap->segmap;
        // A segment map entry is the way back to the block's first segment (0 there), or 0xff: no block.
        for (uint64_t segment = 0; segment < heap->segments;) {
            uint64_t block = heap->low + (segment << heap->log2_segment);
            uint64_t size = segmap[segment] ? 0 : block_bytes(heap, block);
            if (!size || block + size > heap->high) {
                segment++;
                continue;
            }
            struct blob blob;
            if (*(const uint8_t *)(block + (uint64_t)at.block_used) && blob_at(block, size, &blob))
                visit(&blob, context);
            segment += size >> heap->log2_segment;
        }
    }
}

static bool find_blob(uint64_t pc, struct blob *blob) {
    struct heap found[MAX_HEAPS];
    int count = heaps(found);
    for (int i = 0; i < count; i++) {
        struct heap *heap = &found[i];
        if (pc < heap->low || pc >= heap->high) continue;
        const uint8_t *segmap = (const uint8_t *)heap->segmap;
        uint64_t segment = (pc - heap->low) >> heap->log2_segment;
        if (segment >= heap->segments) return false;
        while (segmap[segment]) {
            if (segmap[segment] == 0xff || segmap[segment] > segment) return false;
            segment -= segmap[segment];
        }
        uint64_t block = heap->low + (segment << heap->log2_segment);
        uint64_t size = block_bytes(heap, block);
        return size && *(const uint8_t *)(block + (uint64_t)at.block_used) && blob_at(block, size, blob) &&
               pc >= blob->code && pc < blob->address + (size - at.block_size) &&
               (blob->kind != BLOB_NMETHOD || size >= at.block_size + at.nmethod_size);
    }
    return false;
}

static bool find_nmethod(uint64_t code, struct blob *blob) {
    return find_blob(code, blob) && blob->code == code && blob->kind == BLOB_NMETHOD;
}

bool codecache_frame(uint64_t pc, struct blob_frame *frame) {
    struct blob blob;
    if (!at.usable || at.frame_size < 0 || at.stub < 0 || at.level < 0 || !find_blob(pc, &blob)) return false;
    int32_t words = half(blob.address, at.frame_size);
    if (words < 2 || words > MAX_FRAME_WORDS) return false;
    *frame = (struct blob_frame){.kind = blob.kind, .words = (uint32_t)words};
    if (blob.kind != BLOB_NMETHOD) return true;
    frame->native = *(const int8_t *)(blob.address + (uint64_t)at.level) <= 0;
    frame->deoptimised = pc >= blob.address + (uint64_t)(int64_t)half(blob.address, at.stub);
    return true;
}

void codecache_nmethod_state(uint64_t blob, int32_t *compile_id, int32_t *state) {
    *compile_id = at.compile_id < 0 ? 0 : half(blob, at.compile_id);
    *state = NM_UNKNOWN;
    if (at.state < 0) return;
    int8_t value = *(const int8_t *)(blob + (uint64_t)at.state);
    if (at.old_states) {
        // JDK 17: not_installed −1, in_use 0, not_used 1, not_entrant 2, zombie 3, unloaded 4
        *state = value < 0 ? NM_NOT_INSTALLED : value == 0 ? NM_IN_USE : value <= 2 ? NM_NOT_ENTRANT : NM_GONE;
    } else {
        *state = value < 0 ? NM_NOT_INSTALLED : value == 0 ? NM_IN_USE : NM_NOT_ENTRANT;
    }
}

// `value` if it lies in the code, as an offset from its start; else −1.
static int32_t within(const struct blob *blob, uint64_t value) {
    return value >= blob->code && value < blob->code_end ? (int32_t)(value - blob->code) : -1;
}

void codecache_describe_nmethod(struct rec_nmethod *r) {
    r->exception_offset = r->deopt_offset = r->stub_offset = r->entry_bci = -1;
    r->state = NM_UNKNOWN;
    struct blob blob;
    if (!at.usable || !find_nmethod(r->address, &blob)) return;
    uint64_t nm = blob.address;
    int32_t compile_id;
    r->blob = nm;
    codecache_nmethod_state(nm, &compile_id, &r->state);
    r->compile_id = (uint32_t)compile_id;
    // CompLevel is an int up to JDK 22 and a byte later; −1 and 0 are "none"
    if (at.level >= 0) r->level = *(const int8_t *)(nm + (uint64_t)at.level);
    if (r->level < 0 || r->level > 4) r->level = 0;
    if (at.entry_bci >= 0) r->entry_bci = half(nm, at.entry_bci);
    if (at.entry >= 0) r->entry = word(nm, at.entry);
    if (at.verified >= 0) r->verified_entry = word(nm, at.verified);
    if (at.entry_offset >= 0) r->entry = r->address + *(const uint16_t *)(nm + (uint64_t)at.entry_offset);
    if (at.verified_offset >= 0)
        r->verified_entry = r->address + *(const uint16_t *)(nm + (uint64_t)at.verified_offset);
    if (r->entry_bci != -1 && at.osr >= 0) r->osr_entry = word(nm, at.osr);
    if (within(&blob, r->entry) < 0) r->entry = 0;
    if (within(&blob, r->verified_entry) < 0) r->verified_entry = 0;
    if (within(&blob, r->osr_entry) < 0) r->osr_entry = 0;
    if (at.exception >= 0) r->exception_offset = within(&blob, nm + (uint64_t)(int64_t)half(nm, at.exception));
    if (at.stub >= 0) r->stub_offset = within(&blob, nm + (uint64_t)(int64_t)half(nm, at.stub));
    if (at.deopt >= 0) r->deopt_offset = within(&blob, nm + (uint64_t)(int64_t)half(nm, at.deopt));
    if (at.deopt_begin >= 0) r->deopt_offset = within(&blob, word(nm, at.deopt_begin));
}
