// Class files put together again from JVMTI's answers about a loaded class, for classes whose bytes no hook was shown:
// hidden classes (lambdas, method handle forms; JDK: klassFactory.cpp skips the hook for them), classes from the CDS
// archive that start the VM, everything loaded before a late attach, and definitions that the ring dropped. There are
// the constant pool, the class's own names and each method with its bytecode; there are no fields, no exception tables
// and no other attributes, for JVMTI does not give them.
#include "class_files.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "agent.h"
#include "class_events.h"
#include "names.h"
#include "ring.h"

enum { UTF8 = 1, LONG = 5, DOUBLE = 6, CLASS = 7, MAX_POOL = 65535 };

struct bytes {
    uint8_t *data;
    size_t size, capacity;
    bool failed;  // out of memory
};

static void put(struct bytes *to, const void *data, size_t size) {
    if (to->size + size > to->capacity) {
        size_t grown = 2 * (to->size + size) + 1024;
        uint8_t *bigger = to->failed ? NULL : realloc(to->data, grown);
        if (!bigger) {
            to->failed = true;
            return;
        }
        to->data = bigger, to->capacity = grown;
    }
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void put2(struct bytes *to, unsigned value) {
    put(to, (uint8_t[]){(uint8_t)(value >> 8), (uint8_t)value}, 2);
}

static void put4(struct bytes *to, uint32_t value) {
    put2(to, value >> 16);
    put2(to, value & 0xffff);
}

static unsigned get2(const uint8_t *at) {
    return (unsigned)at[0] << 8 | at[1];
}

struct pool {
    struct bytes bytes;
    unsigned count;         // as in a class file: one more than the highest index
    uint32_t at[MAX_POOL];  // where entry i begins
};

// Size of the constant that begins with `tag`, without a UTF-8's text; 0: unknown (JVMS 4.4).
static size_t constant_size(uint8_t tag) {
    // clang-format off
    switch (tag) {
        case UTF8: return 3;
        case 3: case 4: return 5;  // Integer, Float
        case LONG: case DOUBLE: return 9;
        case CLASS: case 8: case 16: case 19: case 20: return 3;  // Class, String, MethodType, Module, Package
        case 9: case 10: case 11: case 12: case 17: case 18: return 5;  // references, NameAndType, dynamic
        case 15: return 4;  // MethodHandle
        default: return 0;
    }
    // clang-format on
}

static bool read_pool(jclass klass, struct pool *pool) {
    jint count = 0, size = 0;
    unsigned char *data = NULL;
    if ((*jvmti)->GetConstantPool(jvmti, klass, &count, &size, &data)) return false;
    put(&pool->bytes, data, (size_t)size);
    (*jvmti)->Deallocate(jvmti, data);
    if (pool->bytes.failed) return false;
    size_t at = 0, end = pool->bytes.size;
    for (unsigned i = 1; i < (unsigned)count && i < MAX_POOL; i++) {
        size_t length = at < end ? constant_size(pool->bytes.data[at]) : 0;
        if (!length || at + length > end) return false;
        if (pool->bytes.data[at] == UTF8) length += get2(pool->bytes.data + at + 1);
        pool->at[i] = (uint32_t)at;
        if (pool->bytes.data[at] == LONG || pool->bytes.data[at] == DOUBLE) pool->at[++i] = (uint32_t)at;
        at += length;
        if (at > end) return false;
    }
    pool->count = (unsigned)count;
    return true;
}

static bool is_text(const struct pool *pool, unsigned index, const char *text, size_t size) {
    if (!index || index >= pool->count) return false;
    const uint8_t *entry = pool->bytes.data + pool->at[index];
    return entry[0] == UTF8 && get2(entry + 1) == size && !memcmp(entry + 3, text, size);
}

// Index of a UTF-8 constant, added if it is not there; 0 if the pool is full.
static unsigned text_index(struct pool *pool, const char *text, size_t size) {
    for (unsigned i = 1; i < pool->count; i++)
        if (is_text(pool, i, text, size)) return i;
    if (pool->count >= MAX_POOL || size > 65535) return 0;
    pool->at[pool->count] = (uint32_t)pool->bytes.size;
    put(&pool->bytes, (uint8_t[]){UTF8}, 1);
    put2(&pool->bytes, (unsigned)size);
    put(&pool->bytes, text, size);
    return pool->bytes.failed ? 0 : pool->count++;
}

// Index of a Class constant for `signature` (Lname;).
static unsigned class_index(struct pool *pool, const char *signature) {
    size_t size = strlen(signature);
    if (size < 3 || signature[0] != 'L') return 0;
    for (unsigned i = 1; i < pool->count; i++) {
        const uint8_t *entry = pool->bytes.data + pool->at[i];
        if (entry[0] == CLASS && is_text(pool, get2(entry + 1), signature + 1, size - 2)) return i;
    }
    unsigned name = text_index(pool, signature + 1, size - 2);
    if (!name || pool->count >= MAX_POOL) return 0;
    pool->at[pool->count] = (uint32_t)pool->bytes.size;
    put(&pool->bytes, (uint8_t[]){CLASS}, 1);
    put2(&pool->bytes, name);
    return pool->bytes.failed ? 0 : pool->count++;
}

static unsigned index_of_class(struct pool *pool, jclass klass) {
    char *signature = NULL;
    if (!klass || (*jvmti)->GetClassSignature(jvmti, klass, &signature, NULL)) return 0;
    unsigned index = class_index(pool, signature);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)signature);
    return index;
}

