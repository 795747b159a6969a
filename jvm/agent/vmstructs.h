// HotSpot's description of its own data structures: the table gHotSpotVMStructs, exported for the serviceability agent
// (JDK: src/hotspot/share/runtime/vmStructs.hpp). Offsets come from the running VM, so one agent fits every JDK.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Finds the table in the library that holds the function `inside_libjvm`. False if the VM exports none.
bool vm_open(const void *inside_libjvm);

// Offset of a non-static field, or −1.
int64_t vm_offset(const char *type, const char *field);
// Address of a static field, or NULL.
const void *vm_static(const char *type, const char *field);
// sizeof(type), or 0.
uint64_t vm_size(const char *type);

// Copies `size` bytes of this process into `to`; false if any of them cannot be read. Never faults.
bool safe_read(const void *from, void *to, size_t size);
// A C string of at most `size` − 1 bytes, always terminated; false if it cannot be read or does not end.
bool safe_string(const void *from, char *to, size_t size);
uint64_t safe_pointer(const void *from);  // 0 if it cannot be read
