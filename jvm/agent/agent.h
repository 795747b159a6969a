// The JVM that the agent is loaded into. Every callback runs on a thread of the JVM in native state: it may take the
// agent's own short locks, but never waits for the consumer and never calls Java.
#pragma once

#include <jvmti.h>

extern jvmtiEnv *jvmti;
extern JavaVM *java_vm;
