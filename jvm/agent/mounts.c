// Mounts of virtual threads. Neither the trace nor the kernel knows of them: control comes back into another stack, on
// the same thread of the operating system. JVMTI tells a mount by an extension event, to whom has the capability for
// virtual threads (JDK: share/prims/jvmtiExtensions.cpp); a JVM without both has no virtual threads, or none that can be
// told. It comes on the carrier, from the virtual thread's first frames that go on there: of a start before its task is
// run, of a yield when Continuation.yield has returned (JDK: share/classes/java/lang/VirtualThread.java, run,
// yieldContinuation). A thread that was pinned and did not leave is told of again.
//
// A mount costs its thread some 1.6 µs, most of it the record (docs/overhead.md). So that a program which does hardly
// anything but change threads is not slowed down, there is an allowance: so many mounts as the option says, and as many
// more each second. When it is used up, or half of the ring is unread (the rest is left to the code), nothing more is
// written, and at its next look the agent's thread switches the event off for a second. From then on nobody knows what
// runs on the carriers: a record without a thread says so.
#include "mounts.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "agent.h"
#include "record.h"
#include "ring.h"

enum {
    SUPPORT_VIRTUAL_THREADS = 44,  // bit of jvmtiCapabilities; the header of JDK 17 has no name for it
    SECOND = 1000000000,           // ns
};

static const char MOUNT_EVENT[] = "com.sun.hotspot.events.VirtualThreadMount";

static struct {
    bool asked, usable;
    jvmtiEvent event;
    jfieldID tid;  // java.lang.Thread.tid: what Thread.threadId() returns
} at;

static int64_t allowance;  // mounts that may yet be told; 0: the next one ends the telling

static void tell(uint64_t thread) {
    struct rec_mount record = {thread};
    struct iovec parts[] = {part(&record, sizeof record)};
    ring_write(REC_MOUNT, parts, 1);
}

static void JNICALL on_mount(jvmtiEnv *env, ...) {
    int64_t left = __atomic_fetch_sub(&allowance, 1, __ATOMIC_RELAXED);
    if (left < 0) return;
    va_list arguments;
    va_start(arguments, env);
    JNIEnv *jni = va_arg(arguments, JNIEnv *);
    jthread thread = va_arg(arguments, jthread);
    va_end(arguments);
    bool may = left && ring_has_spare_room();
    if (!may) __atomic_store_n(&allowance, -1, __ATOMIC_RELAXED);
    tell(may ? (uint64_t)(*jni)->GetLongField(jni, thread, at.tid) : 0);
}

static bool add_capability(void) {
    jvmtiCapabilities wanted;
    memset(&wanted, 0, sizeof wanted);
    ((uint8_t *)&wanted)[SUPPORT_VIRTUAL_THREADS / 8] = 1 << SUPPORT_VIRTUAL_THREADS % 8;
    return !(*jvmti)->AddCapabilities(jvmti, &wanted);
}

static bool find_event(void) {
    jint count;
    jvmtiExtensionEventInfo *events;
    bool found = false;
    if ((*jvmti)->GetExtensionEvents(jvmti, &count, &events)) return false;
    for (jint i = 0; i < count; i++) {
        if (!strcmp(events[i].id, MOUNT_EVENT)) {
            at.event = (jvmtiEvent)events[i].extension_event_index;
            found = true;
        }
        for (jint p = 0; p < events[i].param_count; p++)
            (*jvmti)->Deallocate(jvmti, (unsigned char *)events[i].params[p].name);
        (*jvmti)->Deallocate(jvmti, (unsigned char *)events[i].params);
        (*jvmti)->Deallocate(jvmti, (unsigned char *)events[i].id);
        (*jvmti)->Deallocate(jvmti, (unsigned char *)events[i].short_description);
    }
    (*jvmti)->Deallocate(jvmti, (unsigned char *)events);
    return found;
}

static bool find_tid(JNIEnv *jni) {
    jclass type = (*jni)->FindClass(jni, "java/lang/Thread");
    at.tid = type ? (*jni)->GetFieldID(jni, type, "tid", "J") : NULL;
    if ((*jni)->ExceptionCheck(jni)) (*jni)->ExceptionClear(jni);
    if (type) (*jni)->DeleteLocalRef(jni, type);
    return at.tid;
}

static bool listen_to(jvmtiEventMode mode) {
    return !(*jvmti)->SetEventNotificationMode(jvmti, mode, at.event, NULL);
}

static void open(JNIEnv *jni) {
    at.asked = true;
    at.usable = add_capability() && find_event() && find_tid(jni) &&
                !(*jvmti)->SetExtensionEventCallback(jvmti, (jint)at.event, on_mount);
}

// Adds what has come together since the last time; never more than for a second.
static void refill(uint64_t passed, unsigned most) {
    static uint64_t rest;
    uint64_t more = (passed < SECOND ? passed : SECOND) * most + rest;
    rest = more % SECOND;
    int64_t now = __atomic_add_fetch(&allowance, (int64_t)(more / SECOND), __ATOMIC_RELAXED);
    if (now > (int64_t)most) __atomic_fetch_sub(&allowance, now - (int64_t)most, __ATOMIC_RELAXED);
}

void mounts_poll(JNIEnv *jni, unsigned most_a_second) {
    static bool on;
    static uint64_t last, off_until;
    if (most_a_second && !at.asked) open(jni);
    if (!at.usable) return;
    uint64_t now = clock_ns(CLOCK_MONOTONIC), passed = now - last;
    last = now;
    if (on && (!most_a_second || __atomic_load_n(&allowance, __ATOMIC_RELAXED) < 0)) {
        on = !listen_to(JVMTI_DISABLE);
        __atomic_store_n(&allowance, -1, __ATOMIC_RELAXED);
        tell(0);  // again: others may have written between the last one that was allowed and the one that was not
        off_until = now + SECOND;
    } else if (on) {
        refill(passed, most_a_second);
    } else if (most_a_second && now >= off_until && ring_has_spare_room()) {
        __atomic_store_n(&allowance, most_a_second, __ATOMIC_RELAXED);
        on = listen_to(JVMTI_ENABLE);
    }
}
