// Perf events in files: page 0, data area, AUX area, as mmap shows them (linux/perf_event.h).
//
// Only the owner of the stream writes. Heads are stored with release, tails loaded with acquire semantics. A record
// that does not fit is counted and reported by a LOST record as soon as one fits again, as the kernel does.
#define _GNU_SOURCE
#include "rings.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "cpus.h"
#include "emulator.h"
#include "options.h"
#include "range.h"
#include "say.h"
#include "stream.h"

uint32_t process;

#define MAGIC 0x31544e5543545054ull  // "TPTCUNT1"

struct sample_id {  // TID | TIME | CPU | IDENTIFIER
    uint32_t pid, tid;
    uint64_t time;
    uint32_t cpu, res;
    uint64_t id;
};

#define RECORD_MAX 512

struct record {
    struct perf_event_header header;
    uint8_t body[RECORD_MAX];
};

static void add(struct record *r, const void *bytes, size_t size) {
    memcpy((uint8_t *)r + r->header.size, bytes, size);
    r->header.size += size;
}

// Zero-terminated, padded to 8 bytes.
static void add_name(struct record *r, const char *name) {
    char padded[256] = {0};
    size_t length = strnlen(name, sizeof padded - 8);
    memcpy(padded, name, length);
    add(r, padded, (length + 8) & ~7ul);
}

static struct record record(uint32_t type, uint16_t misc) {
    struct record r;
    r.header = (struct perf_event_header){.type = type, .misc = misc, .size = sizeof r.header};
    return r;
}

static void copy_out(struct stream *s, const void *bytes, size_t size) {
    uint64_t at = s->data_head & s->data_mask, first = s->data_mask + 1 - at;
    if (first > size) first = size;
    memcpy(s->data + at, bytes, first);
    memcpy(s->data, (const uint8_t *)bytes + first, size - first);
    s->data_head += size;
}

static uint32_t cpu_of(const struct stream *s) {
    return options.per_thread ? (uint32_t)sched_getcpu() : (uint32_t)s->cpu;
}

static void finish(struct stream *s, struct record *r, uint32_t pid, uint32_t tid, uint64_t tsc) {
    struct sample_id id = {pid, tid, perf_time(tsc), cpu_of(s), 0, s->id};
    add(r, &id, sizeof id);
    uint64_t tail = __atomic_load_n(&s->page->data_tail, __ATOMIC_ACQUIRE);
    uint64_t room = s->data_mask + 1 - (s->data_head - tail);
    struct record lost = record(PERF_RECORD_LOST, 0);
    if (s->lost) {
        uint64_t body[2] = {s->id, s->lost};
        add(&lost, body, sizeof body);
        add(&lost, &id, sizeof id);
    }
    if (room < (s->lost ? lost.header.size : 0u) + r->header.size) {
        s->lost++;
        s->counters->lost++;
        return;
    }
    if (s->lost) copy_out(s, &lost, lost.header.size);
    s->lost = 0;
    copy_out(s, r, r->header.size);
    __atomic_store_n(&s->page->data_head, s->data_head, __ATOMIC_RELEASE);
}

void ring_commit(struct stream *s, uint64_t flags, uint64_t tsc) {
    uint64_t head = s->stopped ? s->real_head : s->head;
    if (head == s->committed && !flags) return;
    struct record r = record(PERF_RECORD_AUX, 0);
    uint64_t body[3] = {s->committed, head - s->committed, flags};
    add(&r, body, sizeof body);
    finish(s, &r, s->pid, s->tid, tsc);
    s->committed = head;
    s->commit_tsc = tsc;
    s->counters->written = head;
    __atomic_store_n(&s->page->aux_head, head, __ATOMIC_RELEASE);
}

static void switched(struct stream *s, uint16_t misc, uint32_t pid, uint32_t tid, uint32_t other_pid, uint32_t other,
                     uint64_t tsc) {
    struct record r = record(options.per_thread ? PERF_RECORD_SWITCH : PERF_RECORD_SWITCH_CPU_WIDE, misc);
    uint32_t body[2] = {other_pid, other};
    if (!options.per_thread) add(&r, body, sizeof body);
    finish(s, &r, pid, tid, tsc);
}

void ring_switch(struct stream *s, struct thread *to, uint64_t tsc) {
    if (!options.per_thread) switched(s, PERF_RECORD_MISC_SWITCH_OUT, s->pid, s->tid, process, to->tid, tsc);
    switched(s, 0, process, to->tid, s->pid, s->tid, tsc);
    s->pid = process;
    s->tid = to->tid;
}

void ring_switch_out(struct stream *s, uint64_t tsc)  // to the idle task
{
    switched(s, PERF_RECORD_MISC_SWITCH_OUT, s->pid, s->tid, 0, 0, tsc);
    s->pid = s->tid = 0;
}

void ring_comm(struct stream *s, struct thread *t, uint64_t tsc) {
    struct record r = record(PERF_RECORD_COMM, 0);
    uint32_t ids[2] = {process, t->tid};
    add(&r, ids, sizeof ids);
    add_name(&r, t->comm);
    finish(s, &r, process, t->tid, tsc);
}

static void task(struct stream *s, uint32_t type, struct thread *t, uint64_t tsc) {
    struct record r = record(type, 0);
    uint32_t ids[4] = {process, process, t->tid, process};  // pid, ppid, tid, ptid
    uint64_t time = perf_time(tsc);
    add(&r, ids, sizeof ids);
    add(&r, &time, sizeof time);
    finish(s, &r, process, t->tid, tsc);
}

