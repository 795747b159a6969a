// Whose stream it is: guest threads on the host's CPUs, as the host schedules them.
// QEMU tells a plugin of no context switches, but the kernel writes the CPU number into each thread's rseq area. A
// thread that finds itself on a CPU whose stream another one owns knows that the other has been switched out there, and
// takes the stream. The owner's hot path must not pay for that: it sets `busy`, checks that it still is the owner,
// writes, clears `busy`, all with plain stores. The taker makes itself the owner, then has the kernel fence every
// thread (membarrier), then waits until the former owner is not busy: after that it cannot be writing. Without
// membarrier the hot path fences itself.
//
// Per-thread streams have one owner from begin to end; only the end of the process takes them.
#define _GNU_SOURCE
#include "cpus.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "flow.h"
#include "options.h"
#include "rings.h"
#include "say.h"
#include "service.h"
#include "stream.h"
#include "truth.h"

#define CPUS_MAX 1024

__thread struct thread *self __attribute__((tls_model("initial-exec")));
bool asymmetric;
atomic_bool ended;

atomic_uint_fast64_t refused;

static struct stream *_Atomic cpu_streams[CPUS_MAX];
static atomic_uint_fast64_t cpu_next_try[CPUS_MAX];  // TSC: where the ring was refused, not at every block
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream **list;  // every stream of this run
static size_t list_count;
static struct truth **truths;
static size_t truths_count;

static void forked(void) {
    ended = true;  // in the child: the rings are the parent's
    self = NULL;
}

void cpus_init(void) {
    asymmetric = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    pthread_atfork(NULL, NULL, forked);
}

// No thread sleeps here: a thread woken by the unlock would preempt the new owner at once, find it busy, make it wait
// in its turn, and so on, a block a switch. Yielding lets the new owner have its time slice.
static void lock(struct stream *s) {
    while (atomic_flag_test_and_set_explicit(&s->taking, memory_order_acquire)) sched_yield();
}

static void unlock(struct stream *s) {
    atomic_flag_clear_explicit(&s->taking, memory_order_release);
}

// Ended, and the reader of the rings has removed its file: it will not be asked for again.
static bool is_over(const struct stream *s) {
    char path[4096];
    if (s->page) return false;
    snprintf(path, sizeof path, "%s/%s.ring", options.dir, s->name);
    return access(path, F_OK) != 0;
}

// Under list_lock.
static void forget_some(void) {
    size_t kept = 0;
    for (size_t i = 0; i < list_count; i++) {
        if (is_over(list[i])) {
            lock(list[i]);  // its thread may be on its way out still
            free(list[i]->counters);
            free(list[i]);
        } else {
            list[kept++] = list[i];
        }
    }
    list_count = kept;
}

// Under list_lock.
static void remember(struct stream *s) {
    forget_some();
    list = realloc(list, (list_count + 1) * sizeof *list);
    if (!list) die("out of memory");
    list[list_count++] = s;
}

// Counted where a consumer looks: in a ring that there is.
// Under list_lock.
static void refuse(const char *name) {
    refused++;
    for (size_t i = 0; i < list_count; i++)
        if (list[i]->page) {
            list[i]->counters->refused = refused;
            break;
        }
    if (refused == 1)
        say("cannot make %s/%s.ring: %s; what needs such a ring is not traced", options.dir, name, strerror(errno));
}

// Under list_lock.
static struct stream *make_stream(const char *name, int cpu) {
    struct stream *s = ring_open(name, cpu);
    if (!s) {
        refuse(name);
        return NULL;
    }
    service_start(s, rdtsc());
    remember(s);
    return s;
}

static struct stream *stream_here(struct thread *t) {
    if (options.per_thread) return t->stream;
    if (t->cpu == &t->own_cpu) t->own_cpu = (uint32_t)sched_getcpu();
    uint32_t cpu = *t->cpu;
    if (cpu >= CPUS_MAX) return NULL;
    struct stream *s = atomic_load(&cpu_streams[cpu]);
    if (s || rdtsc() < atomic_load_explicit(&cpu_next_try[cpu], memory_order_relaxed)) return s;
    pthread_mutex_lock(&list_lock);
    s = atomic_load(&cpu_streams[cpu]);
    if (!s && !ended) {
        char name[16];
        snprintf(name, sizeof name, "cpu%u", cpu);
        s = make_stream(name, (int)cpu);
        atomic_store(&cpu_streams[cpu], s);
        if (!s) cpu_next_try[cpu] = rdtsc() + (uint64_t)tsc_hz();
    }
    pthread_mutex_unlock(&list_lock);
    return s;
}

// Afterwards no thread but the caller, which holds the lock, uses the stream. When that was: what the former owner wrote
// meanwhile is older.
static uint64_t take(struct stream *s, struct thread *taker) {
    struct thread *former = atomic_exchange(&s->owner, taker);
    if (!former || former == taker) return rdtsc();
    if (asymmetric)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    else
        atomic_thread_fence(memory_order_seq_cst);
    while (atomic_load_explicit(&former->busy, memory_order_acquire)) sched_yield();
    uint64_t tsc = rdtsc();
    flow_taken(former, s, tsc);
    return tsc;
}