static bool put_method(struct bytes *to, struct pool *pool, jmethodID method) {
    char *name = NULL, *signature = NULL;
    jint modifiers = 0, locals = 0, size = 0;
    unsigned char *code = NULL;
    if ((*jvmti)->GetMethodName(jvmti, method, &name, &signature, NULL)) return false;
    (*jvmti)->GetMethodModifiers(jvmti, method, &modifiers);
    unsigned names = text_index(pool, name, strlen(name));
    unsigned signatures = text_index(pool, signature, strlen(signature));
    unsigned attribute = text_index(pool, "Code", 4);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)name);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)signature);
    if (!names || !signatures || !attribute) return false;
    bool has_code = !(*jvmti)->GetBytecodes(jvmti, method, &size, &code) && size > 0;
    put2(to, (unsigned)modifiers & 0xffff);
    put2(to, names);
    put2(to, signatures);
    put2(to, has_code);
    if (has_code) {
        (*jvmti)->GetMaxLocals(jvmti, method, &locals);
        put2(to, attribute);
        put4(to, 12 + (uint32_t)size);
        put2(to, 65535);  // max_stack: not told
        put2(to, (unsigned)locals);
        put4(to, (uint32_t)size);
        put(to, code, (size_t)size);
        put2(to, 0);
        put2(to, 0);
    }
    (*jvmti)->Deallocate(jvmti, code);
    return true;
}

static void put_interfaces(JNIEnv *jni, struct bytes *to, struct pool *pool, jclass klass) {
    jint count = 0;
    jclass *interfaces = NULL;
    (*jvmti)->GetImplementedInterfaces(jvmti, klass, &count, &interfaces);
    put2(to, (unsigned)count);
    for (jint i = 0; i < count; i++) {
        put2(to, index_of_class(pool, interfaces[i]));
        (*jni)->DeleteLocalRef(jni, interfaces[i]);
    }
    (*jvmti)->Deallocate(jvmti, (unsigned char *)interfaces);
}