void ring_thread_starts(struct stream *s, struct thread *t, uint64_t tsc) {
    if (t->tid != process) task(s, PERF_RECORD_FORK, t, tsc);
    ring_comm(s, t, tsc);
    struct record r = record(PERF_RECORD_ITRACE_START, 0);
    uint32_t ids[2] = {process, t->tid};
    add(&r, ids, sizeof ids);
    finish(s, &r, process, t->tid, tsc);
}

void ring_exit(struct stream *s, struct thread *t, uint64_t tsc) {
    task(s, PERF_RECORD_EXIT, t, tsc);
}

void ring_maps(struct stream *s, uint64_t tsc) {
    for (uint32_t count = range_count(); s->maps_seen < count; s->maps_seen++) {
        const struct mapping *m = range_mapping(s->maps_seen);
        struct record r = record(PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER);
        uint32_t ids[2] = {process, process};
        uint64_t where[3] = {m->start, m->size, m->offset}, inode[2] = {m->inode, 0};
        uint32_t device[2] = {m->major, m->minor}, prot[2] = {m->prot, m->flags};
        add(&r, ids, sizeof ids);
        add(&r, where, sizeof where);
        add(&r, device, sizeof device);
        add(&r, inode, sizeof inode);
        add(&r, prot, sizeof prot);
        add_name(&r, m->name);
        finish(s, &r, process, process, tsc);
    }
}

void ring_end(struct stream *s) {
    struct counters *kept = malloc(sizeof *kept);  // for emulator.json
    if (!kept) die("out of memory");
    *kept = *s->counters;
    __atomic_store_n(&s->counters->ended, 1, __ATOMIC_RELEASE);
    s->counters = s->tally = kept;
    munmap(s->page, s->mapped);
    munmap(s->aux, 2 * s->aux_size);
    s->page = NULL;
}

static struct counters *counters_of(struct stream *s) {
    return (struct counters *)((uint8_t *)s->page + COUNTERS);
}

static void page_init(struct stream *s, uint32_t id) {
    struct perf_event_mmap_page *page = s->page;
    page->cap_bit0_is_deprecated = page->cap_user_time = page->cap_user_time_zero = 1;
    page->time_mult = clock_.mult;
    page->time_shift = clock_.shift;
    page->time_zero = clock_.zero;
    page->size = offsetof(struct perf_event_mmap_page, __reserved);
    page->data_offset = PAGE;
    page->data_size = options.data_size;
    page->aux_offset = PAGE + options.data_size;
    page->aux_size = options.aux_size;
    counters_of(s)->id = id;
    counters_of(s)->magic = MAGIC;
}

// All of a ring's space is there before a byte of it is mapped: a store into a hole of a sparse file raises SIGBUS when
// the device is full, and that would be the JVM's end.
static bool reserve(int fd, uint64_t size) {
    int error;
    do error = posix_fallocate(fd, 0, (off_t)size);
    while (error == EINTR);
    errno = error;
    return !error;
}

static bool map(struct stream *s, int fd) {
    s->mapped = PAGE + options.data_size;
    s->aux_size = options.aux_size;
    s->page = mmap(NULL, s->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    s->aux = mmap(NULL, 2 * s->aux_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool good = s->page != MAP_FAILED && s->aux != MAP_FAILED;
    for (int half = 0; good && half < 2; half++)
        good = mmap(s->aux + half * s->aux_size, s->aux_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                    (off_t)s->mapped) != MAP_FAILED;
    return good;
}

static void unmap(struct stream *s) {
    if (s->page && s->page != MAP_FAILED) munmap(s->page, s->mapped);
    if (s->aux && s->aux != MAP_FAILED) munmap(s->aux, 2 * s->aux_size);
}

// Opens <dir>/<name>.ring, new or, when a tid came again, where it ended.
struct stream *ring_open(const char *name, int cpu) {
    static atomic_uint ids;
    struct stream *s = calloc(1, sizeof *s);
    char path[4096], made[4104];
    if (!s) die("out of memory");
    snprintf(path, sizeof path, "%s/%s.ring", options.dir, name);
    snprintf(made, sizeof made, "%s.new", path);
    bool fresh = access(path, F_OK) != 0;
    int fd = open(fresh ? made : path, O_RDWR | O_CLOEXEC | O_CREAT | O_NOFOLLOW, 0600);
    if (fd < 0 || !reserve(fd, PAGE + options.data_size + options.aux_size) || !map(s, fd) ||
        (fresh && (page_init(s, ids + 1), rename(made, path)))) {
        int error = errno;
        unmap(s);
        free(s);
        if (fd >= 0) close(fd);
        if (fresh) unlink(made);  // and the space that there was is free again
        errno = error;
        return NULL;
    }
    close(fd);

    s->counters = s->tally = counters_of(s);
    s->data = (uint8_t *)s->page + PAGE;
    s->data_mask = options.data_size - 1;
    s->sink = s->aux;
    s->mask = s->aux_size - 1;
    s->cpu = cpu;
    s->id = s->counters->id;
    snprintf(s->name, sizeof s->name, "%s", name);
    if (fresh) {
        ids++;
    } else {
        s->counters->ended = 0;
        s->data_head = s->page->data_head;
        s->head = s->committed = s->page->aux_head;
    }
    return s;
}
