// Compiled code and stubs: JVMTI's events as they happen, and all code that is there on request.
#include "code_events.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <jvmticmlr.h>

#include "agent.h"
#include "codecache.h"
#include "interpreter.h"
#include "names.h"
#include "record.h"
#include "ring.h"
#include "vmstructs.h"

// -- nmethods ------------------------------------------------------------------------------------------------------

// Every nmethod that was told of and not unloaded: to find the nmethods whose state changed, for which there is no
// event.
struct known {
    uint64_t address;  // 0: free
    uint64_t blob;     // 0: unloaded
    int32_t compile_id, state;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *table;
static size_t capacity, used;  // unloaded nmethods are in it until it is made anew

static struct known *slot(struct known *entries, size_t size, uint64_t address) {
    size_t i = (size_t)(address * 0x9e3779b97f4a7c15u >> 20) & (size - 1);
    while (entries[i].address && entries[i].address != address) i = (i + 1) & (size - 1);
    return &entries[i];
}

static void remember(const struct rec_nmethod *record) {
    if (!record->blob) return;
    pthread_mutex_lock(&lock);
    if (2 * (used + 1) > capacity) {
        size_t kept = 0, grown = capacity ? capacity : 4096;
        for (size_t i = 0; i < capacity; i++) kept += table[i].blob != 0;
        if (3 * (kept + 1) > grown) grown *= 2;
        struct known *entries = calloc(grown, sizeof *entries);
        if (!entries) goto out;
        for (size_t i = 0; i < capacity; i++)
            if (table[i].blob) *slot(entries, grown, table[i].address) = table[i];
        free(table);
        table = entries, capacity = grown, used = kept;
    }
    struct known *entry = slot(table, capacity, record->address);
    if (!entry->address) used++;
    *entry = (struct known){record->address, record->blob, (int32_t)record->compile_id, record->state};
out:
    pthread_mutex_unlock(&lock);
}

static bool is_known(uint64_t address) {
    pthread_mutex_lock(&lock);
    struct known *entry = capacity ? slot(table, capacity, address) : NULL;
    bool known = entry && entry->blob;
    pthread_mutex_unlock(&lock);
    return known;
}

void code_poll_states(void) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < capacity; i++) {
        struct known *entry = &table[i];
        if (!entry->blob) continue;
        int32_t compile_id, state;
        codecache_nmethod_state(entry->blob, &compile_id, &state);
        if (compile_id != entry->compile_id || state == entry->state) continue;
        entry->state = state;
        struct rec_nmethod_state record = {entry->address, compile_id, state};
        struct iovec parts[] = {part(&record, sizeof record)};
        ring_write(REC_NMETHOD_STATE, parts, 1);
    }
    pthread_mutex_unlock(&lock);
}

static uint32_t method_id(JNIEnv *jni, jmethodID method) {
    ring_wait_for_room(2048);  // a METHOD and a CLASS are written under a lock, so the wait comes before
    return names_method(jni, method);
}

static const jvmtiCompiledMethodLoadInlineRecord *inline_record(const void *compile_info) {
    const jvmtiCompiledMethodLoadRecordHeader *header = compile_info;
    while (header && header->kind != JVMTI_CMLR_INLINE_INFO) header = header->next;
    return (const jvmtiCompiledMethodLoadInlineRecord *)header;
}

