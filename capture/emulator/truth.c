// The blocks that really ran, independent of the encoder (format: docs/emulator.md; reader: truth.py).
//
//   blocks.bin       a row a translated block of the range; its number is the row's
//   lengths.bin      the lengths of the blocks' instructions, one byte each
//   code.bin         every piece of code as translated, when it was new or other than before
//   t<tid>-<n>.ran   the numbers of the blocks a thread ran, u32
//   t<tid>-<n>.marks the events between two of them
#include "truth.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "block.h"
#include "cpus.h"
#include "options.h"
#include "say.h"
#include "stream.h"

#define RAN_BUFFER 16384
#define MARKS_BUFFER 512

struct block_row {
    uint64_t start, last, end, target, tsc, lengths_at;
    uint32_t id;
    uint16_t instructions;
    uint8_t flow, rep;
};

struct mark {
    uint64_t index, tsc, ip, offset;
    uint32_t kind, stream;
};

struct truth {
    int ran_fd, marks_fd;
    uint64_t count;  // blocks that ran
    unsigned ran_used, marks_used;
    uint32_t ran[RAN_BUFFER];
    struct mark marks[MARKS_BUFFER];
};

static FILE *blocks, *lengths, *code;
static uint64_t lengths_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

atomic_bool truth_cut;

static bool cut(void) {
    if (!atomic_exchange(&truth_cut, true))
        say("the truth ends here, it cannot be written to %s: %s", options.truth, strerror(errno));
    return false;
}

static FILE *create(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", options.truth, name);
    FILE *file = fopen(path, "wbe");
    if (!file) cut();
    return file;
}

// Under `lock`.
static bool put(FILE *file, const void *bytes, size_t size) {
    return !truth_cut && (fwrite(bytes, 1, size, file) == size || cut());
}

static void write_all(int fd, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size && !truth_cut) {
        ssize_t written = write(fd, at, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
            cut();
            return;
        }
        at += written;
        size -= (size_t)written;
    }
}

void truth_init(void) {
    if (!options.truth) return;
    blocks = create("blocks.bin");
    lengths = create("lengths.bin");
    code = create("code.bin");
}

void truth_block(const struct block *b, uint64_t tsc, const uint8_t *instruction_lengths) {
    struct block_row row = {b->start,      b->last, b->end,          b->target, tsc,
                            lengths_count, b->id,   b->instructions, b->flow,   b->rep};
    pthread_mutex_lock(&lock);
    put(blocks, &row, sizeof row);
    put(lengths, instruction_lengths, b->instructions);
    lengths_count += b->instructions;
    pthread_mutex_unlock(&lock);
}

void truth_code(uint64_t tsc, uint64_t address, const uint8_t *bytes, uint32_t size, bool changed) {
    struct {
        uint64_t tsc, address;
        uint32_t size, changed;
    } header = {tsc, address, size, changed};
    static const uint8_t zeros[8];
    pthread_mutex_lock(&lock);
    put(code, &header, sizeof header);
    put(code, bytes, size);
    put(code, zeros, -size & 7);
    pthread_mutex_unlock(&lock);
}

struct truth *truth_thread(uint32_t tid) {
    static unsigned serial;
    char path[4096];
    struct truth *truth = calloc(1, sizeof *truth);
    if (!truth) die("out of memory");
    serial++;
    snprintf(path, sizeof path, "%s/t%u-%u.ran", options.truth, tid, serial);
    truth->ran_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    snprintf(path, sizeof path, "%s/t%u-%u.marks", options.truth, tid, serial);
    truth->marks_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (truth->ran_fd >= 0 && truth->marks_fd >= 0) return truth;
    cut();
    if (truth->ran_fd >= 0) close(truth->ran_fd);
    free(truth);
    return NULL;
}

static void flush_ran(struct truth *truth) {
    write_all(truth->ran_fd, truth->ran, truth->ran_used * sizeof truth->ran[0]);
    truth->ran_used = 0;
}

static void flush_marks(struct truth *truth) {
    write_all(truth->marks_fd, truth->marks, truth->marks_used * sizeof truth->marks[0]);
    truth->marks_used = 0;
}

void truth_ran(struct truth *truth, const struct block *b) {
    truth->ran[truth->ran_used++] = b->id;
    truth->count++;
    if (truth->ran_used == RAN_BUFFER) flush_ran(truth);
}

// A mark stands before block `index`: those before it have been entered, and the trace says so up to the mark.
static void mark(struct truth *truth, const struct stream *s, enum truth_kind kind, uint64_t tsc, uint64_t ip,
                 uint64_t index) {
    truth->marks[truth->marks_used++] = (struct mark){index, tsc, ip, s->stopped ? s->real_head : s->head, kind, s->id};
    if (truth->marks_used == MARKS_BUFFER) flush_marks(truth);
}

// A thread that loses or gains its stream stands before its last block, as the interrupt's FUP says.
void truth_mark(struct thread *t, struct stream *s, enum truth_kind kind, uint64_t tsc, uint64_t ip) {
    struct truth *truth = t ? t->truth : NULL;
    if (!truth) return;
    bool stands_before =
        kind == TRUTH_COME || kind == TRUTH_GO || kind == TRUTH_PARTIAL || (kind == TRUTH_STOP && !s->packet_en);
    mark(truth, s, kind, tsc, ip, truth->count - (stands_before && t->inside));
}

void truth_mark_resumed(struct thread *t, struct stream *s, enum truth_kind kind, uint64_t tsc, uint64_t ip) {
    if (t->truth) mark(t->truth, s, kind, tsc, ip, t->truth->count - 1);
}

void truth_close(struct truth *truth) {
    flush_ran(truth);
    flush_marks(truth);
    if (!truth_cut && (fflush(blocks) || fflush(lengths) || fflush(code))) cut();
}
