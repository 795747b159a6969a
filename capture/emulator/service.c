// Events that are rare: PSB+, time packets, commits, a full AUX area, overflow, and starting again after them.
//
// The hot path compares one position with one limit; everything here recomputes that limit. While a stream is
// stopped, its encoder goes on as always, but into a scratch area: so flow and state stay right, and the bytes that are
// not written are counted exactly.
#include "service.h"

#include "block.h"
#include "clock.h"
#include "code.h"
#include "cpus.h"
#include "emulator.h"
#include "encoder.h"
#include "options.h"
#include "rings.h"
#include "stream.h"
#include "truth.h"

#define CHECK_BYTES 2048      // how often the clock is looked at
#define OFF_BYTES 16          // how often it is looked whether tracing is on again
#define COMMIT_SECONDS 0.010  // AUX records as often as this at least, when something is written
#define MTC_BURST \
    64  // MTCs made up for at once; after a longer pause the core has slept: no cycles, but a TSC,
        // or decoders would lose count of the MTC's 8 bits
#define AUX_FLAG_OFF (1ull << 32)  // with PARTIAL: the trace ends here because its consumer switched it off
#define OVF_BUCKET 16384           // bytes that an emulated CPU can buffer

bool timed;
uint64_t ctc_num, ctc_den;
uint32_t cbr;

static uint8_t scratch[PAGE + 64] __attribute__((aligned(64)));  // shared: never read
static struct counters not_written;
static uint64_t commit_ticks;
static double ticks_per_byte;

void service_init(void) {
    commit_ticks = (uint64_t)(tsc_hz() * COMMIT_SECONDS);
    if (options.ovf_mb_s > 0) ticks_per_byte = tsc_hz() / (options.ovf_mb_s * 1e6);
    timed = options.mtc >= 0 || options.cyc >= 0 || options.ovf_mb_s > 0;
    double mhz = tsc_hz() / 1e6;
    cbr = (uint32_t)(mhz / 100 + 0.5);
    ctc_den = 2;  // CPUID.15H: a crystal of about 24 MHz
    ctc_num = (uint64_t)(mhz * (double)ctc_den / 24 + 0.5);
}

static uint64_t ctc_at(uint64_t tsc) {
    return (uint64_t)((__uint128_t)tsc * ctc_den / ctc_num);
}

// When the crystal clock got there.
static uint64_t tsc_at(uint64_t ctc) {
    return (uint64_t)(((__uint128_t)ctc * ctc_num + ctc_den - 1) / ctc_den);
}

static uint64_t aux_room(struct stream *s) {
    uint64_t tail = __atomic_load_n(&s->page->aux_tail, __ATOMIC_ACQUIRE);
    uint64_t head = s->stopped ? s->real_head : s->head;
    return head - tail > s->aux_size ? 0 : s->aux_size - (head - tail);
}

static void set_limit(struct stream *s) {
    if (s->stopped) {
        s->limit = s->head + (s->stopped == STOPPED_OFF ? OFF_BYTES : ENCODER_ROOM);
        return;
    }
    uint64_t room = aux_room(s), limit = s->head + CHECK_BYTES;
    uint64_t full = s->head + (room > 2 * ENCODER_ROOM ? room - 2 * ENCODER_ROOM : 0);
    uint64_t commit = s->committed + s->aux_size / 4;
    if (full < limit) limit = full;
    if (commit < limit) limit = commit;
    if (s->next_psb < limit) limit = s->next_psb;
    s->limit = limit;
}

static void put_time(struct thread *t, struct stream *s, uint64_t tsc, uint64_t ip) {
    if (!options.tsc) return;
    encoder_cyc_at(s, tsc);
    encoder_tsc(s, tsc);
    s->now = s->cyc_tsc = tsc;  // cycles count from here, also where CycThresh kept the CYC back
    if (options.mtc >= 0) {
        uint64_t ctc = ctc_at(tsc);
        encoder_put(s, 0x7302 | (ctc & 0xffff) << 16 | ((tsc - tsc_at(ctc)) & 0x1ff) << 40, 7);  // TMA
        s->mtc_last = ctc >> options.mtc;
    }
    truth_mark(t, s, TRUTH_TIME, tsc, ip);
}

// The TSC and the code epoch that belongs to it: no change lies between them. False: the code of block b, if there is
// one, has changed since b was entered; a PSB here would promise the newer bytes.
static bool tsc_of_epoch(struct stream *s, const struct block *b, uint64_t *tsc) {
    for (;;) {
        uint64_t epoch = atomic_load(&code_epoch);
        *tsc = rdtsc();
        if (epoch & 1) continue;
        if (options.psb_on_code_change && b && !code_is_as_last_seen(b)) return false;
        if (atomic_load(&code_epoch) == epoch) {
            s->code_epoch = epoch;
            return true;
        }
    }
}

