// Methods and classes get ids, written once in each epoch before the first record that uses them.
#pragma once

#include <jvmti.h>
#include <stdbool.h>
#include <stdint.h>

void names_new_epoch(void);
uint32_t names_epoch(void);
uint32_t names_unloads(void);                          // so far
uint32_t names_new_method(void);                       // an id for a method that the caller describes
uint32_t names_method(JNIEnv *jni, jmethodID method);  // 0 if the JVM will not tell
uint32_t names_known_method(jmethodID method);         // no call into the JVM: 0 if never seen
void names_define_class(JNIEnv *jni, jclass klass, uint32_t definition);
bool names_has_definition(JNIEnv *jni, jclass klass, const char *signature);
void names_poll_unloads(JNIEnv *jni);   // CLASS_UNLOAD of classes that are gone; a part of all classes each time
void names_forget_definitions(void);    // for a new consumer, which knows none
uint32_t names_loader(jobject loader);  // identity hash, 0: the boot loader
