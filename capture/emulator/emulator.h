/* What the parts of the emulated PT share.
 *
 *   plugin.c   QEMU's callbacks, options, emulator.json
 *   flow.c     which branches happened: from blocks that ran to encoder calls
 *   signals.c  asynchronous transfers; compiled with rbp fixed, where QEMU keeps the guest's registers
 *   cpus.c     whose stream it is: guest threads on host CPUs
 *   service.c  what happens now and then: PSB+, MTC, full buffers, overflow
 *   encoder.h  packets
 *   rings.c    perf events in files
 *   range.c    the code cache; executable mappings
 *   code.c     the code as last seen, to notice changes
 *   truth.c    what really ran
 */
#ifndef EMULATOR_H
#define EMULATOR_H

#include <linux/perf_event.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <x86intrin.h>

#define PAGE 4096u
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct options {
	const char *dir;
	bool per_thread;
	uint64_t aux_size, data_size, psb_bytes; /* bytes */
	bool tsc;
	int mtc, cyc; /* −1: off */
	bool retcomp, retcomp_strict, long_tnt;
	double ovf_mb_s; /* 0: off */
	bool psb_on_code_change;
	const char *truth; /* NULL: off */
};

/* TSC → perf time, as struct perf_event_mmap_page has it. */
struct clock {
	uint32_t mult;
	uint16_t shift;
	uint64_t zero, wall_zero;
};

/* A translated block of guest code. Lives as long as the process: QEMU may still hold it. */
struct block {
	uint64_t start, last, end; /* first instruction, last instruction, behind it */
	uint64_t target;           /* of a direct branch at the end */
	uint32_t id;
	uint16_t instructions;
	uint8_t flow; /* enum flow of the last instruction */
	bool rep; /* the last instruction is a string instruction with REP: a block each iteration */
	const uint8_t *code; /* as translated; only with psb_on_code_change */
};

/* The words at COUNTERS in page 0 of a ring (docs/emulator.md). */
#define COUNTERS 2048
struct counters {
	uint64_t magic, id, written, aux_dropped, aux_full, overflows, ovf_dropped, lost, blocks, tnt_bits, tips, ended,
		psbs, refused;
};

enum stopped { RUNNING, STOPPED_AUX, STOPPED_OVF };

#define RETURN_STACK 64

/* One AUX buffer with its processor state: what a logical CPU keeps. The owner thread has it for itself (cpus.c). */
struct stream {
	/* encoder */
	uint8_t *sink; /* AUX area, mapped twice in a row, or a scratch area when stopped */
	uint64_t mask, head, limit; /* position; where service() wants to be called */
	uint64_t last_ip;
	uint64_t tnt; /* bits, oldest highest */
	unsigned tnt_count;
	bool packet_en, mode_due; /* tracing is on and inside the filter; the next PGE needs a MODE.Exec */
	unsigned returns_top, returns_count;
	uint64_t returns[RETURN_STACK];

	/* ring */
	struct perf_event_mmap_page *page;
	struct counters *counters, *tally; /* tally: where packets are counted; elsewhere when stopped */
	uint8_t *data, *aux;
	uint64_t data_mask, data_head, aux_size, committed, lost;
	size_t mapped;
	char name[48];
	uint32_t id;

	/* service */
	enum stopped stopped;
	uint64_t real_head, dropped_from; /* while the sink is the scratch area: AUX position; counted up to here */
	uint64_t next_psb, commit_tsc;    /* position; time of the last commit */
	uint64_t code_epoch;
	uint64_t now, mtc_last, cyc_tsc; /* TSC of this block; CTC >> MTCFreq of the last MTC; TSC of the last CYC */
	uint64_t ovf_time, ovf_head; /* leaky bucket: when it will be empty; position seen last */

	/* ownership */
	_Atomic(struct thread *) owner;
	atomic_flag taking; /* held while the owner changes */
	int cpu;
	uint32_t pid, tid; /* whose bytes they are, as the last switch record says */
	uint32_t maps_seen;
};

struct truth; /* truth.c */

struct thread {
	atomic_bool busy; /* in a callback, using its stream */
	bool inside;      /* the last block lay in the filter: `at` */
	struct block *at;
	struct stream *stream;
	const volatile uint32_t *cpu; /* where the kernel says this thread runs; own_cpu without rseq */
	uint32_t own_cpu;
	uint32_t tid;
	char comm[16];
	uint64_t introduced[16]; /* bit n: the ring of CPU n knows this thread */
	struct truth *truth;
};

extern struct options options;
extern struct clock clock_;
extern uint32_t process;            /* pid */
extern uint64_t filter_lo, filter_hi; /* the IP filter, [lo, hi) */
extern uint64_t ctc_num, ctc_den;
extern uint32_t cbr;
extern atomic_bool ended;           /* the process exits, or this is a forked child: write nothing */
extern atomic_uint_fast64_t unexplained;

static inline uint64_t rdtsc(void) { return __rdtsc(); }

