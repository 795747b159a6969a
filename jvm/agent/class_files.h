// Class files of classes that were loaded before the agent looked, put together from JVMTI's answers.
#pragma once

#include <jvmti.h>

void JNICALL on_class_prepare(jvmtiEnv *, JNIEnv *, jthread, jclass);
void classes_write_missing(JNIEnv *jni);
