// One AUX buffer with its processor state: the state of a logical CPU.
#pragma once

#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thread;  // cpus.h

// The words at COUNTERS in page 0 of a ring (docs/emulator.md).
#define COUNTERS 2048
struct counters {
    uint64_t magic, id, written, aux_dropped, aux_full, overflows, ovf_dropped, lost, blocks, tnt_bits, tips, ended,
        psbs, refused;
    uint64_t off;  // written by the consumer: 1 as long as tracing is to be off (PERF_EVENT_IOC_DISABLE)
    uint64_t offs, off_dropped;
};

enum stopped { RUNNING, STOPPED_AUX, STOPPED_OVF, STOPPED_OFF };

#define RETURN_STACK 64

// The owner thread has it for itself (cpus.c).
struct stream {
    // encoder
    uint8_t *sink;               // AUX area, mapped twice in a row, or a scratch area when stopped
    uint64_t mask, head, limit;  // position; where service() wants to be called
    uint64_t last_ip;
    uint64_t tnt;  // bits, oldest highest
    unsigned tnt_count;
    bool packet_en, mode_due;  // tracing is on and inside the filter; the next PGE needs a MODE.Exec
    unsigned returns_top, returns_count;
    uint64_t returns[RETURN_STACK];

    // ring
    struct perf_event_mmap_page *page;
    struct counters *counters, *tally;  // tally: where packets are counted; elsewhere when stopped
    uint8_t *data, *aux;
    uint64_t data_mask, data_head, aux_size, committed, lost;
    size_t mapped;
    char name[48];
    uint32_t id;

    // service
    enum stopped stopped;
    uint64_t real_head, dropped_from;  // while the sink is the scratch area: AUX position; counted up to here
    uint64_t next_psb, commit_tsc;     // position; time of the last commit
    uint64_t code_epoch;
    uint64_t now, mtc_last, cyc_tsc;  // TSC of this block; CTC >> MTCFreq of the last MTC; TSC of the last CYC
    uint64_t ovf_time, ovf_head;      // leaky bucket: when it will be empty; position seen last

    // ownership
    _Atomic(struct thread *) owner;
    atomic_flag taking;  // held while the owner changes
    int cpu;
    uint32_t pid, tid;  // whose bytes they are, as the last switch record says
    uint32_t maps_seen;
};