typedef void marking(struct thread *t, struct stream *s, enum truth_kind kind, uint64_t tsc, uint64_t ip);

// `tsc` is that of the stream's epoch.
static void put_psb(struct thread *t, struct stream *s, uint64_t ip, uint64_t tsc, marking *mark) {
    encoder_flush_tnt(s);
    encoder_cyc_at(s, tsc);
    mark(t, s, TRUTH_PSB, tsc, ip);
    encoder_put(s, 0x8202820282028202, 8);
    encoder_put(s, 0x8202820282028202, 8);
    s->last_ip = 0;
    encoder_forget_returns(s);
    put_time(t, s, tsc, ip);
    encoder_put(s, 0x0302 | (uint64_t)cbr << 16, 4);  // CBR
    s->mode_due = !s->packet_en;
    if (s->packet_en) {
        encoder_mode_exec(s);
        s->last_ip = ip;
        encoder_put(s, ip << 8 | IP_FUP | 3 << 5, 7);
    }
    encoder_put(s, 0x2302, 2);  // PSBEND
    s->next_psb = s->head + options.psb_bytes;
    s->tally->psbs++;
}

static void to_scratch(struct stream *s, enum stopped why) {
    encoder_flush_tnt(s);
    s->stopped = why;
    s->real_head = s->dropped_from = s->head;
    s->sink = scratch;
    s->mask = PAGE - 1;
    s->tally = &not_written;
}

static void count_dropped(struct stream *s) {
    uint64_t *counter = s->stopped == STOPPED_AUX   ? &s->counters->aux_dropped
                        : s->stopped == STOPPED_OFF ? &s->counters->off_dropped
                                                    : &s->counters->ovf_dropped;
    __atomic_store_n(counter, *counter + (s->head - s->dropped_from), __ATOMIC_RELAXED);
    s->dropped_from = s->head;
}

static void from_scratch(struct stream *s) {
    count_dropped(s);
    s->stopped = RUNNING;
    s->head = s->ovf_head = s->real_head;
    s->sink = s->aux;
    s->mask = s->aux_size - 1;
    s->tally = s->counters;
    s->last_ip = 0;
    s->tnt = s->tnt_count = 0;
    encoder_forget_returns(s);
}

static bool full(struct stream *s) {
    return !s->stopped && aux_room(s) <= 2 * ENCODER_ROOM;
}

static void stop(struct stream *s, uint64_t tsc) {
    to_scratch(s, STOPPED_AUX);
    s->counters->aux_full++;
    ring_commit(s, PERF_AUX_FLAG_TRUNCATED, tsc);
}

static bool is_off(struct stream *s) {
    return __atomic_load_n(&s->counters->off, __ATOMIC_RELAXED) != 0;
}

// As the interrupt does in which the kernel disables an event.
static void switch_off(struct stream *s, uint64_t ip, uint64_t tsc) {
    if (s->packet_en) encoder_interrupt(s, ip);
    to_scratch(s, STOPPED_OFF);
    s->counters->offs++;
    ring_commit(s, PERF_AUX_FLAG_PARTIAL | AUX_FLAG_OFF, tsc);
}

// As the kernel and the hardware do when an event is enabled.
static void restart(struct thread *t, struct stream *s, uint64_t ip, uint64_t tsc) {
    bool inside = s->packet_en;
    s->packet_en = false;
    put_psb(t, s, ip, tsc, truth_mark);
    if (inside) encoder_enable(s, ip);
}

static void try_resume(struct thread *t, struct stream *s, const struct block *b, bool entering) {
    uint64_t ip = b->start;
    encoder_flush_tnt(s);
    count_dropped(s);
    uint64_t tsc = rdtsc();
    if (is_off(s)) return;
    if (s->stopped != STOPPED_OVF) {
        if (aux_room(s) < (s->aux_size / 4 > 3 * ENCODER_ROOM ? s->aux_size / 4 : 3 * ENCODER_ROOM)) return;
        if (!tsc_of_epoch(s, b, &tsc)) return;  // at the next block
        from_scratch(s);
        restart(t, s, ip, tsc);
    } else {
        if (s->ovf_time > tsc && (double)(s->ovf_time - tsc) > OVF_BUCKET / 2 * ticks_per_byte) return;
        from_scratch(s);
        encoder_put(s, 0xf302, 2);  // OVF
        s->counters->overflows++;
        put_time(t, s, tsc, ip);
        if (entering)
            encoder_enable(s, ip);
        else
            encoder_ip(s, IP_FUP, ip);
    }
    truth_mark(t, s, TRUTH_RESUME, tsc, ip);
}

void service_commit(struct stream *s) {
    uint64_t tsc = rdtsc(), head = s->stopped ? s->real_head : s->head;
    if (head != s->committed && (head - s->committed >= s->aux_size / 4 || tsc - s->commit_tsc >= commit_ticks)) {
        ring_maps(s, tsc);
        ring_commit(s, 0, tsc);
    }
    set_limit(s);
}

