// Code as the JVM makes it, changes it and frees it.
#pragma once

#include <jvmti.h>

void JNICALL on_compiled_method_load(jvmtiEnv *, jmethodID, jint, const void *, jint, const jvmtiAddrLocationMap *,
                                     const void *);
void JNICALL on_compiled_method_unload(jvmtiEnv *, jmethodID, const void *);
void JNICALL on_dynamic_code(jvmtiEnv *, const char *, const void *, jint);
void code_write_all(void);         // all code besides nmethods: blobs and dynamic code, made disjoint
void code_write_nmethods(void);    // every nmethod
void code_write_handlers(void);    // the native signature handlers, as they are now
void code_poll_states(void);       // NMETHOD_STATE of nmethods whose state changed
void code_write_foundation(void);  // CODE_CACHE and the interpreter
