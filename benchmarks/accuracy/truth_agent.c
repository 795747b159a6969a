// A JVMTI agent that writes down every bytecode that the Java threads of a JVM run, from VMInit on, for a comparison
// with another way to know it. It needs -Xint -XX:-RewriteFrequentPairs: HotSpot posts SingleStep from the interpreter
// alone, once a template. Virtual threads are left out. Options: dir=/PATH (a directory, which is there),max=BYTES of
// all logs together,calls (methods that begin and end, no bytecodes).
//
// dir/methods: a line a method: its number, class (internal name), name, descriptor, with tabs between.
// dir/<n>.steps, a Java thread each: MAGIC, u32 tid, u32 length of the name, the name and a 0 if the length is odd;
// then u16 words: the bci of each instruction before it runs, and events of four words: MARK, kind, method / BASE,
// method % BASE. No bci is MARK (code has at most 65535 bytes), nor is any other word of an event.
#include <fcntl.h>
#include <jvmti.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MARK = 0xffff, BASE = 50000, WORDS = 1 << 15, SLOTS = 1 << 20 };
enum kind { IN = 1, ENTRY, EXIT, CATCH, CUT };  // steps that follow are in: this method; CUT: nothing follows

static const char MAGIC[8] = "BCSTEPS1";

struct log {
    pthread_mutex_t lock;  // the thread's own steps, and the end of the VM
    int file;
    jmethodID method;  // in which the steps are that follow; NULL: not told
    uint32_t used;
    bool over;
    struct log *next;
    uint16_t words[WORDS];
};

static jvmtiEnv *jvmti;
static char directory[4096];
static int64_t room = INT64_C(1) << 32;
static FILE *names;
static bool calls_only;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of the variables below
static struct log *logs;
static unsigned log_count;
static struct {
    jmethodID method;
} methods[SLOTS];
static uint32_t numbers[SLOTS], method_count;
static __thread struct log *own;
static __thread bool refused;

static void flush(struct log *log) {
    size_t size = log->used * sizeof *log->words;
    const char *at = (const char *)log->words;
    while (size) {
        ssize_t done = write(log->file, at, size);
        if (done <= 0) {
            log->over = true;
            break;
        }
        at += done, size -= (size_t)done;
    }
    log->used = 0;
}

static void put(struct log *log, const uint16_t *words, uint32_t count) {
    static const uint16_t cut[] = {MARK, CUT, 0, 0};
    if (log->over) return;
    if (log->used + count + 4 > WORDS) {
        flush(log);
        if (__atomic_sub_fetch(&room, WORDS * 2, __ATOMIC_RELAXED) < 0) {
            memcpy(log->words, cut, sizeof cut);
            log->used = 4;
            log->over = true;
            return;
        }
    }
    memcpy(log->words + log->used, words, count * sizeof *words);
    log->used += count;
}

static void describe(uint32_t number, jmethodID method) {
    char *name = NULL, *descriptor = NULL, *holder = NULL;
    jclass klass = NULL;
    (*jvmti)->GetMethodDeclaringClass(jvmti, method, &klass);
    if (klass) (*jvmti)->GetClassSignature(jvmti, klass, &holder, NULL);
    (*jvmti)->GetMethodName(jvmti, method, &name, &descriptor, NULL);
    int size = holder ? (int)strlen(holder) : 0;
    if (size > 2) fprintf(names, "%u\t%.*s\t%s\t%s\n", number, size - 2, holder + 1, name, descriptor);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)name);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)descriptor);
    (*jvmti)->Deallocate(jvmti, (unsigned char *)holder);
}

// From 1 on; 0: there are too many.
static uint32_t number_of(jmethodID method) {
    pthread_mutex_lock(&lock);
    size_t i = (size_t)((uint64_t)method * 0x9e3779b97f4a7c15u >> 40) & (SLOTS - 1);
    while (methods[i].method && methods[i].method != method) i = (i + 1) & (SLOTS - 1);
    if (!methods[i].method && 2 * method_count < SLOTS) {
        methods[i].method = method;
        numbers[i] = ++method_count;
        describe(method_count, method);
    }
    uint32_t found = methods[i].method ? numbers[i] : 0;
    pthread_mutex_unlock(&lock);
    return found;
}

static void event(struct log *log, enum kind kind, jmethodID method) {
    uint32_t number = number_of(method);
    put(log, (uint16_t[]){MARK, (uint16_t)kind, (uint16_t)(number / BASE), (uint16_t)(number % BASE)}, 4);
    log->method = kind == EXIT ? NULL : method;
}