void service_left(struct stream *s, uint64_t tsc) {
    ring_maps(s, tsc);
    ring_commit(s, 0, tsc);
    set_limit(s);
}

void service(struct thread *t, struct stream *s, const struct block *b, bool entering) {
    if (s->stopped == STOPPED_OFF && is_off(s)) {  // often, and nothing waits to be committed
        count_dropped(s);
        set_limit(s);
        return;
    }
    if (s->stopped) try_resume(t, s, b, entering);
    uint64_t tsc = rdtsc();
    if (full(s)) {
        stop(s, tsc);
        truth_mark(t, s, TRUTH_STOP, tsc, b->start);
    }
    if (!s->stopped && is_off(s)) {
        switch_off(s, b->start, tsc);
        truth_mark(t, s, TRUTH_STOP, tsc, b->start);
    }
    if (!s->stopped &&
        (s->head >= s->next_psb || (options.psb_on_code_change && atomic_load(&code_epoch) != s->code_epoch)) &&
        tsc_of_epoch(s, b, &tsc))  // or else at the next block
        put_psb(t, s, b->start, tsc, truth_mark);
    service_commit(s);
}

bool service_shows(struct thread *t, struct stream *s) {
    const struct block *at = t->at;
    if (!options.psb_on_code_change || s->stopped) return true;
    uint64_t epoch = atomic_load(&code_epoch);
    if (epoch == s->code_epoch && code_is_as_last_seen(at) && atomic_load(&code_epoch) == epoch) return true;
    uint64_t tsc;
    if (!tsc_of_epoch(s, at, &tsc)) return false;
    put_psb(t, s, at->start, tsc, truth_mark_resumed);
    return true;
}

static void count_rate(struct thread *t, struct stream *s, uint64_t tsc) {
    if (s->stopped) return;
    if (s->ovf_time < tsc) s->ovf_time = tsc;
    s->ovf_time += (uint64_t)((double)(s->head - s->ovf_head) * ticks_per_byte);
    s->ovf_head = s->head;
    if ((double)(s->ovf_time - tsc) > OVF_BUCKET * ticks_per_byte) {
        to_scratch(s, STOPPED_OVF);
        truth_mark(t, s, TRUTH_STOP, tsc, 0);
        set_limit(s);
    }
}

// The MTCs that became due since the last look, each with the cycles up to its own time. The branches still to be
// written were before the first of them.
static void put_mtc(struct thread *t, struct stream *s, uint64_t tsc) {
    uint64_t now = ctc_at(tsc) >> options.mtc;
    if (now - s->mtc_last > MTC_BURST) {
        encoder_flush_tnt_at(s, s->cyc_tsc);
        s->cyc_tsc = tsc;
        put_time(t, s, tsc, 0);
        return;
    }
    encoder_flush_tnt_at(s, tsc_at((s->mtc_last + 1) << options.mtc));
    while (s->mtc_last != now) {
        s->mtc_last++;
        encoder_cyc_at(s, tsc_at(s->mtc_last << options.mtc));
        encoder_put(s, 0x59 | (s->mtc_last & 0xff) << 8, 2);
    }
    truth_mark(t, s, TRUTH_TIME, tsc, 0);
}

void service_time(struct thread *t, struct stream *s) {
    uint64_t tsc = s->now = rdtsc();
    if (options.mtc >= 0 && ctc_at(tsc) >> options.mtc != s->mtc_last) put_mtc(t, s, tsc);
    if (options.ovf_mb_s > 0) count_rate(t, s, tsc);
}

void service_start(struct stream *s, uint64_t tsc) {
    s->now = s->cyc_tsc = s->commit_tsc = s->ovf_time = tsc;
    s->ovf_head = s->head;
    s->last_ip = 0;
    s->packet_en = false;
    if (full(s))  // a ring used before, and not yet read
        stop(s, tsc);
    tsc_of_epoch(s, NULL, &tsc);
    put_psb(NULL, s, 0, tsc, truth_mark);
    set_limit(s);
}

void service_switched(struct thread *t, struct stream *s, uint64_t tsc) {
    encoder_forget_returns(s);
    if (full(s))
        stop(s, tsc);
    else if (!s->stopped && is_off(s))
        switch_off(s, 0, tsc);
    truth_mark(t, s, TRUTH_COME, tsc, 0);
    if (s->stopped) truth_mark(t, s, TRUTH_STOP, tsc, 0);
    put_time(t, s, tsc, 0);
}

void service_end(struct stream *s, uint64_t tsc) {
    encoder_flush_tnt(s);
    if (s->stopped) count_dropped(s);
    ring_maps(s, tsc);
    ring_commit(s, 0, tsc);
}
