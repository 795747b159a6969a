// Classes as they are loaded.
#pragma once

#include <jvmti.h>
#include <sys/uio.h>

void JNICALL on_class_file(jvmtiEnv *, JNIEnv *, jclass, jobject, const char *, jobject, jint, const unsigned char *,
                           jint *, unsigned char **);
void JNICALL on_class_load(jvmtiEnv *, JNIEnv *, jthread, jclass);
void class_events_thread_end(void);
void class_write_definition(JNIEnv *jni, jclass klass, const char *signature, const struct iovec *data, int count);
