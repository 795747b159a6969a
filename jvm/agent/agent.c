// Entry points of the agent, and its own thread: it tells of the code and threads that are there at the start, and
// again on request.
//
// That thread is a daemon thread of the JVM, for GenerateEvents can only be called from one. To attach it, the VM
// itself makes a java.lang.Thread object; apart from this the agent causes no Java code to run.
#define _GNU_SOURCE
#include "agent.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "class_events.h"
#include "class_files.h"
#include "code_events.h"
#include "codecache.h"
#include "interpreter.h"
#include "mounts.h"
#include "names.h"
#include "options.h"
#include "record.h"
#include "ring.h"
#include "stacks.h"
#include "threads.h"
#include "vmstructs.h"

enum {
    POLL_MS = 50,
    STATES_EVERY = 4,  // polls
};

jvmtiEnv *jvmti;
JavaVM *java_vm;

static struct options options;
static bool late;      // loaded into a running JVM
static bool dump_due;  // attached again: tell everything anew
static bool dying;

static void write_agent_info(void) {
    char *name = NULL, *version = NULL;
    (*jvmti)->GetSystemProperty(jvmti, "java.vm.name", &name);
    (*jvmti)->GetSystemProperty(jvmti, "java.vm.version", &version);
    struct rec_agent_info record = {
        .version = AGENT_VERSION,
        .pid = (uint32_t)getpid(),
        .monotonic_ns = clock_ns(CLOCK_MONOTONIC),
        .wall_ns = clock_ns(CLOCK_REALTIME),
        .name_size = name ? (uint16_t)strlen(name) : 0,
        .vm_version_size = version ? (uint16_t)strlen(version) : 0,
        .options_size = (uint16_t)strlen(options.text),
    };
    struct iovec parts[] = {
        part(&record, sizeof record),
        part(name, record.name_size),
        part(version, record.vm_version_size),
        part(options.text, record.options_size),
    };
    ring_write_patiently(REC_AGENT_INFO, parts, 4);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)name);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)version);
}

static void write_number(uint16_t type, uint32_t number) {
    struct rec_number record = {number, 0};
    struct iovec parts[] = {part(&record, sizeof record)};
    ring_write_patiently(type, parts, 1);
}

static void replay(JNIEnv *jni, uint32_t number) {
    names_new_epoch();
    ring_replaying = true;
    write_number(REC_REPLAY_BEGIN, number);
    write_agent_info();
    code_write_foundation();
    code_write_all();
    code_write_nmethods();
    threads_write_all(jni);
    if (options.classes) classes_write_missing(jni);
    write_number(REC_REPLAY_END, number);
    ring_replaying = false;
    ring_set_replay_done(number);
}

// Tells of all from before the first event, when the agent was loaded with the JVM: blobs made before JVMTI posts any,
// the threads that start the VM, and the methods that it compiled until now. The Service Thread posts that too, but as
// late as its queue is long (JDK: runtime/serviceThread.cpp), and nothing in an event of its says since when the code
// has run.
static void write_start(JNIEnv *jni) {
    ring_replaying = true;
    code_write_all();
    code_write_nmethods();
    threads_write_all(jni);
    if (options.classes) classes_write_missing(jni);
    ring_replaying = false;
}

static uint64_t milliseconds(void) {
    return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

static void poll(JNIEnv *jni) {
    static unsigned turn;
    static uint32_t done;
    mounts_poll(jni, options.mounts);
    uint32_t requested = ring_replay_requested();
    bool due = __atomic_exchange_n(&dump_due, false, __ATOMIC_ACQ_REL);
    if (due || requested != done) {
        done = requested;
        replay(jni, requested);
    }
    if (++turn % STATES_EVERY == 0) code_poll_states();
    names_poll_unloads(jni);
}

static void *run(void *unused) {
    static char name[] = "streamer-agent";
    pthread_setname_np(pthread_self(), name);
    JavaVMAttachArgs arguments = {JNI_VERSION_1_6, name, NULL};
    JNIEnv *jni;
    if ((*java_vm)->AttachCurrentThreadAsDaemon(java_vm, (void **)&jni, &arguments) != JNI_OK) return NULL;
    ring_set_state(STATE_RUNNING);
    if (!late) write_start(jni);
    uint64_t next = 0;
    while (!__atomic_load_n(&dying, __ATOMIC_ACQUIRE)) {
        if (milliseconds() >= next) {
            poll(jni);
            next = milliseconds() + POLL_MS;
        }
        uint32_t window = ring_window();
        uint64_t wait = stacks_poll(options.stacks_ms, window), now = milliseconds();
        if (now + wait > next) wait = next > now ? next - now : 0;
        ring_sleep(window, (unsigned)wait);
    }
    for (;;) pause();  // detaching would need the VM that is going away
}

static void start_thread(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, run, NULL)) fprintf(stderr, "streamer agent: cannot start a thread\n");
    pthread_attr_destroy(&attributes);
}

static jvmtiError listen_to(jvmtiEvent event) {
    return (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, event, NULL);
}

