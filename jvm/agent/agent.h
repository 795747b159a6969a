// What the parts of the agent share. Every callback runs on a thread of the JVM in native state: it may take the
// agent's own short locks, but never waits for the consumer and never calls Java.
#pragma once

#include <jvmti.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct options {
    char ring[4096];
    uint64_t size;
    bool classes;
    char text[4096];  // as given
};

// Parses "ring=PATH (or dir=DIR: DIR/jit-PID.ring),size=64m,classes=on|off"; on failure false and one line in `error`. options.c
bool options_parse(const char *text, struct options *options, char *error, size_t error_size);

extern jvmtiEnv *jvmti;
extern JavaVM *java_vm;

// names.c: methods and classes get ids, written once in each epoch before the first record that uses them.
void names_new_epoch(void);
uint32_t names_method(JNIEnv *jni, jmethodID method);  // 0 if the JVM will not tell
uint32_t names_known_method(jmethodID method);         // no call into the JVM: 0 if never seen
void names_define_class(JNIEnv *jni, jclass klass, uint32_t definition);
bool names_has_definition(JNIEnv *jni, jclass klass, const char *signature);
void names_poll_unloads(JNIEnv *jni);  // CLASS_UNLOAD of classes that are gone; a part of all classes each time
void names_forget_definitions(void);  // for a new consumer, who knows none
uint32_t names_loader(jobject loader);  // identity hash, 0: the boot loader

// code_events.c
void JNICALL on_compiled_method_load(jvmtiEnv *, jmethodID, jint, const void *, jint, const jvmtiAddrLocationMap *,
                                     const void *);
void JNICALL on_compiled_method_unload(jvmtiEnv *, jmethodID, const void *);
void JNICALL on_dynamic_code(jvmtiEnv *, const char *, const void *, jint);
void code_write_all(void);         // what there is besides nmethods: blobs and dynamic code, made disjoint
void code_write_nmethods(void);    // every nmethod
void code_poll_states(void);       // NMETHOD_STATE of those that changed
void code_write_foundation(void);  // CODE_CACHE and the interpreter

// class_events.c
void JNICALL on_class_file(jvmtiEnv *, JNIEnv *, jclass, jobject, const char *, jobject, jint, const unsigned char *,
                           jint *, unsigned char **);
void JNICALL on_class_load(jvmtiEnv *, JNIEnv *, jthread, jclass);
void class_events_thread_end(void);
void class_write_definition(JNIEnv *jni, jclass klass, const char *signature, const struct iovec *data, int count);

// class_files.c
void JNICALL on_class_prepare(jvmtiEnv *, JNIEnv *, jthread, jclass);
void classes_write_missing(JNIEnv *jni);

// threads.c
void JNICALL on_thread_start(jvmtiEnv *, JNIEnv *, jthread);
void JNICALL on_thread_end(jvmtiEnv *, JNIEnv *, jthread);
bool threads_open(void);
void threads_write_all(JNIEnv *jni);
