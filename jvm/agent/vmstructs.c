#define _GNU_SOURCE
#include "vmstructs.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *structs, *types;
static uint64_t struct_stride, type_name_at, field_name_at, is_static_at, offset_at, address_at;
static uint64_t type_stride, name_at, size_at;
static int scratch = -1;

static void *libjvm;

static uint64_t exported(const char *name) {
    const uint64_t *value = dlsym(libjvm ? libjvm : RTLD_DEFAULT, name);
    return value ? *value : 0;
}

bool vm_open(const void *inside_libjvm) {
    Dl_info info;
    if (dladdr(inside_libjvm, &info)) libjvm = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    structs = (const char *)exported("gHotSpotVMStructs");
    types = (const char *)exported("gHotSpotVMTypes");
    struct_stride = exported("gHotSpotVMStructEntryArrayStride");
    type_name_at = exported("gHotSpotVMStructEntryTypeNameOffset");
    field_name_at = exported("gHotSpotVMStructEntryFieldNameOffset");
    is_static_at = exported("gHotSpotVMStructEntryIsStaticOffset");
    offset_at = exported("gHotSpotVMStructEntryOffsetOffset");
    address_at = exported("gHotSpotVMStructEntryAddressOffset");
    type_stride = exported("gHotSpotVMTypeEntryArrayStride");
    name_at = exported("gHotSpotVMTypeEntryTypeNameOffset");
    size_at = exported("gHotSpotVMTypeEntrySizeOffset");
    if (scratch < 0) scratch = memfd_create("streamer-scratch", MFD_CLOEXEC);
    return structs && types && struct_stride && type_stride;
}

static const char *find(const char *type, const char *field) {
    if (!structs) return NULL;
    for (const char *entry = structs; *(char *const *)(entry + type_name_at); entry += struct_stride)
        if (!strcmp(*(char *const *)(entry + type_name_at), type) &&
            !strcmp(*(char *const *)(entry + field_name_at), field))
            return entry;
    return NULL;
}

int64_t vm_offset(const char *type, const char *field) {
    const char *entry = find(type, field);
    return entry && !*(const int32_t *)(entry + is_static_at) ? *(const int64_t *)(entry + offset_at) : -1;
}

const void *vm_static(const char *type, const char *field) {
    const char *entry = find(type, field);
    return entry && *(const int32_t *)(entry + is_static_at) ? *(void *const *)(entry + address_at) : NULL;
}

uint64_t vm_size(const char *type) {
    if (!types) return 0;
    for (const char *entry = types; *(char *const *)(entry + name_at); entry += type_stride)
        if (!strcmp(*(char *const *)(entry + name_at), type)) return *(const uint64_t *)(entry + size_at);
    return 0;
}

bool safe_read(const void *from, void *to, size_t size) {
    struct iovec local = {to, size}, remote = {(void *)from, size};
    ssize_t done = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (done == (ssize_t)size) return true;
    if (done >= 0 || errno == EFAULT) return false;
    // Refused (a seccomp filter) or unknown (QEMU's user mode): let write() do the reading.
    off_t at = (off_t)gettid() * 4096;  // each thread a place of its own in the sparse scratch file
    if (size > 4096 || pwrite(scratch, from, size, at) != (ssize_t)size) return false;
    return pread(scratch, to, size, at) == (ssize_t)size;
}

bool safe_string(const void *from, char *to, size_t size) {
    size_t done = 0;
    while (done + 1 < size) {
        // not over a page's end at once: the next page may not be there
        size_t chunk = 4096 - ((uintptr_t)from + done) % 4096;
        if (chunk > 64) chunk = 64;
        if (chunk > size - 1 - done) chunk = size - 1 - done;
        if (!safe_read((const char *)from + done, to + done, chunk)) break;
        if (memchr(to + done, 0, chunk)) return true;
        done += chunk;
    }
    to[done] = 0;
    return false;
}

uint64_t safe_pointer(const void *from) {
    uint64_t value = 0;
    return safe_read(from, &value, sizeof value) ? value : 0;
}
