// Ids for methods and classes. A jmethodID stays valid, or at least is never given to another method, for the life of
// the VM, so it is a good key. A class has no such handle that costs nothing to keep (a global reference would keep
// it loaded): its key is the identity hash of its mirror together with the hash of its signature. A weak reference
// tells when it has been unloaded: then it and its methods are forgotten, for their ids are never asked for again but
// by an event that is still on its way. JVMTI has no event for that.
#include "names.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "agent.h"
#include "record.h"
#include "ring.h"

struct entry {
    uint64_t key;  // 0: free
    uint32_t id;
    uint32_t epoch;       // of the last record written; 0: none yet
    uint32_t definition;  // classes: the CLASS_DEF
    uint32_t class_id;    // methods
    jweak ref;            // classes
    bool gone;            // left out when the table is made anew
};

struct table {
    struct entry *entries;
    size_t capacity, used;
    uint32_t last_id;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // held over JVMTI calls, but not over calls that wait
static struct table methods, classes;
static uint32_t epoch = 1, unloads;

static struct entry *slot(struct table *table, uint64_t key) {
    size_t i = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (table->capacity - 1);
    while (table->entries[i].key && table->entries[i].key != key) i = (i + 1) & (table->capacity - 1);
    return &table->entries[i];
}

static bool make_room(struct table *table) {
    if (2 * (table->used + 1) <= table->capacity) return true;
    size_t kept = 0;
    for (size_t i = 0; i < table->capacity; i++) kept += table->entries[i].key && !table->entries[i].gone;
    struct table grown = {.capacity = table->capacity ? table->capacity : 4096, .last_id = table->last_id};
    if (3 * (kept + 1) > grown.capacity) grown.capacity *= 2;
    grown.entries = calloc(grown.capacity, sizeof *grown.entries);
    if (!grown.entries) return false;
    for (size_t i = 0; i < table->capacity; i++) {
        const struct entry *entry = &table->entries[i];
        if (!entry->key || entry->gone) continue;
        *slot(&grown, entry->key) = *entry;
        grown.used++;
    }
    free(table->entries);
    *table = grown;
    return true;
}

// The entry of `key`, made if need be; NULL when out of memory.
static struct entry *intern(struct table *table, uint64_t key) {
    if (!make_room(table)) return NULL;
    struct entry *entry = slot(table, key);
    if (!entry->key) {
        *entry = (struct entry){.key = key, .id = ++table->last_id};
        table->used++;
    }
    return entry;
}

void names_new_epoch(void) {
    pthread_mutex_lock(&lock);
    epoch++;
    pthread_mutex_unlock(&lock);
}

static uint32_t locked(const uint32_t *number) {
    pthread_mutex_lock(&lock);
    uint32_t value = *number;
    pthread_mutex_unlock(&lock);
    return value;
}

uint32_t names_epoch(void) {
    return locked(&epoch);
}

uint32_t names_unloads(void) {
    return locked(&unloads);
}

uint32_t names_new_method(void) {
    pthread_mutex_lock(&lock);
    uint32_t id = ++methods.last_id;
    pthread_mutex_unlock(&lock);
    return id;
}

uint32_t names_loader(jobject loader) {
    jint hash = 0;
    if (loader) (*jvmti)->GetObjectHashCode(jvmti, loader, &hash);
    return (uint32_t)hash;
}

static uint64_t class_key(jclass klass, const char *signature) {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char *c = signature; *c; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    jint identity = 0;
    (*jvmti)->GetObjectHashCode(jvmti, klass, &identity);
    hash = (hash ^ (uint32_t)identity) * 0x9e3779b97f4a7c15u;
    return hash ? hash : 1;
}

static uint16_t short_size(const char *text) {
    size_t size = text ? strlen(text) : 0;
    return size > UINT16_MAX ? UINT16_MAX : (uint16_t)size;
}

static void write_class(JNIEnv *jni, struct entry *entry, jclass klass, const char *signature) {
    jint modifiers = 0;
    jobject loader = NULL;
    (*jvmti)->GetClassModifiers(jvmti, klass, &modifiers);
    (*jvmti)->GetClassLoader(jvmti, klass, &loader);
    struct rec_class record = {
        .id = entry->id,
        .definition = entry->definition,
        .loader = names_loader(loader),
        .modifiers = (uint32_t)modifiers,
        .signature_size = short_size(signature),
    };
    if (loader) (*jni)->DeleteLocalRef(jni, loader);
    struct iovec parts[] = {part(&record, sizeof record), part(signature, record.signature_size)};
    if (ring_write(REC_CLASS, parts, 2) == RING_OK) entry->epoch = epoch;
}

static struct entry *class_entry(JNIEnv *jni, jclass klass, const char *signature) {
    struct entry *entry = intern(&classes, class_key(klass, signature));
    if (!entry) return NULL;
    if (entry->gone) *entry = (struct entry){.key = entry->key, .id = ++classes.last_id};  // another with both hashes
    if (!entry->ref) entry->ref = (*jni)->NewWeakGlobalRef(jni, klass);
    if (!entry->ref && (*jni)->ExceptionCheck(jni)) (*jni)->ExceptionClear(jni);  // out of memory
    return entry;
}

static uint32_t class_id(JNIEnv *jni, jclass klass, const char *signature, uint32_t definition) {
    struct entry *entry = class_entry(jni, klass, signature);
    if (!entry) return 0;
    if (definition) entry->definition = definition;
    if (definition || entry->epoch != epoch) write_class(jni, entry, klass, signature);
    return entry->id;
}

void names_define_class(JNIEnv *jni, jclass klass, uint32_t definition) {
    char *signature = NULL;
    if ((*jvmti)->GetClassSignature(jvmti, klass, &signature, NULL)) return;
    pthread_mutex_lock(&lock);
    class_id(jni, klass, signature, definition);
    pthread_mutex_unlock(&lock);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)signature);
}

