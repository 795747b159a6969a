// The names are read from memory (JDK: share/oops/{method,constMethod,constantPool,symbol}.hpp): a jmethodID would
// cost the JVM a word for ever for each method, and JVMTI gives none for a Method*. The class is not known by its id.
//
// A Method* is of another method some time after its class is gone. So where classes were unloaded, what is known is
// compared with what stands there before it is used again; and each second the constant pool, the indices and the size
// of the bytecode are compared. A method whose names are the same keeps its id.
#define _GNU_SOURCE
#include "stack_methods.h"

#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "names.h"
#include "record.h"
#include "ring.h"
#include "vmstructs.h"

enum {
    TOLD = 4096,  // ids at a time; jvm/export/unowned.py has the same
    SLOTS = 2 * TOLD,
    MOST_HEADER = 128,  // bytes of a Method or ConstMethod
    MOST_TEXT = 4000,
    TRUSTED_MS = 1000,
    NATIVE = 0x0100,
    MODIFIERS = 0x1fff,  // those of JVMTI's GetMethodModifiers
};

static struct {
    int64_t const_method, access_flags, constants, name, signature, code_size;
    int64_t holder, pool_length, klass_name, symbol_length, symbol_body;
    uint64_t method_size, const_method_size, pool_size;
    bool usable;
} at;

// The signs by which one method is told from another at the same place.
struct identity {
    uint64_t method, const_method, constants;
    uint16_t name, signature, code_size, modifiers;
};

static struct known {
    struct identity identity;  // its method is 0: free
    uint64_t hash;             // of all that was told
    uint32_t id;
    uint32_t epoch, unloads;  // when it was told and compared
    uint64_t seen;            // ms: its identity
} known[SLOTS];
static int told;

struct moment {
    uint32_t epoch, unloads;
    uint64_t ms;
};

static bool current(const struct known *entry, const struct moment *now) {
    return entry->epoch == now->epoch && entry->unloads == now->unloads;
}

struct text {
    uint16_t size;
    char bytes[MOST_TEXT + 2];
};

bool stack_methods_open(void) {
    at.const_method = vm_offset("Method", "_constMethod");
    at.access_flags = vm_offset("Method", "_access_flags");
    at.constants = vm_offset("ConstMethod", "_constants");
    at.name = vm_offset("ConstMethod", "_name_index");
    at.signature = vm_offset("ConstMethod", "_signature_index");
    at.code_size = vm_offset("ConstMethod", "_code_size");
    at.holder = vm_offset("ConstantPool", "_pool_holder");
    at.pool_length = vm_offset("ConstantPool", "_length");
    at.klass_name = vm_offset("Klass", "_name");
    at.symbol_length = vm_offset("Symbol", "_length");
    at.symbol_body = vm_offset("Symbol", "_body");
    at.method_size = vm_size("Method");
    at.const_method_size = vm_size("ConstMethod");
    at.pool_size = vm_size("ConstantPool");
    at.usable = at.const_method >= 0 && at.access_flags >= 0 && at.constants >= 0 && at.name >= 0 &&
                at.signature >= 0 && at.code_size >= 0 && at.holder >= 0 && at.pool_length >= 0 && at.klass_name >= 0 &&
                at.symbol_length >= 0 && at.symbol_body >= 0 && at.method_size && at.method_size <= MOST_HEADER &&
                at.const_method_size && at.const_method_size <= MOST_HEADER && at.pool_size;
    return at.usable;
}

static uint16_t short_at(const uint8_t *bytes, int64_t offset) {
    uint16_t value;
    memcpy(&value, bytes + offset, sizeof value);
    return value;
}

static uint64_t word_at(const uint8_t *bytes, int64_t offset) {
    uint64_t value;
    memcpy(&value, bytes + offset, sizeof value);
    return value;
}

static bool identify(uint64_t method, struct identity *identity) {
    uint8_t header[MOST_HEADER];
    memset(identity, 0, sizeof *identity);
    if (!method || method % 8 || !safe_read((const void *)method, header, at.method_size)) return false;
    identity->method = method;
    identity->const_method = word_at(header, at.const_method);
    identity->modifiers = short_at(header, at.access_flags) & MODIFIERS;  // a u2 since JDK 24, an int before
    if (!safe_read((const void *)identity->const_method, header, at.const_method_size)) return false;
    identity->constants = word_at(header, at.constants);
    identity->name = short_at(header, at.name);
    identity->signature = short_at(header, at.signature);
    identity->code_size = short_at(header, at.code_size);
    return true;
}

static bool read_symbol(uint64_t symbol, struct text *text) {
    text->size = 0;
    return safe_read((const void *)(symbol + (uint64_t)at.symbol_length), &text->size, sizeof text->size) &&
           text->size && text->size <= MOST_TEXT &&
           safe_read((const void *)(symbol + (uint64_t)at.symbol_body), text->bytes, text->size);
}

