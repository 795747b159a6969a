// Stacks as anchors for the trace: what a thread's frames were at some time, found from outside (stackwalk.c), without
// a safepoint, a handshake, a signal, or a lock that a thread of the JVM waits for.
//
// In each period, a thread is wanted if it has run since it was told the last time: its CPU clock says so (of one that
// did not run for some periods it is asked in each fourth alone, for thousands of clocks cost something). Of a wanted
// thread that runs Java code nothing can be told; it is looked at again every few ms until it is found in the VM or in
// native code, as most are before long. When nobody is wanted, nothing is done up to the next period. To wake up is what
// costs most here, so it is not done more often.
//
// Where tracing is on in short windows alone (a CPU budget), a period begins with each window, and ends with it. A stack
// is of use only with the trace around it, so a thread is wanted as soon as it has run within the window; and it is
// looked more often, for a window is short.
//
// The list of all JavaThreads (JDK: share/runtime/threadSMR.hpp) is made anew for each thread that comes or goes and
// the old one freed, and a JavaThread too. So both are read by calls that cannot fault, and a stack is told only if
// the JavaThread still belongs to the thread of the operating system whose id goes into the record.
#define _GNU_SOURCE
#include "stacks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "record.h"
#include "ring.h"
#include "stack_methods.h"
#include "stackwalk.h"
#include "threads.h"
#include "vmstructs.h"

enum {
    LOOK_MS = 20,
    LOOK_IN_WINDOW_MS = 5,
    MOST_A_SECOND = 50,  // of all threads: each costs its reader some 0.5 ms
    IDLE_MS = 1000,
    READ_AT_ONCE = 512,  // words
    MOST_THREADS = 1 << 16,
    MOST_REST = 3,
};

static struct {
    const void *list;  // address of ThreadsSMRSupport::_java_thread_list
    int64_t length, threads;
    bool usable;
} at;

struct thread {
    uint64_t java_thread;
    uint32_t tid;
    bool wanted;
    bool bare;           // it had no Java frames when it was looked at: one of the VM's own
    uint8_t idle, rest;  // periods in which it did not run, and for which it is not looked at yet
    uint64_t cpu;        // of the thread when it was told the last time
};

static struct {
    struct thread *all;
    unsigned count, wanted;
    unsigned left, turn;  // stacks that may yet be told in this period; the thread that is asked first
} threads;

bool stacks_open(void) {
    at.list = vm_static("ThreadsSMRSupport", "_java_thread_list");
    at.length = vm_offset("ThreadsList", "_length");
    at.threads = vm_offset("ThreadsList", "_threads");
    bool walks = stackwalk_open(), names = stack_methods_open();
    at.usable = at.list && at.length >= 0 && at.threads >= 0 && walks && names;
    return at.usable;
}