bool names_has_definition(JNIEnv *jni, jclass klass, const char *signature) {
    pthread_mutex_lock(&lock);
    struct entry *entry = class_entry(jni, klass, signature);
    bool defined = !entry || entry->definition;
    pthread_mutex_unlock(&lock);
    return defined;
}

void names_forget_definitions(void) {
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < classes.capacity; i++) classes.entries[i].definition = 0;
    pthread_mutex_unlock(&lock);
}

static bool write_method(JNIEnv *jni, struct entry *entry, jmethodID method) {
    char *holder = NULL, *name = NULL, *signature = NULL;
    jclass klass = NULL;
    jint modifiers = 0;
    jlocation first = 0, last = -1;
    bool found = !(*jvmti)->GetMethodDeclaringClass(jvmti, method, &klass) &&
                 !(*jvmti)->GetClassSignature(jvmti, klass, &holder, NULL) &&
                 !(*jvmti)->GetMethodName(jvmti, method, &name, &signature, NULL);
    if (found) {
        (*jvmti)->GetMethodModifiers(jvmti, method, &modifiers);
        // Native and abstract methods have no location; the last location is the last byte of the bytecode.
        if ((*jvmti)->GetMethodLocation(jvmti, method, &first, &last)) last = -1;
        entry->class_id = class_id(jni, klass, holder, 0);
        struct rec_method record = {
            .id = entry->id,
            .class_id = entry->class_id,
            .modifiers = (uint32_t)modifiers,
            .code_size = (uint32_t)(last + 1),
            .class_size = short_size(holder),
            .name_size = short_size(name),
            .signature_size = short_size(signature),
        };
        struct iovec parts[] = {
            part(&record, sizeof record),
            part(holder, record.class_size),
            part(name, record.name_size),
            part(signature, record.signature_size),
        };
        if (ring_write(REC_METHOD, parts, 4) == RING_OK) entry->epoch = epoch;
    }
    if (klass) (*jni)->DeleteLocalRef(jni, klass);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)holder);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)name);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)signature);
    return found;
}

uint32_t names_method(JNIEnv *jni, jmethodID method) {
    if (!method) return 0;
    pthread_mutex_lock(&lock);
    struct entry *entry = intern(&methods, (uint64_t)method);
    uint32_t id = entry ? entry->id : 0;
    // A method whose class is gone cannot be described again, but its id stays the same.
    if (entry && entry->epoch != epoch && !write_method(jni, entry, method) && !entry->epoch) {
        id = 0;
        entry->gone = true;
    }
    pthread_mutex_unlock(&lock);
    return id;
}

uint32_t names_known_method(jmethodID method) {
    pthread_mutex_lock(&lock);
    struct entry *entry = methods.capacity ? slot(&methods, (uint64_t)method) : NULL;
    uint32_t id = entry && entry->key ? entry->id : 0;
    pthread_mutex_unlock(&lock);
    return id;
}

static int compare(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void forget_methods(uint32_t *gone, size_t count) {
    qsort(gone, count, sizeof *gone, compare);
    for (size_t i = 0; i < methods.capacity; i++) {
        struct entry *entry = &methods.entries[i];
        if (entry->key && bsearch(&entry->class_id, gone, count, sizeof *gone, compare)) entry->gone = true;
    }
}

void names_poll_unloads(JNIEnv *jni) {
    enum { AT_ONCE = 1024 };
    static size_t next;
    static uint32_t gone[AT_ONCE];
    size_t count = 0;
    pthread_mutex_lock(&lock);
    if (next >= classes.capacity) next = 0;
    for (size_t end = next + AT_ONCE; next < end && next < classes.capacity; next++) {
        struct entry *entry = &classes.entries[next];
        if (!entry->ref || !(*jni)->IsSameObject(jni, entry->ref, NULL)) continue;
        struct rec_number record = {entry->id, 0};
        struct iovec parts[] = {part(&record, sizeof record)};
        if (ring_write(REC_CLASS_UNLOAD, parts, 1) != RING_OK) break;  // said the next time
        (*jni)->DeleteWeakGlobalRef(jni, entry->ref);
        entry->ref = NULL;
        entry->gone = true;
        gone[count++] = entry->id;
    }
    if (count) forget_methods(gone, count);
    unloads += (uint32_t)count;
    pthread_mutex_unlock(&lock);
}
