// Which branches happened: every block that ran names the branch at the end of the block before it.
//
// A block is entered in its callback, before its first instruction: at that point all branches up to it are in the
// encoder, and none of its own. So `at->start` is the address at which the thread stands as far as the trace says.
#include "flow.h"

#include "block.h"
#include "clock.h"
#include "code.h"
#include "cpus.h"
#include "emulator.h"
#include "encoder.h"
#include "insn.h"
#include "options.h"
#include "range.h"
#include "service.h"
#include "stream.h"
#include "truth.h"

atomic_uint_fast64_t unexplained;

static bool in_filter(uint64_t ip) {
    return ip >= filter_lo && ip < filter_hi;
}

// From the end of `from` to `to`, both inside the filter.
static inline void branch(struct stream *s, const struct block *from, uint64_t to) {
    switch (from->flow) {
        case FLOW_COND:
            if (likely(to == from->end || to == from->target)) {
                encoder_tnt(s, to == from->target);
                return;
            }
            break;
        case FLOW_NEXT:
            if (likely(to == from->end || (from->rep && to == from->last))) return;
            break;
        case FLOW_IJUMP: encoder_ip(s, IP_TIP, to); return;
        case FLOW_ICALL:
            encoder_call(s, from->end);
            encoder_ip(s, IP_TIP, to);
            return;
        case FLOW_RET:
            if (!encoder_return(s, to)) encoder_ip(s, IP_TIP, to);
            return;
        case FLOW_JUMP:
            if (likely(to == from->target)) return;
            break;
        case FLOW_CALL:
            if (likely(to == from->target)) {
                if (to != from->end)  // CALL +0 reads the instruction pointer; it is not pushed (SDM)
                    encoder_call(s, from->end);
                return;
            }
            break;
        case FLOW_FAR: encoder_ip(s, IP_TIP, to); return;
    }
    atomic_fetch_add(&unexplained, 1);  // show it as an interrupt, so that a decoder at least stays in step
    encoder_interrupt(s, from->start);
    encoder_enable(s, to);
}

// Back on a stream after another thread had it: on from where the interrupt's FUP said. False: that block's code has
// changed, and the stream may have said so, so the trace goes on behind it, as if none of it had run.
static inline bool resume(struct thread *t, struct stream *s) {
    if (likely(s->packet_en)) return true;
    if (!service_shows(t, s)) {
        truth_mark(t, s, TRUTH_PARTIAL, rdtsc(), t->at->start);
        return false;
    }
    encoder_enable(s, t->at->start);
    return true;
}

// A thread that was on its way into b when others changed and ran that code runs b for the last time. The stream may
// have said so meanwhile, or not say yet what b's bytes are: it says nothing of b (`resume` goes on behind it).
static inline bool is_old(struct thread *t, const struct block *b, uint64_t epoch) {
    if (likely(!options.psb_on_code_change || epoch == t->code_epoch)) return false;
    t->code_epoch = epoch;
    return !code_is_as_last_seen(b);
}

void flow_inside(unsigned vcpu, void *block) {
    (void)vcpu;
    struct block *b = block;
    struct thread *t = self;
    if (unlikely(!t && !(t = thread_begin()))) return;
    thread_enter(t);
    struct stream *s = stream_of(t);
    if (unlikely(!s)) {
        t->inside = false;  // where there is a stream again, it enters anew
        thread_leave(t);
        return;
    }
    if (unlikely(timed)) service_time(t, s);

    bool entering = !t->inside;
    if (entering) {
        encoder_enable(s, b->start);
        t->inside = true;
    } else if (resume(t, s)) {
        branch(s, t->at, b->start);
    } else {
        encoder_enable(s, b->start);
    }
    uint64_t epoch = options.psb_on_code_change ? atomic_load(&code_epoch) : s->code_epoch;
    if (unlikely(is_old(t, b, epoch)))
        encoder_interrupt(s, b->start);
    else if (unlikely(s->head >= s->limit || epoch != s->code_epoch))
        service(t, s, b, entering);
    t->at = b;
    s->counters->blocks++;
    if (t->truth) truth_ran(t->truth, b);
    thread_leave(t);
}

static void leave(struct thread *t, struct stream *s, uint64_t to) {
    const struct block *from = t->at;
    if (from->flow == FLOW_CALL || from->flow == FLOW_ICALL)
        encoder_call(s, from->end);
    else if (from->flow == FLOW_RET)
        encoder_uncompressed(s);
    else if (from->flow == FLOW_NEXT && to != from->end)
        atomic_fetch_add(&unexplained, 1);
    if (from->flow == FLOW_COND || from->flow == FLOW_NEXT)
        encoder_pgd_without_ip(s);
    else
        encoder_ip(s, IP_PGD, to);
    s->packet_en = false;
}

void flow_outside(uint64_t to) {
    struct thread *t = self;
    thread_enter(t);
    struct stream *s = stream_of(t);
    if (s) {
        if (timed) service_time(t, s);
        if (resume(t, s)) leave(t, s, to);
        t->inside = false;
    }
    thread_leave(t);
}

// QEMU delivers signals from outside between two blocks: `at` has run to its end and `ip` is where it led. A fault is
// at an instruction of the block; those before it have retired.
void flow_signal(uint64_t ip, bool synchronous) {
    struct thread *t = self;
    thread_enter(t);
    struct stream *s = stream_of(t);
    if (s) {
        if (timed) service_time(t, s);
        bool shown = resume(t, s);
        if (shown && synchronous && ip >= t->at->start && ip < t->at->end) {
            truth_mark(t, s, TRUTH_PARTIAL, rdtsc(), ip);
            encoder_interrupt(s, ip);
        } else if (shown && in_filter(ip)) {
            branch(s, t->at, ip);
            truth_mark(t, s, TRUTH_SIGNAL, rdtsc(), ip);
            encoder_interrupt(s, ip);
        } else if (shown) {
            leave(t, s, ip);
        }
        t->inside = false;
    }
    thread_leave(t);
}

void flow_taken(struct thread *t, struct stream *s, uint64_t tsc) {
    s->now = tsc;
    if (s->packet_en) encoder_interrupt(s, t->at->start);
    truth_mark(t, s, TRUTH_GO, tsc, 0);
}
