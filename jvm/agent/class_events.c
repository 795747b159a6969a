// ClassFileLoadHook gives a class's bytes before there is a class; ClassLoad, on the same thread, gives the class.
// Loading one class loads its super types in between, so the definitions pending on a thread are a stack. A load that
// fails leaves its definition on it until a load below it succeeds.
#include "class_events.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "agent.h"
#include "names.h"
#include "record.h"
#include "ring.h"

enum { DEPTH = 32, NAME = 256 };

static __thread struct {
    uint32_t id;
    char name[NAME];  // cut to fit; empty if the loader gave none
} *pending;
static __thread int depth;
static uint32_t last_definition;

void class_events_thread_end(void) {
    free(pending);
    pending = NULL;
    depth = 0;
}

// A CLASS_DEF; its id, or 0 if it was dropped.
static uint32_t write(uint32_t flags, jobject loader, const char *name, size_t name_size, const struct iovec *data,
                      int count) {
    struct rec_class_def record = {
        .id = __atomic_add_fetch(&last_definition, 1, __ATOMIC_RELAXED),
        .loader = names_loader(loader),
        .name_size = (uint32_t)name_size,
    };
    struct iovec parts[RING_PARTS] = {
        part(&record, sizeof record),
        part(name, name_size),
        part_padding(name_size),
    };
    for (int i = 0; i < count; i++) {
        record.size += (uint32_t)data[i].iov_len;
        parts[3 + i] = data[i];
    }
    return ring_write_patiently(REC_CLASS_DEF | flags << 16, parts, 3 + count) == RING_OK ? record.id : 0;
}

void class_write_definition(JNIEnv *jni, jclass klass, const char *signature, const struct iovec *data, int count) {
    jobject loader = NULL;
    (*jvmti)->GetClassLoader(jvmti, klass, &loader);
    uint32_t id = write(FLAG_RECONSTRUCTED, loader, signature + 1, strlen(signature) - 2, data, count);
    if (id) names_define_class(jni, klass, id);
    if (loader) (*jni)->DeleteLocalRef(jni, loader);
}

void JNICALL on_class_file(jvmtiEnv *env, JNIEnv *jni, jclass redefined, jobject loader, const char *name,
                           jobject domain, jint size, const unsigned char *data, jint *new_size,
                           unsigned char **new_data) {
    if (size <= 0 || !data) return;
    struct iovec only = part(data, (size_t)size);
    uint32_t id = write(0, loader, name, name ? strlen(name) : 0, &only, 1);
    if (redefined) {
        if (id) names_define_class(jni, redefined, id);
        return;
    }
    if (!pending) pending = malloc(DEPTH * sizeof *pending);
    if (!pending) return;
    if (depth == DEPTH) {  // stale entries of failed loads: forget the oldest half
        memmove(pending, pending + DEPTH / 2, DEPTH / 2 * sizeof *pending);
        depth = DEPTH / 2;
    }
    pending[depth].id = id;
    pending[depth].name[0] = 0;
    if (name) strncat(pending[depth].name, name, NAME - 1);
    depth++;
}

// Whether `signature` (Lname;) is that of the definition `name`.
static bool same_class(const char *signature, const char *name) {
    size_t size = strlen(name);
    if (!size) return true;
    if (signature[0] != 'L' || strncmp(signature + 1, name, size)) return false;
    return signature[1 + size] == ';' || size == NAME - 1;
}

void JNICALL on_class_load(jvmtiEnv *env, JNIEnv *jni, jthread thread, jclass klass) {
    if (!depth) return;
    char *signature = NULL;
    if ((*jvmti)->GetClassSignature(jvmti, klass, &signature, NULL)) return;
    for (int i = depth - 1; i >= 0; i--) {
        if (!same_class(signature, pending[i].name)) continue;
        uint32_t definition = pending[i].id;
        depth = i;
        if (definition) names_define_class(jni, klass, definition);
        break;
    }
    (*jvmti)->Deallocate(jvmti, (unsigned char *)signature);
}