static void introduce(struct thread *t, struct stream *s, uint64_t tsc) {
    unsigned bit = s->cpu < 0 ? 0 : (unsigned)s->cpu;
    if (t->introduced[bit / 64] >> bit % 64 & 1) return;
    t->introduced[bit / 64] |= 1ull << bit % 64;
    ring_thread_starts(s, t, tsc);
}

// Gives back the stream of the CPU on which t ran before; t is not busy.
static void release(struct thread *t) {
    struct stream *s = t->stream;
    if (!s || options.per_thread) return;
    lock(s);  // or waits until a taker is done with us
    if (atomic_load(&s->owner) == t) {
        uint64_t tsc = rdtsc();
        flow_taken(t, s, tsc);
        ring_switch_out(s, tsc);
        service_left(s, tsc);
        atomic_store(&s->owner, NULL);
    }
    unlock(s);
    t->stream = NULL;
}

struct stream *stream_acquire(struct thread *t) {
    thread_leave(t);
    release(t);
    struct stream *s = ended ? NULL : stream_here(t);
    if (!s) return NULL;
    lock(s);
    if (ended) {
        unlock(s);
        return NULL;
    }
    uint64_t tsc = take(s, t);
    t->stream = s;
    thread_enter(t);
    unlock(s);

    ring_maps(s, tsc);
    introduce(t, s, tsc);
    ring_switch(s, t, tsc);
    service_switched(t, s, tsc);
    service_commit(s);
    return s;
}

struct thread *thread_begin(void) {
    if (ended) return NULL;
    struct thread *t = calloc(1, sizeof *t);
    if (!t) die("out of memory");
    t->tid = (uint32_t)syscall(SYS_gettid);
    prctl(PR_GET_NAME, t->comm);
    t->own_cpu = UINT32_MAX;
    t->cpu = &t->own_cpu;
    if (!options.per_thread && __rseq_size)
        t->cpu = &((struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset))->cpu_id;
    pthread_mutex_lock(&list_lock);
    if (options.truth) {
        t->truth = truth_thread(t->tid);
        truths = realloc(truths, (truths_count + 1) * sizeof *truths);
        if (!truths) die("out of memory");
        if (t->truth) truths[truths_count++] = t->truth;
    }
    if (options.per_thread) {
        static unsigned number;  // tids come again: so that each thread has a ring of its own
        char name[40];
        snprintf(name, sizeof name, "tid%u-%u", t->tid, ++number);
        t->stream = make_stream(name, -1);
    }
    pthread_mutex_unlock(&list_lock);
    return self = t;
}

void thread_renamed(void) {
    struct thread *t = self;
    thread_enter(t);
    struct stream *s = stream_of(t);
    if (s) {
        prctl(PR_GET_NAME, t->comm);
        ring_comm(s, t, rdtsc());
    }
    thread_leave(t);
}

void thread_end(void) {
    struct thread *t = self;
    if (!t) return;
    thread_enter(t);
    struct stream *s = stream_of(t);
    thread_leave(t);
    self = NULL;
    if (!s) return;  // everything has ended
    lock(s);
    if (atomic_load(&s->owner) == t) {
        uint64_t tsc = rdtsc();
        flow_taken(t, s, tsc);
        ring_switch_out(s, tsc);
        ring_exit(s, t, tsc);
        atomic_store(&s->owner, NULL);
        if (options.per_thread) {
            service_end(s, tsc);
            ring_end(s);
        } else {
            service_left(s, tsc);
        }
    }
    unlock(s);
    free(t);  // streams know only their owners
}

void streams_end(void) {
    static struct thread reaper;
    ended = true;
    pthread_mutex_lock(&list_lock);
    for (size_t i = 0; i < list_count; i++) {
        struct stream *s = list[i];
        lock(s);
        if (s->page) {
            uint64_t tsc = take(s, &reaper);
            service_end(s, tsc);
            ring_end(s);
        }
        unlock(s);
    }
    for (size_t i = 0; i < truths_count; i++) truth_close(truths[i]);
    pthread_mutex_unlock(&list_lock);
}

void streams_json(FILE *file) {
    pthread_mutex_lock(&list_lock);
    for (size_t i = 0; i < list_count; i++) {
        const struct counters *c = list[i]->counters;
        fprintf(file,
                "%s\n  {\"name\": \"%s\", \"id\": %lu, \"aux_head\": %lu, \"aux_dropped\": %lu, \"aux_full\": %lu, "
                "\"overflows\": %lu, \"ovf_dropped\": %lu, \"lost\": %lu, \"blocks\": %lu, \"tnt_bits\": %lu, "
                "\"tips\": %lu, \"psbs\": %lu, \"offs\": %lu, \"off_dropped\": %lu}",
                i ? "," : "", list[i]->name, c->id, c->written, c->aux_dropped, c->aux_full, c->overflows,
                c->ovf_dropped, c->lost, c->blocks, c->tnt_bits, c->tips, c->psbs, c->offs, c->off_dropped);
    }
    pthread_mutex_unlock(&list_lock);
}
