// QEMU's callbacks, emulator.json.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "block.h"
#include "clock.h"
#include "code.h"
#include "cpus.h"
#include "flow.h"
#include "insn.h"
#include "options.h"
#include "qemu.h"
#include "range.h"
#include "rings.h"
#include "say.h"
#include "service.h"
#include "signals.h"
#include "truth.h"

int qemu_plugin_version = 1;

static void print_json(FILE *file, bool final) {
    const char *no_yes[] = {"false", "true"};
    fprintf(file,
            "{\"version\": 1, \"state\": \"%s\", \"pid\": %u, \"per_thread\": %s,\n \"filter\": [%lu, %lu],\n"
            " \"tsc\": %s, \"mtc\": %d, \"cyc\": %d, \"ctc_num\": %lu, \"ctc_den\": %lu, \"cbr\": %u,\n"
            " \"retcomp\": %s, \"long_tnt\": %s, \"psb_kib\": %lu, \"ovf_mb_s\": %g, \"psb_on_code_change\": %s,\n"
            " \"family\": 6, \"model\": 142,\n"
            " \"clock\": {\"mult\": %u, \"shift\": %u, \"zero\": %ld, \"wall_zero\": %lu},\n"
            " \"page_size\": %u, \"sample_type\": %u, \"truth\": ",
            final ? "ended" : "running", process, no_yes[options.per_thread], filter_lo, filter_hi, no_yes[options.tsc],
            options.mtc, options.cyc, ctc_num, ctc_den, cbr, no_yes[options.retcomp], no_yes[options.long_tnt],
            options.psb_bytes >> 10, options.ovf_mb_s, no_yes[options.psb_on_code_change], clock_.mult, clock_.shift,
            (int64_t)clock_.zero, clock_.wall_zero, PAGE,
            (unsigned)(PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER));
    if (options.truth) {
        fputc('"', file);
        for (const char *c = options.truth; *c; c++)
            fprintf(file, *c == '"' || *c == '\\' ? "\\%c" : (unsigned char)*c < ' ' ? "\\u%04x" : "%c", *c);
        fputc('"', file);
    } else {
        fputs("null", file);
    }
    fprintf(file, ",\n \"truth_cut\": %s, \"unexplained\": %lu, \"refused\": %lu", no_yes[truth_cut],
            (unsigned long)unexplained, (unsigned long)refused);
    if (final) {
        fputs(",\n \"streams\": [", file);
        streams_json(file);
        fputs("]", file);
    }
    fputs("}\n", file);
}

static bool write_json(bool final) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char path[4096], made[4104];
    snprintf(path, sizeof path, "%s/emulator.json", options.dir);
    snprintf(made, sizeof made, "%s.new", path);
    pthread_mutex_lock(&lock);
    FILE *file = fopen(made, "we");
    bool good = false;
    if (file) {
        print_json(file, final);
        good = !fclose(file) && !rename(made, path);
    }
    if (!good) say("cannot write %s: %s", path, strerror(errno));
    pthread_mutex_unlock(&lock);
    return good;
}

// A trace without emulator.json explains nothing, so there is none: a range without an address in it, before any ring
// is made. The callbacks stay, for signals.c repairs faults that the JVM would fail at.
static void trace_nothing(void) {
    ended = true;
    filter_lo = filter_hi = 1;
}

