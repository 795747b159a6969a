// Which OS thread runs which Java thread. A new thread tells it itself (ThreadStart runs on it). For threads that
// exist already JVMTI has no answer: the field Thread.eetop, set by the VM, is the JavaThread*, which knows its
// OSThread and that its thread id (JDK: share/classes/java/lang/Thread.java, share/runtime/osThread.hpp).
#include "threads.h"

#include <string.h>
#include <sys/uio.h>

#include "agent.h"
#include "class_events.h"
#include "record.h"
#include "ring.h"
#include "vmstructs.h"

static int64_t os_thread_at, thread_id_at;

bool threads_open(void) {
    os_thread_at = vm_offset("JavaThread", "_osthread");
    if (os_thread_at < 0) os_thread_at = vm_offset("Thread", "_osthread");
    thread_id_at = vm_offset("OSThread", "_thread_id");
    return os_thread_at >= 0 && thread_id_at >= 0;
}

static void write_start(JNIEnv *jni, jthread thread, uint32_t tid) {
    jvmtiThreadInfo info;
    memset(&info, 0, sizeof info);
    if ((*jvmti)->GetThreadInfo(jvmti, thread, &info)) return;
    struct rec_thread record = {tid, info.name ? (uint32_t)strlen(info.name) : 0};
    struct iovec parts[] = {part(&record, sizeof record), part(info.name, record.name_size)};
    ring_write_patiently(REC_THREAD_START, parts, 2);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)info.name);
    if (info.thread_group) (*jni)->DeleteLocalRef(jni, info.thread_group);
    if (info.context_class_loader) (*jni)->DeleteLocalRef(jni, info.context_class_loader);
}

void JNICALL on_thread_start(jvmtiEnv *env, JNIEnv *jni, jthread thread) {
    write_start(jni, thread, os_tid());
}

void JNICALL on_thread_end(jvmtiEnv *env, JNIEnv *jni, jthread thread) {
    class_events_thread_end();
    struct rec_thread record = {os_tid(), 0};
    struct iovec parts[] = {part(&record, sizeof record)};
    ring_write(REC_THREAD_END, parts, 1);
}

uint32_t threads_tid(uint64_t java_thread) {
    if (os_thread_at < 0 || thread_id_at < 0) return 0;
    uint64_t os_thread = java_thread ? safe_pointer((const void *)(java_thread + (uint64_t)os_thread_at)) : 0;
    uint32_t tid = 0;
    if (!os_thread || !safe_read((const void *)(os_thread + (uint64_t)thread_id_at), &tid, sizeof tid)) return 0;
    return tid;
}

void threads_write_all(JNIEnv *jni) {
    if (os_thread_at < 0 || thread_id_at < 0) return;
    jint count = 0;
    jthread *threads = NULL;
    jfieldID eetop = NULL;
    if ((*jvmti)->GetAllThreads(jvmti, &count, &threads)) return;
    for (jint i = 0; i < count; i++) {
        if (!eetop) {
            jclass type = (*jni)->GetObjectClass(jni, threads[i]);  // a field of a super class is found too
            eetop = (*jni)->GetFieldID(jni, type, "eetop", "J");
            if ((*jni)->ExceptionCheck(jni)) (*jni)->ExceptionClear(jni);
            (*jni)->DeleteLocalRef(jni, type);
        }
        if (eetop) {
            // The thread may have ended since: then its memory is gone (0), or given to another, for which the
            // THREAD_START that follows is right again.
            uint32_t tid = threads_tid((uint64_t)(*jni)->GetLongField(jni, threads[i], eetop));
            if (tid) write_start(jni, threads[i], tid);
        }
        (*jni)->DeleteLocalRef(jni, threads[i]);
    }
    (*jvmti)->Deallocate(jvmti, (unsigned char *)threads);
}
