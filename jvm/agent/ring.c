// Why pwritev and not a mapping of the ring: a store into a sparse mapping raises SIGBUS when the device is full, and
// a load from a code blob that vanishes raises SIGSEGV; either would end the JVM. The system call returns ENOSPC or
// EFAULT instead, and the page cache keeps it coherent with the consumer's mapping. Only the header page is mapped,
// and it is allocated before.
#define _GNU_SOURCE
#include "ring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "private.h"
#include "record.h"

__thread bool ring_replaying;

static struct {
    pthread_mutex_t lock;  // excludes writers for the length of a copy; the consumer does not know it
    int fd;
    struct ring_header *header;
    bool overflow_due;  // something was dropped since the last OVERFLOW record
} ring = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static const uint8_t zeros[8];

uint64_t clock_tsc(void) {
    return __rdtsc();
}

uint64_t clock_ns(int clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t os_tid(void) {
    static __thread uint32_t tid;
    if (!tid) tid = (uint32_t)syscall(SYS_gettid);
    return tid;
}

struct iovec part_padding(size_t size_so_far) {
    return part(zeros, -size_so_far & 7);
}

static struct ring_header *make_header(int fd, uint64_t size) {
    if (posix_fallocate(fd, 0, RING_HEADER_SIZE) || ftruncate(fd, (off_t)(RING_HEADER_SIZE + size))) return NULL;
    struct ring_header *header = mmap(NULL, RING_HEADER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED) return NULL;
    memcpy(header->magic, RING_MAGIC, sizeof header->magic);
    header->version = FORMAT_VERSION;
    header->header_size = RING_HEADER_SIZE;
    header->ring_size = size;
    header->pid = (uint32_t)getpid();
    header->state = STATE_STARTING;
    header->agent_version = AGENT_VERSION;
    header->tsc = clock_tsc();
    header->monotonic_ns = clock_ns(CLOCK_MONOTONIC);
    header->wall_ns = clock_ns(CLOCK_REALTIME);
    return header;
}

bool ring_open(const char *path, uint64_t size, char *error, size_t error_size) {
    char directory[PATH_MAX], real[PATH_MAX], whole[2 * PATH_MAX], temporary[2 * PATH_MAX + 8];
    if (snprintf(directory, sizeof directory, "%s", path) >= (int)sizeof directory) {
        snprintf(error, error_size, "path of the ring is too long");
        return false;
    }
    char *name = strrchr(directory, '/');
    *name++ = 0;
    if (!private_directory(*directory ? directory : "/", real, error, error_size)) return false;
    snprintf(whole, sizeof whole, "%s/%s", real, name);
    path = whole;
    snprintf(temporary, sizeof temporary, "%s.new", path);
    unlink(temporary);
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    struct ring_header *header = fd < 0 ? NULL : make_header(fd, size);
    if (!header || rename(temporary, path)) {
        snprintf(error, error_size, "cannot make %s: %s", path, strerror(errno));
        if (header) munmap(header, RING_HEADER_SIZE);
        if (fd >= 0) close(fd);
        unlink(temporary);
        return false;
    }
    pthread_mutex_lock(&ring.lock);
    if (ring.header) {
        __atomic_store_n(&ring.header->state, STATE_ENDED, __ATOMIC_RELEASE);
        munmap(ring.header, RING_HEADER_SIZE);
        close(ring.fd);
    }
    ring.fd = fd;
    ring.header = header;
    ring.overflow_due = false;
    pthread_mutex_unlock(&ring.lock);
    return true;
}

static enum ring_result write_at(uint64_t position, struct iovec *iov, int count, size_t size) {
    off_t at = (off_t)(RING_HEADER_SIZE + (position & (ring.header->ring_size - 1)));
    while (size) {
        ssize_t done = pwritev(ring.fd, iov, count, at);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno == EFAULT ? RING_FAULT : RING_DROPPED;
        if (done == 0) return RING_DROPPED;
        // A short write: the rest tells whether it was memory (EFAULT) or the device.
        at += done;
        size -= (size_t)done;
        while (count && (size_t)done >= iov->iov_len) {
            done -= (ssize_t)iov->iov_len;
            iov++, count--;
        }
        if (count) {
            iov->iov_base = (char *)iov->iov_base + done;
            iov->iov_len -= (size_t)done;
        }
    }
    return RING_OK;
}

// Writes one record at the head, with a PAD before it where it would wrap.
static enum ring_result append(uint32_t kind, const struct iovec *parts, int count, uint64_t tsc) {
    struct ring_header *h = ring.header;
    size_t size = sizeof(struct record_header);
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    size_t padding = -size & 7;
    size += padding;
    uint64_t tail = __atomic_load_n(&h->tail, __ATOMIC_ACQUIRE);
    uint64_t to_end = h->ring_size - (h->head & (h->ring_size - 1));
    uint64_t gap = size > to_end ? to_end : 0;
    // A consumer that writes nonsense into `tail` can make us drop, nothing worse.
    if (size > h->ring_size / 2 || h->head - tail > h->ring_size || gap + size > h->ring_size - (h->head - tail))
        return RING_DROPPED;

    if (gap) {
        struct {
            uint32_t size;
            uint16_t type, flags;
        } pad = {(uint32_t)gap, REC_PAD, 0};
        struct iovec only = part(&pad, sizeof pad);
        enum ring_result result = write_at(h->head, &only, 1, sizeof pad);
        if (result != RING_OK) return result;
    }
    struct record_header header = {
        .size = (uint32_t)size,
        .type = (uint16_t)kind,
        .flags = (uint16_t)(kind >> 16 | (ring_replaying ? FLAG_REPLAYED : 0)),
        .tsc = tsc ? tsc : clock_tsc(),
        .tid = os_tid(),
    };
    struct iovec iov[RING_PARTS + 2];
    int n = 0;
    iov[n++] = part(&header, sizeof header);
    for (int i = 0; i < count; i++)
        if (parts[i].iov_len) iov[n++] = parts[i];
    if (padding) iov[n++] = part(zeros, padding);
    enum ring_result result = write_at(h->head + gap, iov, n, size);
    if (result == RING_OK) __atomic_store_n(&h->head, h->head + gap + size, __ATOMIC_RELEASE);
    return result;
}

enum ring_result ring_write(uint32_t kind, const struct iovec *parts, int count) {
    return ring_write_as_of(0, kind, parts, count);
}

enum ring_result ring_write_as_of(uint64_t tsc, uint32_t kind, const struct iovec *parts, int count) {
    pthread_mutex_lock(&ring.lock);
    enum ring_result result = RING_DROPPED;
    struct ring_header *h = ring.header;
    if (h && h->state != STATE_ENDED) {
        if (ring.overflow_due) {
            struct rec_overflow lost = {h->dropped_records, h->dropped_bytes};
            struct iovec only = part(&lost, sizeof lost);
            ring.overflow_due = append(REC_OVERFLOW, &only, 1, 0) != RING_OK;
        }
        if (!ring.overflow_due) result = append(kind, parts, count, tsc);
        if (result == RING_DROPPED) {
            uint64_t size = sizeof(struct record_header);
            for (int i = 0; i < count; i++) size += parts[i].iov_len;
            ring.overflow_due = true;
            __atomic_store_n(&h->dropped_bytes, h->dropped_bytes + size, __ATOMIC_RELAXED);
            if ((uint16_t)kind == REC_CLASS_DEF)
                __atomic_store_n(&h->dropped_classes, h->dropped_classes + 1, __ATOMIC_RELAXED);
            __atomic_store_n(&h->dropped_records, h->dropped_records + 1, __ATOMIC_RELEASE);
        }
    }
    pthread_mutex_unlock(&ring.lock);
    return result;
}

bool ring_has_spare_room(void) {
    pthread_mutex_lock(&ring.lock);
    const struct ring_header *h = ring.header;
    bool enough =
        h && h->state != STATE_ENDED && h->head - __atomic_load_n(&h->tail, __ATOMIC_ACQUIRE) <= h->ring_size / 2;
    pthread_mutex_unlock(&ring.lock);
    return enough;
}

void ring_wait_for_room(size_t size) {
    enum { SPARE = 4096, PATIENCE_MS = 1000 };
    static uint64_t stalled_tail = UINT64_MAX;  // where the consumer stood when patience ran out
    if (!ring_replaying) return;
    uint64_t last_tail = UINT64_MAX;
    for (int waited = 0; waited < PATIENCE_MS; waited++) {
        pthread_mutex_lock(&ring.lock);
        struct ring_header *h = ring.header;
        uint64_t tail = h ? __atomic_load_n(&h->tail, __ATOMIC_ACQUIRE) : 0;
        // As much again for the PAD; a record that needs more than the whole ring so is dropped anyway, or needs none.
        uint64_t wanted = 2 * (uint64_t)size + SPARE;
        if (h && wanted > h->ring_size) wanted = h->ring_size;
        bool enough = !h || h->state == STATE_ENDED || h->ring_size - (h->head - tail) >= wanted;
        pthread_mutex_unlock(&ring.lock);
        if (enough || tail == stalled_tail) return;
        if (tail != last_tail) waited = 0;
        last_tail = tail;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    stalled_tail = last_tail;
}

enum ring_result ring_write_patiently(uint32_t kind, const struct iovec *parts, int count) {
    size_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    ring_wait_for_room(size + sizeof(struct record_header));
    return ring_write(kind, parts, count);
}

void ring_set_state(uint32_t state) {
    pthread_mutex_lock(&ring.lock);
    if (ring.header) __atomic_store_n(&ring.header->state, state, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&ring.lock);
}

uint32_t ring_replay_requested(void) {
    pthread_mutex_lock(&ring.lock);
    uint32_t number = ring.header ? __atomic_load_n(&ring.header->replay_requested, __ATOMIC_ACQUIRE) : 0;
    pthread_mutex_unlock(&ring.lock);
    return number;
}

void ring_set_replay_done(uint32_t number) {
    pthread_mutex_lock(&ring.lock);
    if (ring.header) __atomic_store_n(&ring.header->replay_done, number, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&ring.lock);
}

uint32_t ring_window(void) {
    pthread_mutex_lock(&ring.lock);
    uint32_t window = ring.header ? __atomic_load_n(&ring.header->window, __ATOMIC_ACQUIRE) : 0;
    pthread_mutex_unlock(&ring.lock);
    return window;
}

// Nobody wakes a sleeper whose ring was given up for another meanwhile: it sleeps to the end.
void ring_sleep(uint32_t seen, unsigned milliseconds) {
    struct timespec time = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L};
    pthread_mutex_lock(&ring.lock);
    uint32_t *window = ring.header ? &ring.header->window : NULL;
    pthread_mutex_unlock(&ring.lock);
    if (!window || (syscall(SYS_futex, window, FUTEX_WAIT, seen, &time, NULL, 0) && errno == EFAULT))
        nanosleep(&time, NULL);
}