static bool read_constant(uint64_t pool, uint16_t index, struct text *text) {
    int32_t length = 0;
    if (!safe_read((const void *)(pool + (uint64_t)at.pool_length), &length, sizeof length) || index >= length)
        return false;
    uint64_t slot = safe_pointer((const void *)(pool + at.pool_size + index * sizeof slot));
    return read_symbol(slot & ~(uint64_t)1, text);  // the bit says something of other constants
}

// "pkg/Name" → "Lpkg/Name;". JVMTI writes a dot where a hidden class's name has a plus (InstanceKlass::signature_name).
static bool read_holder(uint64_t pool, struct text *text) {
    uint64_t klass = safe_pointer((const void *)(pool + (uint64_t)at.holder));
    struct text name;
    if (!klass || !read_symbol(safe_pointer((const void *)(klass + (uint64_t)at.klass_name)), &name)) return false;
    text->size = (uint16_t)(name.size + 2);
    text->bytes[0] = 'L';
    memcpy(text->bytes + 1, name.bytes, name.size);
    text->bytes[name.size + 1] = ';';
    char *plus = memrchr(text->bytes, '+', text->size);
    if (plus && !memcmp(plus, "+0x", 3)) *plus = '.';
    return true;
}

static uint64_t hashed(uint64_t hash, const void *data, size_t size) {
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;  // FNV-1a
    return hash;
}

// Tells of a method that is not known, or not for sure, or that this epoch has not been told of.
static bool tell(struct known *entry, const struct identity *identity, const struct moment *now) {
    static struct text holder, name, signature;
    if (!read_holder(identity->constants, &holder) || !read_constant(identity->constants, identity->name, &name) ||
        !read_constant(identity->constants, identity->signature, &signature))
        return false;
    struct rec_method record = {
        .modifiers = identity->modifiers,
        .code_size = identity->code_size,
        .class_size = holder.size,
        .name_size = name.size,
        .signature_size = signature.size,
    };
    uint64_t hash = hashed(0xcbf29ce484222325u, &record, sizeof record);
    hash =
        hashed(hashed(hashed(hash, holder.bytes, holder.size), name.bytes, name.size), signature.bytes, signature.size);
    bool same = entry->id && entry->hash == hash;
    if (!same || entry->epoch != now->epoch) {
        record.id = same ? entry->id : names_new_method();
        struct iovec parts[] = {
            part(&record, sizeof record),
            part(holder.bytes, holder.size),
            part(name.bytes, name.size),
            part(signature.bytes, signature.size),
        };
        if (ring_write(REC_METHOD, parts, 4) != RING_OK) return false;
        if (!same) told++;
        entry->id = record.id;
    }
    entry->identity = *identity;
    entry->hash = hash;
    entry->epoch = now->epoch;
    entry->unloads = now->unloads;
    return true;
}

static size_t home(uint64_t method) {
    return (size_t)(method * 0x9e3779b97f4a7c15u >> 32) % SLOTS;
}

static struct known *slot(const struct identity *identity) {
    size_t i = home(identity->method);
    while (known[i].identity.method && memcmp(&known[i].identity, identity, sizeof *identity)) i = (i + 1) % SLOTS;
    return &known[i];
}

static bool places(const struct identity *identity, uint64_t bcp, int32_t *bci) {
    uint64_t offset = bcp - identity->const_method - at.const_method_size;
    bool native = identity->modifiers & NATIVE;
    *bci = native ? -1 : (int32_t)offset;
    return native || offset < identity->code_size;
}

// Its id without a look at it, if that was not long ago.
static uint32_t lately(uint64_t method, uint64_t bcp, int32_t *bci, const struct moment *now) {
    for (size_t i = home(method); known[i].identity.method; i = (i + 1) % SLOTS) {
        const struct known *entry = &known[i];
        if (entry->identity.method == method && current(entry, now) && now->ms - entry->seen < TRUSTED_MS &&
            places(&entry->identity, bcp, bci))
            return entry->id;
    }
    return 0;
}

uint32_t stack_method(uint64_t method, uint64_t bcp, int32_t *bci) {
    struct identity identity;
    struct moment now = {names_epoch(), names_unloads(), clock_ns(CLOCK_MONOTONIC) / 1000000};
    if (!at.usable) return 0;
    uint32_t id = lately(method, bcp, bci, &now);
    if (id) return id;
    if (!identify(method, &identity) || !places(&identity, bcp, bci)) return 0;
    if (told >= TOLD) {
        memset(known, 0, sizeof known);
        told = 0;
    }
    struct known *entry = slot(&identity);
    if (!current(entry, &now) && !tell(entry, &identity, &now)) return 0;
    entry->seen = now.ms;
    return entry->id;
}