// QEMU's translation, as one block. At a page's end the last instruction can be a phantom: QEMU began to read it, saw
// that it crosses into the next page, and takes it back after we have seen the part it had read.
static struct block *make_block(struct qemu_plugin_tb *tb) {
    static atomic_uint ids;
    size_t count = qemu_plugin_tb_n_insns(tb);
    struct block *b = calloc(1, sizeof *b);
    uint8_t bytes[8192], lengths[512];
    uint32_t size = 0;
    struct insn decoded = {0};
    if (!b || count > sizeof lengths) die("no memory for a block of %zu instructions", count);
    b->start = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
    for (size_t i = 0; i < count; i++) {
        const struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        size_t length = qemu_plugin_insn_size(insn);
        const uint8_t *code = qemu_plugin_insn_data(insn);
        struct insn now;
        bool known = insn_decode(&now, code, length);
        if (i == count - 1 && i > 0 && !known) break;
        decoded = now;
        b->last = qemu_plugin_insn_vaddr(insn);
        b->instructions++;
        lengths[i] = (uint8_t)length;
        memcpy(bytes + size, code, length);
        size += length;
    }
    b->end = b->start + size;
    b->flow = decoded.flow;
    b->rep = decoded.rep;
    b->target = b->end + (uint64_t)(int64_t)decoded.offset;
    b->id = ids++;
    if (options.psb_on_code_change) {
        uint8_t *copy = malloc(size);
        if (!copy) die("out of memory");
        b->code = memcpy(copy, bytes, size);
    }
    code_seen(b->start, bytes, size);
    if (options.truth) truth_block(b, rdtsc(), lengths);
    return b;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    static atomic_flag based = ATOMIC_FLAG_INIT;
    struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(tb, 0);
    uint64_t start = qemu_plugin_insn_vaddr(first);
    if (!atomic_flag_test_and_set(&based)) guest_base = (uint64_t)qemu_plugin_insn_haddr(first) - start;

    if (start >= filter_lo && start < filter_hi) {
        qemu_plugin_register_vcpu_tb_exec_cb(tb, flow_inside, QEMU_PLUGIN_CB_NO_REGS, make_block(tb));
        return;
    }
    struct block *b = calloc(1, sizeof *b);  // only where it starts matters
    if (!b) die("out of memory");
    b->start = start;
    void (*callback)(unsigned, void *) = signals_is_handler(start)    ? signals_handler
                                         : signals_is_restorer(start) ? signals_restorer
                                                                      : signals_outside;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, callback, QEMU_PLUGIN_CB_RW_REGS, b);
}

static __thread bool renames;  // this thread is in prctl(PR_SET_NAME)

static void syscall_begins(qemu_plugin_id_t id, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3,
                           uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)id, (void)vcpu, (void)a7, (void)a8;
    switch (number) {
        case SYS_mmap:
        case SYS_munmap:
        case SYS_mprotect: range_syscall(number, a1, a2, a3, a4, a5, a6); break;
        case SYS_rt_sigaction: signals_action(a2); break;
        case SYS_prctl: renames = a1 == PR_SET_NAME; break;
        case SYS_exit: thread_end(); break;
    }
    if (self && !ended) {  // it may sleep: show all that is written
        thread_enter(self);
        struct stream *s = self->stream;
        if (s && s->page && atomic_load_explicit(&s->owner, memory_order_relaxed) == self) service_commit(s);
        thread_leave(self);
    }
}

static void syscall_ends(qemu_plugin_id_t id, unsigned vcpu, int64_t number, int64_t result) {
    (void)id, (void)vcpu;
    switch (number) {
        case SYS_mmap:
        case SYS_munmap:
        case SYS_mprotect:
            if (range_result(number, result)) {
                code_init();
                if (!write_json(false)) trace_nothing();
            }
            break;
        case SYS_prctl:
            if (renames && self && !ended) thread_renamed();
            break;
    }
}

static void at_exit(qemu_plugin_id_t id, void *unused) {
    (void)id, (void)unused;
    if (ended) return;
    streams_end();
    write_json(true);
}

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    if (strcmp(info->target_name, "x86_64") || info->system_emulation)
        die("this is for the user-mode emulation of x86_64, not %s", info->target_name);
    for (int i = 0; i < argc; i++) options_take(argv[i]);
    if (!options.dir) die("option dir is missing");
    process = (uint32_t)getpid();
    clock_init();
    service_init();
    cpus_init();
    truth_init();
    if (!write_json(false)) trace_nothing();
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, syscall_begins);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, syscall_ends);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
