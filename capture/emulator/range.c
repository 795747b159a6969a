// Which addresses are traced: HotSpot reserves its code cache in one piece without access and commits parts of it
// readable, writable and executable. So the filter is the inaccessible mapping in which the guest first maps such
// memory (ReservedCodeSpace in OpenJDK's memory/virtualspace.cpp; the parts that alignment cuts off are unmapped at
// once).
//
// Executable mappings are kept, too: for MMAP2 records.
#define _GNU_SOURCE
#include "range.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cpus.h"
#include "emulator.h"

#define RESERVED_MAX 4096
#define MAPPINGS_MAX 4096

uint64_t filter_lo, filter_hi;
uint64_t guest_base;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint64_t start, end;
} reserved[RESERVED_MAX];
static unsigned reserved_count;
static struct mapping mappings[MAPPINGS_MAX];
static atomic_uint mappings_count;

// mmap's arguments, until its result is known: a system call returns on the thread that made it
static __thread struct {
    uint64_t address, size, prot, flags, offset;
    int64_t fd;
} asked;

uint32_t range_count(void) {
    return atomic_load_explicit(&mappings_count, memory_order_acquire);
}

const struct mapping *range_mapping(uint32_t index) {
    return &mappings[index];
}

static void unreserve(uint64_t start, uint64_t end) {
    for (unsigned i = 0, count = reserved_count; i < count; i++) {
        if (reserved[i].end <= start || reserved[i].start >= end) continue;
        uint64_t behind = reserved[i].end;
        if (reserved[i].start < start) {
            reserved[i].end = start;
            if (behind > end && reserved_count < RESERVED_MAX) {
                reserved[reserved_count].start = end;
                reserved[reserved_count++].end = behind;
            }
        } else {
            reserved[i].start = end < behind ? end : behind;
        }
    }
}

static void reserve(uint64_t start, uint64_t end) {
    unreserve(start, end);
    for (unsigned i = 0; i < reserved_count; i++)
        if (reserved[i].start == reserved[i].end) {
            reserved[i].start = start;
            reserved[i].end = end;
            return;
        }
    if (reserved_count < RESERVED_MAX) {
        reserved[reserved_count].start = start;
        reserved[reserved_count++].end = end;
    }
}

static bool find_filter(uint64_t start, uint64_t end) {
    if (filter_hi) return false;
    for (unsigned i = 0; i < reserved_count; i++)
        if (reserved[i].start <= start && end <= reserved[i].end) {
            filter_lo = reserved[i].start;
            filter_hi = reserved[i].end;
            return true;
        }
    return false;
}

static void add_mapping(uint64_t start, uint64_t size, uint64_t offset) {
    unsigned count = mappings_count;
    if (count == MAPPINGS_MAX) return;
    struct mapping *m = &mappings[count];
    struct stat file;
    char link[64];
    *m = (struct mapping){.start = start, .size = size, .offset = offset, .prot = asked.prot, .flags = asked.flags};
    if (asked.flags & MAP_ANONYMOUS || fstat(asked.fd, &file)) {
        strcpy(m->name, "//anon");
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", (int)asked.fd);
        ssize_t length = readlink(link, m->name, sizeof m->name - 1);
        m->name[length > 0 ? length : 0] = 0;
        m->inode = file.st_ino;
        m->major = major(file.st_dev);
        m->minor = minor(file.st_dev);
    }
    atomic_store_explicit(&mappings_count, count + 1, memory_order_release);
}

void range_syscall(int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6) {
    asked.address = a1;
    asked.size = a2;
    asked.prot = a3;
    if (number == SYS_mmap) {
        asked.flags = a4;
        asked.fd = (int)a5;
        asked.offset = a6;
    }
}

bool range_result(int64_t number, int64_t result) {
    bool found = false;
    if (result < 0 && result > -4096) return false;
    uint64_t start = number == SYS_mmap ? (uint64_t)result : asked.address;
    uint64_t size = (asked.size + PAGE - 1) & -(uint64_t)PAGE, end = start + size;
    const uint64_t all = PROT_READ | PROT_WRITE | PROT_EXEC;

    pthread_mutex_lock(&lock);
    if (number == SYS_munmap)
        unreserve(start, end);
    else if (number == SYS_mmap && asked.prot == PROT_NONE)
        reserve(start, end);
    else if ((asked.prot & all) == all)
        found = find_filter(start, end);
    if (found)
        add_mapping(filter_lo, filter_hi - filter_lo, 0);
    else if (number == SYS_mmap && asked.prot & PROT_EXEC)
        add_mapping(start, size, asked.offset);
    pthread_mutex_unlock(&lock);
    return found;
}