// Everything that follows the constant pool; the constants it needs are added to the pool on the way.
static bool put_body(JNIEnv *jni, struct bytes *to, struct pool *pool, jclass klass) {
    jint modifiers = 0, count = 0;
    jmethodID *methods = NULL;
    (*jvmti)->GetClassModifiers(jvmti, klass, &modifiers);
    unsigned own = index_of_class(pool, klass);
    jclass super = (*jni)->GetSuperclass(jni, klass);
    // An interface has no superclass, but its class file names Object.
    unsigned parent = super ? index_of_class(pool, super) : 0;
    if (!super && modifiers & 0x200) parent = class_index(pool, "Ljava/lang/Object;");
    if (super) (*jni)->DeleteLocalRef(jni, super);
    if (!own || (*jvmti)->GetClassMethods(jvmti, klass, &count, &methods)) return false;
    put2(to, (unsigned)modifiers & 0xffff);
    put2(to, own);
    put2(to, parent);
    put_interfaces(jni, to, pool, klass);
    put2(to, 0);  // fields
    size_t number_at = to->size;
    unsigned written = 0;
    put2(to, 0);
    for (jint i = 0; i < count && written < 65535; i++) written += put_method(to, pool, methods[i]);
    put2(to, 0);  // attributes
    (*jvmti)->Deallocate(jvmti, (unsigned char *)methods);
    if (to->failed) return false;
    to->data[number_at] = (uint8_t)(written >> 8);
    to->data[number_at + 1] = (uint8_t)written;
    return true;
}

static void write_definition(JNIEnv *jni, jclass klass, const char *signature) {
    struct bytes head = {0}, body = {0};
    struct pool *pool = calloc(1, sizeof *pool);
    jint major = 0, minor = 0;
    if (pool && read_pool(klass, pool) && put_body(jni, &body, pool, klass) &&
        !(*jvmti)->GetClassVersionNumbers(jvmti, klass, &minor, &major)) {
        put4(&head, 0xcafebabe);
        put2(&head, (unsigned)minor);
        put2(&head, (unsigned)major);
        put2(&head, pool->count);
        if (!head.failed && !pool->bytes.failed) {
            struct iovec parts[] = {
                part(head.data, head.size),
                part(pool->bytes.data, pool->bytes.size),
                part(body.data, body.size),
            };
            class_write_definition(jni, klass, signature, parts, 3);
        }
    }
    if (pool) free(pool->bytes.data);
    free(pool);
    free(head.data);
    free(body.data);
}

// Tells the class if its definition was not told yet.
static void complete(JNIEnv *jni, jclass klass) {
    char *signature = NULL;
    if ((*jvmti)->GetClassSignature(jvmti, klass, &signature, NULL)) return;
    if (signature[0] == 'L' && !names_has_definition(jni, klass, signature)) write_definition(jni, klass, signature);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)signature);
}

void JNICALL on_class_prepare(jvmtiEnv *env, JNIEnv *jni, jthread thread, jclass klass) {
    complete(jni, klass);
}

static void complete_if_prepared(JNIEnv *jni, jclass klass) {
    jint status = 0;
    if (!(*jvmti)->GetClassStatus(jvmti, klass, &status) && status & JVMTI_CLASS_STATUS_PREPARED) complete(jni, klass);
    (*jni)->DeleteLocalRef(jni, klass);
}

static bool has_signature(jclass klass, const char *wanted) {
    char *signature = NULL;
    if ((*jvmti)->GetClassSignature(jvmti, klass, &signature, NULL)) return false;
    bool same = !strcmp(signature, wanted);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)signature);
    return same;
}

// The JVM lists them newest first (JDK: ClassLoaderDataGraph, ClassLoaderData::classes_do). The oldest are those that all
// others call: Object, String and the like. MethodHandle comes last: asked for, each method of it has an id, and JVMTI
// takes for an intrinsic of it the method whose id has the intrinsic's number (JDK: Method::make_method_handle_intrinsic).
void classes_write_missing(JNIEnv *jni) {
    jint count = 0;
    jclass *classes = NULL, last = NULL;
    if ((*jvmti)->GetLoadedClasses(jvmti, &count, &classes)) return;
    for (jint i = count; i-- > 0;) {
        if (!last && has_signature(classes[i], "Ljava/lang/invoke/MethodHandle;"))
            last = classes[i];
        else
            complete_if_prepared(jni, classes[i]);
    }
    if (last) complete_if_prepared(jni, last);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)classes);
}