uint64_t perf_time(uint64_t tsc);
/* Before the JVM begins: bad options; where memory is exhausted, as QEMU itself does it. */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Everything else that fails: a line on stderr; the JVM runs on, with less trace or none. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* rings.c */
struct stream *ring_open(const char *name, int cpu); /* NULL, with errno: there is none */
void ring_commit(struct stream *s, uint64_t flags, uint64_t tsc); /* AUX record, then aux_head */
void ring_switch(struct stream *s, struct thread *to, uint64_t tsc);
void ring_switch_out(struct stream *s, uint64_t tsc);
void ring_thread_starts(struct stream *s, struct thread *t, uint64_t tsc);
void ring_comm(struct stream *s, struct thread *t, uint64_t tsc);
void ring_exit(struct stream *s, struct thread *t, uint64_t tsc);
void ring_maps(struct stream *s, uint64_t tsc);
void ring_end(struct stream *s);

/* cpus.c */
extern __thread struct thread *self;
extern bool asymmetric; /* the kernel can fence other threads for us */
void cpus_init(void);
struct thread *thread_begin(void);
void thread_end(void);
void thread_renamed(void);
struct stream *stream_acquire(struct thread *t); /* t is busy; NULL: everything has ended, or its ring was refused */
extern atomic_uint_fast64_t refused;             /* rings that could not be made, each try */
void streams_end(void);
void streams_json(FILE *file);

static inline void thread_enter(struct thread *t)
{
	atomic_store_explicit(&t->busy, true, memory_order_relaxed);
	if (likely(asymmetric))
		atomic_signal_fence(memory_order_seq_cst);
	else
		atomic_thread_fence(memory_order_seq_cst);
}

static inline void thread_leave(struct thread *t) { atomic_store_explicit(&t->busy, false, memory_order_release); }

/* The stream on which t may write now; t is busy. */
static inline struct stream *stream_of(struct thread *t)
{
	struct stream *s = t->stream;
	if (likely(s && atomic_load_explicit(&s->owner, memory_order_relaxed) == t && s->cpu == (int)*t->cpu))
		return s;
	return stream_acquire(t);
}

/* service.c */
extern bool timed; /* something depends on the time at each block */
void service_init(void);
double tsc_hz(void);
void service_start(struct stream *s, uint64_t tsc);             /* tracing begins, outside the filter */
void service_switched(struct thread *t, struct stream *s, uint64_t tsc); /* t has just come */
void service_time(struct thread *t, struct stream *s);          /* before the packets of a block */
void service(struct thread *t, struct stream *s, const struct block *b, bool entering); /* `b`: is entered now */
/* Whether s can show the block in the middle of which t comes back: a PSB says that code has changed, where it has and
 * that block still stands. Only with psb_on_code_change can it be that it does not. */
bool service_shows(struct thread *t, struct stream *s);
void service_commit(struct stream *s);                          /* if it is time to */
void service_end(struct stream *s, uint64_t tsc);

/* flow.c */
void flow_inside(unsigned vcpu, void *block);
void flow_outside(uint64_t to);      /* `self` was inside and goes on at `to`, outside */
void flow_signal(uint64_t ip, bool synchronous); /* `self` was inside and is interrupted at `ip` */
void flow_taken(struct thread *t, struct stream *s, uint64_t tsc); /* t, not busy, loses the stream */

/* signals.c */
void signals_outside(unsigned vcpu, void *block);
void signals_handler(unsigned vcpu, void *block);
void signals_restorer(unsigned vcpu, void *block);
void signals_action(uint64_t action); /* rt_sigaction's second argument */
bool signals_is_handler(uint64_t address);
bool signals_is_restorer(uint64_t address);

/* range.c */
extern uint64_t guest_base;
void range_syscall(int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5,
		   uint64_t a6);
bool range_result(int64_t number, int64_t result); /* true: the filter range has just become known */
struct mapping {
	uint64_t start, size, offset, inode;
	uint32_t prot, flags, major, minor;
	char name[232];
};
uint32_t range_count(void);
const struct mapping *range_mapping(uint32_t index);

/* truth.c */
enum truth_kind { TRUTH_COME = 1, TRUTH_GO, TRUTH_STOP, TRUTH_RESUME, TRUTH_PARTIAL, TRUTH_TIME, TRUTH_PSB, TRUTH_SIGNAL };
extern atomic_bool truth_cut; /* something could not be written; after that nothing is */
void truth_init(void);
struct truth *truth_thread(uint32_t tid); /* NULL: it cannot be written */
void truth_close(struct truth *truth);
void truth_block(const struct block *b, uint64_t tsc, const uint8_t *lengths);
void truth_code(uint64_t tsc, uint64_t address, const uint8_t *bytes, uint32_t size, bool changed);
void truth_ran(struct truth *truth, const struct block *b);
void truth_mark(struct thread *t, struct stream *s, enum truth_kind kind, uint64_t tsc, uint64_t ip);
/* The same, of a thread that comes back to its last block. */
void truth_mark_resumed(struct thread *t, struct stream *s, enum truth_kind kind, uint64_t tsc, uint64_t ip);

/* code.c */
extern atomic_uint_fast64_t code_epoch; /* odd while a change is being recorded */
void code_init(void);
void code_seen(uint64_t address, const uint8_t *bytes, uint32_t size);
bool code_is_as_last_seen(const struct block *b);

#endif
