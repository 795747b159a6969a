// Tells which virtual thread goes on on a carrier: each mount, in JDK 21 and later.
#pragma once

#include <jvmti.h>

// Takes up or stops the telling, as the option says: at most so many mounts a second (0: none). To be called once when
// the VM is there, and then now and then by the agent's own thread alone.
void mounts_poll(JNIEnv *jni, unsigned most_a_second);
