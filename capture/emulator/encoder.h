// Intel PT packets (SDM vol. 3, chapter "Intel Processor Trace", section "Packet Generation").
//
// The sink is mapped twice in a row, or has room behind its end: a packet is written with plain stores and never
// wraps. Callers make sure that ENCODER_ROOM bytes are free (service.c). Inline, because this is the hot path.
#pragma once

#include <string.h>

#include "emulator.h"
#include "options.h"
#include "stream.h"

#define ENCODER_ROOM 512u  // more than any one block can need, PSB+ and all

enum ip_packet { IP_PGD = 0x01, IP_TIP = 0x0d, IP_PGE = 0x11, IP_FUP = 0x1d };

static inline void encoder_put(struct stream *s, uint64_t bytes, unsigned count) {
    memcpy(s->sink + (s->head & s->mask), &bytes, 8);
    s->head += count;
}

// CYC: cycles since the last one, in front of a packet that is eligible for it (every branch packet, MTC, PSB+).
// The emulated core runs at the TSC's frequency, so cycles are TSC ticks.
static inline void encoder_cyc_at(struct stream *s, uint64_t tsc) {
    if (options.cyc < 0 || tsc <= s->cyc_tsc) return;
    uint64_t cycles = tsc - s->cyc_tsc;
    uint64_t threshold = options.cyc ? 1ull << (options.cyc - 1) : 0;  // IA32_RTIT_CTL.CycThresh
    if (cycles < threshold) return;
    s->cyc_tsc = tsc;
    uint64_t bytes = (cycles & 0x1f) << 3 | 3;
    unsigned count = 1;
    cycles >>= 5;
    if (cycles) bytes |= 4;
    while (cycles) {
        bytes |= ((cycles & 0x7f) << 1 | (cycles > 0x7f)) << 8 * count++;
        cycles >>= 7;
    }
    encoder_put(s, bytes, count);
}

static inline void encoder_cyc(struct stream *s) {
    if (unlikely(options.cyc >= 0)) encoder_cyc_at(s, s->now);
}

static inline void encoder_flush_tnt_at(struct stream *s, uint64_t tsc) {
    if (!s->tnt_count) return;
    encoder_cyc_at(s, tsc);
    uint64_t bits = s->tnt | 1ull << s->tnt_count;
    if (s->tnt_count <= 6)
        encoder_put(s, bits << 1, 1);
    else
        encoder_put(s, bits << 16 | 0xa302, 8);
    s->tally->tnt_bits += s->tnt_count;
    s->tnt = s->tnt_count = 0;
}

static inline void encoder_flush_tnt(struct stream *s) {
    encoder_flush_tnt_at(s, s->now);
}

static inline void encoder_tnt(struct stream *s, bool taken) {
    s->tnt = s->tnt << 1 | taken;
    if (++s->tnt_count == (options.long_tnt ? 47 : 6)) encoder_flush_tnt(s);
}

static inline void encoder_ip(struct stream *s, enum ip_packet packet, uint64_t ip) {
    encoder_flush_tnt(s);
    encoder_cyc(s);
    uint64_t differs = ip ^ s->last_ip;
    s->last_ip = ip;
    s->tally->tips += packet != IP_FUP;
    if (differs < 1ull << 16)
        encoder_put(s, (ip & 0xffff) << 8 | packet | 1 << 5, 3);
    else if (differs < 1ull << 32)
        encoder_put(s, (ip & 0xffffffff) << 8 | packet | 2 << 5, 5);
    else
        encoder_put(s, ip << 8 | packet | 3 << 5, 7);
}

static inline void encoder_pgd_without_ip(struct stream *s) {
    encoder_flush_tnt(s);
    encoder_cyc(s);
    s->tally->tips++;
    encoder_put(s, IP_PGD, 1);
}

static inline void encoder_mode_exec(struct stream *s) {
    encoder_put(s, 0x0199, 2); /* CS.L: 64-bit */
}

static inline void encoder_tsc(struct stream *s, uint64_t tsc) {
    encoder_put(s, tsc << 8 | 0x19, 8);
}

static inline void encoder_forget_returns(struct stream *s) {
    s->returns_count = 0;
}

static inline void encoder_call(struct stream *s, uint64_t next) {
    s->returns[s->returns_top++ % RETURN_STACK] = next;
    if (s->returns_count < RETURN_STACK) s->returns_count++;
}

// A near return takes the youngest entry off, whether it is compressed or not (SDM, "Indirect Transfer Compression for
// Returns").
static inline void encoder_pop(struct stream *s) {
    if (s->returns_count) {
        s->returns_top--;
        s->returns_count--;
    }
}

// After a return that was not compressed decoders disagree: some have popped, some have not. Unless asked to be strict,
// the encoder forgets all, which is right for both (docs/emulator.md).
static inline void encoder_uncompressed(struct stream *s) {
    if (options.retcomp_strict)
        encoder_pop(s);
    else
        encoder_forget_returns(s);
}

// True: the return was compressed to a TNT bit.
static inline bool encoder_return(struct stream *s, uint64_t to) {
    if (options.retcomp && s->returns_count && s->returns[(s->returns_top - 1) % RETURN_STACK] == to) {
        encoder_pop(s);
        encoder_tnt(s, true);
        return true;
    }
    encoder_uncompressed(s);
    return false;
}

static inline void encoder_enable(struct stream *s, uint64_t ip) {
    if (s->mode_due) encoder_mode_exec(s);
    s->mode_due = false;
    encoder_ip(s, IP_PGE, ip);
    s->packet_en = true;
}

static inline void encoder_interrupt(struct stream *s, uint64_t ip) {
    encoder_ip(s, IP_FUP, ip);
    encoder_pgd_without_ip(s);
    s->packet_en = false;
}