static struct log *log_of(jthread thread) {
    if (own || refused) return own;
    refused = true;
    jvmtiThreadInfo info = {0};
    if ((*jvmti)->GetThreadInfo(jvmti, thread, &info)) return NULL;
    struct log *log = calloc(1, sizeof *log);
    char path[4200];
    pthread_mutex_lock(&lock);
    snprintf(path, sizeof path, "%s/%u.steps", directory, log_count++);
    pthread_mutex_unlock(&lock);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (!log || file < 0) {
        free(log);
        if (file >= 0) close(file);
        return NULL;
    }
    pthread_mutex_init(&log->lock, NULL);
    log->file = file;
    uint32_t head[2] = {(uint32_t)syscall(SYS_gettid), (uint32_t)strlen(info.name)};
    dprintf(file, "%.8s", MAGIC);
    bool whole = write(file, head, sizeof head) == sizeof head;
    whole = whole && write(file, info.name, head[1] + (head[1] & 1)) >= 0;  // the 0 behind the name fills it up
    log->over = !whole;
    (*jvmti)->Deallocate(jvmti, (unsigned char *)info.name);
    pthread_mutex_lock(&lock);
    log->next = logs;
    logs = log;
    pthread_mutex_unlock(&lock);
    refused = false;
    return own = log;
}

static void record(jthread thread, enum kind kind, jmethodID method) {
    struct log *log = log_of(thread);
    if (!log) return;
    pthread_mutex_lock(&log->lock);
    event(log, kind, method);
    pthread_mutex_unlock(&log->lock);
}

static void JNICALL on_step(jvmtiEnv *env, JNIEnv *jni, jthread thread, jmethodID method, jlocation bci) {
    struct log *log = log_of(thread);
    if (!log) return;
    pthread_mutex_lock(&log->lock);
    if (log->method != method) event(log, IN, method);
    put(log, (uint16_t[]){(uint16_t)bci}, 1);
    pthread_mutex_unlock(&log->lock);
}

static void JNICALL on_entry(jvmtiEnv *env, JNIEnv *jni, jthread thread, jmethodID method) {
    record(thread, ENTRY, method);
}

static void JNICALL on_exit_(jvmtiEnv *env, JNIEnv *jni, jthread thread, jmethodID method, jboolean popped,
                             jvalue value) {
    record(thread, EXIT, method);
}

static void JNICALL on_catch(jvmtiEnv *env, JNIEnv *jni, jthread thread, jmethodID method, jlocation bci,
                             jobject exception) {
    record(thread, CATCH, method);
}

static void close_log(struct log *log) {
    pthread_mutex_lock(&log->lock);
    if (log->file >= 0) {
        flush(log);
        close(log->file);
        log->file = -1;
    }
    log->over = true;
    pthread_mutex_unlock(&log->lock);
}

static void JNICALL on_thread_end(jvmtiEnv *env, JNIEnv *jni, jthread thread) {
    if (own) close_log(own);
    own = NULL;
    refused = true;
}

static const jvmtiEvent EVENTS[] = {JVMTI_EVENT_SINGLE_STEP, JVMTI_EVENT_METHOD_ENTRY, JVMTI_EVENT_METHOD_EXIT,
                                    JVMTI_EVENT_EXCEPTION_CATCH, JVMTI_EVENT_THREAD_END};

static void switch_events(jvmtiEventMode mode) {
    for (size_t i = 0; i < sizeof EVENTS / sizeof *EVENTS; i++)
        if (!calls_only || EVENTS[i] != JVMTI_EVENT_SINGLE_STEP)
            (*jvmti)->SetEventNotificationMode(jvmti, mode, EVENTS[i], NULL);
}

static void JNICALL on_vm_init(jvmtiEnv *env, JNIEnv *jni, jthread thread) {
    switch_events(JVMTI_ENABLE);
}

static void JNICALL on_vm_death(jvmtiEnv *env, JNIEnv *jni) {
    switch_events(JVMTI_DISABLE);
    pthread_mutex_lock(&lock);
    for (struct log *log = logs; log; log = log->next) close_log(log);
    fclose(names);
    names = fopen("/dev/null", "w");
    pthread_mutex_unlock(&lock);
}

JNIEXPORT jint JNICALL Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
    static const jvmtiEventCallbacks callbacks = {
        .SingleStep = on_step,
        .MethodEntry = on_entry,
        .MethodExit = on_exit_,
        .ExceptionCatch = on_catch,
        .ThreadEnd = on_thread_end,
        .VMInit = on_vm_init,
        .VMDeath = on_vm_death,
    };
    static const jvmtiCapabilities wanted = {
        .can_generate_single_step_events = 1,
        .can_generate_method_entry_events = 1,
        .can_generate_method_exit_events = 1,
        .can_generate_exception_events = 1,
    };
    char *saved = NULL, *copy = strdup(options ? options : "");
    for (char *word = strtok_r(copy, ",", &saved); word; word = strtok_r(NULL, ",", &saved)) {
        if (!strncmp(word, "dir=", 4)) snprintf(directory, sizeof directory, "%s", word + 4);
        if (!strncmp(word, "max=", 4)) room = strtoll(word + 4, NULL, 10);
        if (!strcmp(word, "calls")) calls_only = true;
    }
    free(copy);
    char path[4200];
    snprintf(path, sizeof path, "%s/methods", directory);
    names = *directory ? fopen(path, "wx") : NULL;
    if (!names || (*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_11) || (*jvmti)->AddCapabilities(jvmti, &wanted) ||
        (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof callbacks)) {
        fprintf(stderr, "truth agent: cannot work with '%s'\n", options ? options : "");
        return JNI_ERR;
    }
    (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_VM_INIT, NULL);
    (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_VM_DEATH, NULL);
    return JNI_OK;
}