void JNICALL on_compiled_method_load(jvmtiEnv *env, jmethodID method, jint size, const void *code, jint map_length,
                                     const jvmtiAddrLocationMap *map, const void *compile_info) {
    JNIEnv *jni;
    if (size <= 0 || (*java_vm)->GetEnv(java_vm, (void **)&jni, JNI_VERSION_1_6) != JNI_OK) return;
    const jvmtiCompiledMethodLoadInlineRecord *info = inline_record(compile_info);
    size_t pcs = info && info->numpcs > 0 ? (size_t)info->numpcs : 0, frames = 0;
    size_t locations = map && map_length > 0 ? (size_t)map_length : 0;
    for (size_t i = 0; i < pcs; i++)
        if (info->pcinfo[i].numstackframes > 0) frames += (size_t)info->pcinfo[i].numstackframes;

    size_t heads = pcs + pcs + 1;
    uint32_t *pc_offset = malloc(heads * sizeof(uint32_t) + frames * sizeof(struct rec_frame) +
                                 locations * sizeof(struct rec_location) + 1);
    if (!pc_offset) return;
    struct rec_frame *frame = (struct rec_frame *)(pc_offset + heads);
    struct rec_location *location = (struct rec_location *)(frame + frames);

    struct rec_nmethod record = {.address = (uint64_t)code, .code_size = (uint32_t)size};
    codecache_describe_nmethod(&record);
    record.method = method_id(jni, method);
    // A pc outside the code cannot be said in offsets; no JDK sends such a pc, but a wild one is not passed on.
    uint64_t start = (uint64_t)code, end = start + (uint64_t)size;
    uint32_t *frame_at = pc_offset + pcs;
    frame_at[0] = 0;
    for (size_t i = 0; i < pcs; i++) {
        const PCStackInfo *at = &info->pcinfo[i];
        if ((uint64_t)at->pc < start || (uint64_t)at->pc > end) continue;
        for (jint j = 0; j < at->numstackframes; j++)
            frame[record.frames++] = (struct rec_frame){method_id(jni, at->methods[j]), at->bcis[j]};
        pc_offset[record.pcs++] = (uint32_t)((uint64_t)at->pc - start);
        frame_at[record.pcs] = record.frames;
    }
    for (size_t i = 0; i < locations; i++) {
        uint64_t at = (uint64_t)map[i].start_address;
        if (at < start || at > end) continue;
        location[record.locations++] = (struct rec_location){(uint32_t)(at - start), (int32_t)map[i].location};
    }
    struct iovec parts[] = {
        part(&record, sizeof record),
        part(pc_offset, record.pcs * sizeof(uint32_t)),
        part(frame_at, (record.pcs + 1) * sizeof(uint32_t)),
        part_padding((2 * record.pcs + 1) * sizeof(uint32_t)),
        part(frame, record.frames * sizeof *frame),
        part(location, record.locations * sizeof *location),
        part(code, record.code_size),
    };
    if (ring_write_patiently(REC_NMETHOD_LOAD, parts, 7) == RING_FAULT) {
        record.code_size = 0;
        ring_write_patiently(REC_NMETHOD_LOAD, parts, 6);
    }
    free(pc_offset);
    remember(&record);
}

void JNICALL on_compiled_method_unload(jvmtiEnv *env, jmethodID method, const void *code) {
    struct rec_unload record = {(uint64_t)code, names_known_method(method), 0};
    struct iovec parts[] = {part(&record, sizeof record)};
    ring_write(REC_NMETHOD_UNLOAD, parts, 1);
    pthread_mutex_lock(&lock);
    struct known *entry = capacity ? slot(table, capacity, record.address) : NULL;
    if (entry) entry->blob = 0;
    pthread_mutex_unlock(&lock);
}

// -- stubs, adapters, other blobs ----------------------------------------------------------------------------------

static void write_code(uint16_t type, uint64_t start, uint64_t end, const char *name, enum blob_kind kind) {
    // The compilers' work space (half a MiB for each C1 thread) is in the cache too, but nothing there is ever run.
    bool scratch = strstr(name, "temporary CodeBuffer") || strstr(name, "scratch");
    struct rec_code record = {
        .address = start,
        .size = (uint32_t)(end - start),
        .code_size = scratch ? 0 : (uint32_t)(end - start),
        .name_size = (uint32_t)strlen(name),
        .kind = kind,
    };
    struct iovec parts[] = {
        part(&record, sizeof record),
        part(name, record.name_size),
        part_padding(record.name_size),
        part((const void *)start, record.code_size),
    };
    if (ring_write_patiently(type, parts, 4) == RING_FAULT) {
        record.code_size = 0;
        ring_write_patiently(type, parts, 3);
    }
}

// Pieces from GenerateEvents and a walk of the heaps overlap (a blob and the stubs in it), so they are collected first.
struct piece {
    uint64_t start, end;
    uint16_t type;
    enum blob_kind kind;
    char name[96];
};
struct pieces {
    struct piece *items;
    size_t count, capacity;
};
static __thread struct pieces *collecting;

static void collect(struct pieces *to, const struct piece *piece) {
    if (to->count == to->capacity) {
        size_t grown = to->capacity ? 2 * to->capacity : 1024;
        struct piece *items = realloc(to->items, grown * sizeof *items);
        if (!items) return;
        to->items = items, to->capacity = grown;
    }
    to->items[to->count++] = *piece;
}

void code_write_foundation(void) {
    codecache_write_bounds();
    interpreter_write();
}

