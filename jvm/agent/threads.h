// Java threads and the threads of the operating system that run them.
#pragma once

#include <jvmti.h>
#include <stdbool.h>
#include <stdint.h>

void JNICALL on_thread_start(jvmtiEnv *, JNIEnv *, jthread);
void JNICALL on_thread_end(jvmtiEnv *, JNIEnv *, jthread);
bool threads_open(void);
void threads_write_all(JNIEnv *jni);
uint32_t threads_tid(uint64_t java_thread);  // of a JavaThread; 0 if it cannot be read