// From here on class files are shown as they are loaded. Were the hook enabled earlier, JDK 24 and later would refuse
// an AOT cache with linked classes, and with -XX:AOTMode=on not start (JDK: cds/filemap.cpp,
// FileMapInfo::validate_aot_class_linking; JvmtiExport::should_post_class_file_load_hook). Classes from before are put
// together again (class_files.c).
static void JNICALL on_vm_init(jvmtiEnv *env, JNIEnv *jni, jthread thread) {
    if (options.classes) listen_to(JVMTI_EVENT_CLASS_FILE_LOAD_HOOK);
    mounts_poll(jni, options.mounts);
    start_thread();
}

static void JNICALL on_vm_death(jvmtiEnv *env, JNIEnv *jni) {
    __atomic_store_n(&dying, true, __ATOMIC_RELEASE);
    code_write_handlers();  // the last (of Shutdown.halt0) are too young to have been read from outside
    ring_write(REC_VM_DEATH, NULL, 0);
    ring_set_state(STATE_ENDED);
}

static bool enable(char *error, size_t error_size) {
    jvmtiCapabilities wanted = {
        .can_generate_compiled_method_load_events = 1,
        .can_generate_all_class_hook_events = options.classes,
        .can_get_bytecodes = options.classes,
        .can_get_constant_pool = options.classes,
    };
    jvmtiEventCallbacks callbacks = {
        .VMInit = on_vm_init,
        .VMDeath = on_vm_death,
        .CompiledMethodLoad = on_compiled_method_load,
        .CompiledMethodUnload = on_compiled_method_unload,
        .DynamicCodeGenerated = on_dynamic_code,
        .ThreadStart = on_thread_start,
        .ThreadEnd = on_thread_end,
        .ClassFileLoadHook = on_class_file,
        .ClassLoad = on_class_load,
        .ClassPrepare = on_class_prepare,
    };
    const jvmtiEvent events[] = {
        JVMTI_EVENT_VM_DEATH,     JVMTI_EVENT_COMPILED_METHOD_LOAD, JVMTI_EVENT_COMPILED_METHOD_UNLOAD,
        JVMTI_EVENT_THREAD_START, JVMTI_EVENT_THREAD_END,           JVMTI_EVENT_DYNAMIC_CODE_GENERATED,
        JVMTI_EVENT_VM_INIT,
    };
    const jvmtiEvent class_events[] = {
        JVMTI_EVENT_CLASS_LOAD,
        JVMTI_EVENT_CLASS_PREPARE,
    };
    jvmtiError failed = (*jvmti)->AddCapabilities(jvmti, &wanted);
    if (!failed) failed = (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks);
    for (size_t i = 0; !failed && i < sizeof events / sizeof *events; i++) failed = listen_to(events[i]);
    for (size_t i = 0; options.classes && !failed && i < sizeof class_events / sizeof *class_events; i++)
        failed = listen_to(class_events[i]);
    if (options.classes && late && !failed) failed = listen_to(JVMTI_EVENT_CLASS_FILE_LOAD_HOOK);
    if (failed) snprintf(error, error_size, "JVMTI error %d", failed);
    return !failed;
}

// The first time in this JVM.
static bool start(JavaVM *vm, char *error, size_t error_size) {
    java_vm = vm;
    if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) != JNI_OK) {
        snprintf(error, error_size, "this JVM has no JVMTI");
        return false;
    }
    bool tells = vm_open((const void *)(*vm)->GetEnv);
    tells &= codecache_open();
    tells &= interpreter_open();
    tells &= threads_open();
    tells &= stacks_open();
    if (!tells) fprintf(stderr, "streamer agent: this JVM's vmStructs are not as expected; the export lacks details\n");
    if (!ring_open(options.ring, options.size, error, error_size)) return false;
    write_agent_info();
    return enable(error, error_size);
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *text, void *reserved) {
    char error[512];
    if (options_parse(text, &options, error, sizeof error) && start(vm, error, sizeof error)) return JNI_OK;
    // A profiler that cannot work is no reason not to start.
    fprintf(stderr, "streamer agent: %s; the JVM runs without it\n", error);
    return JNI_OK;
}

static bool same_file(const char *a, const char *b) {
    struct stat left, right;
    return !stat(a, &left) && !stat(b, &right) && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

JNIEXPORT jint JNICALL Agent_OnAttach(JavaVM *vm, char *text, void *reserved) {
    char error[512];
    struct options wanted;
    bool started = jvmti != NULL;
    bool good = options_parse(text, &wanted, error, sizeof error);
    if (good && !started) {
        options = wanted;
        late = true;
        good = start(vm, error, sizeof error);
        if (!good) jvmti = NULL;
    } else if (good && !same_file(wanted.ring, options.ring)) {
        // Another session: its ring takes over, the old one ends.
        good = ring_open(wanted.ring, wanted.size, error, sizeof error);
        if (good) {
            ring_set_state(STATE_RUNNING);
            names_forget_definitions();
            names_new_epoch();
            wanted.classes = options.classes;
            options = wanted;
            write_agent_info();
        }
    }
    if (!good) {
        fprintf(stderr, "streamer agent: %s\n", error);
        return JNI_ERR;
    }
    __atomic_store_n(&dump_due, true, __ATOMIC_RELEASE);
    if (!started) start_thread();
    return JNI_OK;
}