void JNICALL on_dynamic_code(jvmtiEnv *env, const char *name, const void *code, jint size) {
    // JDK 25's GenerateEvents can report a stub that is being made, with a negative length.
    if (size <= 0 || !code) return;
    if (!name) name = "";
    bool interpreter = !strcmp(name, "Interpreter");
    if (!collecting) {
        if (interpreter)
            code_write_foundation();
        else
            write_code(REC_DYNAMIC_CODE, (uint64_t)code, (uint64_t)code + (uint64_t)size, name, 0);
    } else if (!interpreter) {
        struct piece piece = {(uint64_t)code, (uint64_t)code + (uint64_t)size, REC_DYNAMIC_CODE, 0, ""};
        strncat(piece.name, name, sizeof piece.name - 1);
        collect(collecting, &piece);
    }
}

static void collect_blob(const struct blob *blob, void *to) {
    if (blob->kind == BLOB_NMETHOD || blob->code == blob->code_end) return;
    struct piece piece = {blob->code, blob->code_end, REC_BLOB, blob->kind, ""};
    safe_string((const void *)blob->name, piece.name, sizeof piece.name);
    if (strcmp(piece.name, "Interpreter")) collect(to, &piece);
}

// By start; of those with one start the larger first, and of equals the one from the heap: a later one is inner.
static int compare(const void *left, const void *right) {
    const struct piece *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    if (a->end != b->end) return a->end > b->end ? -1 : 1;
    return (b->type == REC_BLOB) - (a->type == REC_BLOB);
}

// Into this buffer the JVM puts a handler for each new shape of a native method's arguments, one behind the other, and
// tells nobody (JDK: interpreter/interpreterRuntime.cpp, SignatureHandlerLibrary). The last that was told of, which
// stays where it is.
static const char HANDLERS[] = "native signature handlers";
static uint64_t handlers, handlers_end;

static void write_range(const struct piece *piece, uint64_t start, uint64_t end) {
    if (start >= end) return;
    write_code(piece->type, start, end, piece->name, piece->kind);
    if (strcmp(piece->name, HANDLERS) != 0) return;
    __atomic_store_n(&handlers_end, end, __ATOMIC_RELAXED);
    __atomic_store_n(&handlers, start, __ATOMIC_RELEASE);
}

void code_write_handlers(void) {
    uint64_t start = __atomic_load_n(&handlers, __ATOMIC_ACQUIRE);
    uint64_t end = __atomic_load_n(&handlers_end, __ATOMIC_RELAXED);
    if (start < end) write_code(REC_BLOB, start, end, HANDLERS, BLOB_BUFFER);
}

// Each address goes to the innermost piece that holds it: the records do not overlap.
static void write_disjoint(struct pieces *pieces) {
    struct piece **open = malloc((pieces->count + 1) * sizeof *open);
    if (!open) return;
    qsort(pieces->items, pieces->count, sizeof *pieces->items, compare);
    size_t depth = 0;
    uint64_t done = 0;  // everything below is written
    for (size_t i = 0; i <= pieces->count; i++) {
        struct piece *next = i < pieces->count ? &pieces->items[i] : NULL;
        while (depth && (!next || open[depth - 1]->end <= next->start)) {
            struct piece *top = open[--depth];
            write_range(top, done > top->start ? done : top->start, top->end);
            if (top->end > done) done = top->end;
        }
        if (!next) break;
        if (depth) write_range(open[depth - 1], done, next->start);
        if (next->start > done) done = next->start;
        open[depth++] = next;
    }
    free(open);
}

void code_write_all(void) {
    struct pieces pieces = {0};
    collecting = &pieces;
    (*jvmti)->GenerateEvents(jvmti, JVMTI_EVENT_DYNAMIC_CODE_GENERATED);
    collecting = NULL;
    codecache_walk(collect_blob, &pieces);
    write_disjoint(&pieces);
    free(pieces.items);
}

static void write_untold(const struct blob *blob, void *context) {
    int32_t compile_id, state;
    if (blob->kind != BLOB_NMETHOD || is_known(blob->code)) return;
    codecache_nmethod_state(blob->address, &compile_id, &state);
    if (state != NM_IN_USE && state != NM_NOT_ENTRANT) return;
    char name[64];
    safe_string((const void *)blob->name, name, sizeof name);
    write_code(REC_BLOB, blob->code, blob->code_end, name, BLOB_NMETHOD);
}

void code_write_nmethods(void) {
    (*jvmti)->GenerateEvents(jvmti, JVMTI_EVENT_COMPILED_METHOD_LOAD);
    codecache_walk(write_untold, NULL);
}