// CPU time in ns; 0 if there is no such thread. The clock of a thread of this process: linux/posix-timers_types.h.
static uint64_t cpu_of(uint32_t tid) {
    enum { SCHED = 2, PER_THREAD = 4 };
    struct timespec time;
    if (!tid || clock_gettime((clockid_t)(~tid << 3 | PER_THREAD | SCHED), &time)) return 0;
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// The list as it is now into `found`; how many, or −1.
static int read_list(uint64_t **found) {
    uint32_t length = 0;
    uint64_t list = safe_pointer(at.list);
    if (!list || !safe_read((const void *)(list + (uint64_t)at.length), &length, sizeof length)) return -1;
    uint64_t from = safe_pointer((const void *)(list + (uint64_t)at.threads));
    if (length > MOST_THREADS) return -1;
    *found = malloc(length * sizeof **found + 1);
    bool good = *found;
    for (uint32_t done = 0, n; good && done < length; done += n) {
        n = length - done < READ_AT_ONCE ? length - done : READ_AT_ONCE;
        good = safe_read((const void *)(from + done * sizeof **found), *found + done, n * sizeof **found);
    }
    if (good && safe_pointer(at.list) == list) return (int)length;
    free(*found);
    return -1;
}

// New threads are at the end of the list, and the others keep their order.
static void refresh(void) {
    uint64_t *found;
    int count = read_list(&found);
    if (count < 0) return;
    struct thread *all = calloc((size_t)count + 1, sizeof *all);
    for (unsigned i = 0, old = 0; all && i < (unsigned)count; i++) {
        unsigned same = old;
        while (same < threads.count && threads.all[same].java_thread != found[i]) same++;
        if (same < threads.count)
            all[i] = threads.all[same], old = same + 1;
        else
            all[i] = (struct thread){.java_thread = found[i]};
    }
    free(found);
    if (!all) return;
    free(threads.all);
    threads.all = all;
    threads.count = (unsigned)count;
}

static void choose(bool in_window) {
    refresh();
    threads.wanted = 0;
    for (unsigned i = 0; i < threads.count; i++) {
        struct thread *thread = &threads.all[i];
        thread->wanted = false;
        if (thread->rest && thread->rest--) continue;
        uint64_t cpu = cpu_of(thread->tid);
        if (!cpu) {  // a new one, or another at the place of one that has ended
            thread->tid = threads_tid(thread->java_thread);
            thread->cpu = 0;
            cpu = cpu_of(thread->tid);
        }
        bool ran = cpu != thread->cpu && thread->tid != os_tid();
        thread->wanted = in_window ? cpu && thread->tid != os_tid() : ran;
        if (in_window) thread->cpu = cpu;
        threads.wanted += thread->wanted;
        thread->idle = ran ? 0 : thread->idle < MOST_REST ? thread->idle + 1 : MOST_REST;
        thread->rest = thread->idle;
    }
}

// Frames up to one that cannot be named.
static int resolve(const struct walked *stack, struct rec_stack_frame *frames) {
    for (int i = 0; i < stack->count; i++) {
        const struct walked_frame *frame = &stack->frames[i];
        frames[i] = (struct rec_stack_frame){.pc = frame->pc, .bci = -1};
        if (!frame->method) continue;
        frames[i].method = stack_method(frame->method, frame->bcp, &frames[i].bci);
        if (!frames[i].method) return i;
    }
    return stack->count;
}

// False: it is to be looked at again.
static bool tell(struct thread *thread) {
    static struct walked stack;
    static struct rec_stack_frame frames[STACK_FRAMES];
    enum walk_result found = stackwalk(thread->java_thread, &stack);
    thread->bare = found == WALK_NO_FRAMES;
    if (found != WALK_DONE) return thread->bare;
    if (threads_tid(thread->java_thread) != thread->tid) return false;
    int count = resolve(&stack, frames);
    if (!count) return false;
    struct rec_stack record = {
        .tid = thread->tid,
        .frames = (uint32_t)count,
        .flags = stack.whole && count == stack.count ? STACK_WHOLE : 0,
        .before = stack.before,
    };
    struct iovec parts[] = {part(&record, sizeof record), part(frames, (size_t)count * sizeof *frames)};
    return ring_write_as_of(stack.after, REC_STACK, parts, 2) == RING_OK;
}

// Of more threads than may be told of some wait for the next period, which goes on from where this one ends. A thread
// that runs Java code just now keeps its place among them.
static void look(bool in_window) {
    unsigned first = threads.turn < threads.count ? threads.turn : 0, waiting = 0;
    for (unsigned n = 0; n < threads.count && threads.wanted; n++) {
        unsigned i = (first + n) % threads.count;
        struct thread *thread = &threads.all[i];
        if (!thread->wanted || (!thread->bare && waiting == threads.left)) continue;
        uint64_t cpu = cpu_of(thread->tid);
        if (in_window && cpu == thread->cpu) continue;
        if (cpu && !tell(thread)) {
            waiting++;
            continue;
        }
        thread->cpu = cpu;
        thread->wanted = false;
        threads.wanted--;
        if (cpu && !thread->bare && !--threads.left) {
            threads.turn = i + 1;
            threads.wanted = 0;
        }
    }
}

unsigned stacks_poll(unsigned period, uint32_t window) {
    static uint64_t next, last;
    static uint32_t seen;
    if (!at.usable || !period) return IDLE_MS;
    bool off = window && !(window & 1), begins = window != seen;
    seen = window;
    if (off) {
        threads.wanted = 0;
        return IDLE_MS;
    }
    uint64_t now = clock_ns(CLOCK_MONOTONIC) / 1000000;
    if (begins || now >= next || next > now + period) {
        uint64_t passed = now - last;
        last = now;
        next = now + period;
        choose(window);
        threads.left = (unsigned)(MOST_A_SECOND * (passed < 1000 ? passed : 1000) / 1000);
        if (!threads.left) threads.left = 1;
    }
    if (threads.wanted && ring_has_spare_room()) look(window);
    unsigned look_ms = window ? LOOK_IN_WINDOW_MS : LOOK_MS;
    uint64_t rest = next > now ? next - now : 1;
    return threads.wanted && rest > look_ms ? look_ms : (unsigned)rest;
}
