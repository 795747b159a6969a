// Decodes a raw PT stream with libipt's block decoder, or its instruction decoder, and writes its output.
//
//   ipt_blocks TRACE CODE REGIONS OUT FILTER_LO FILTER_HI MTC CTC_NUM CTC_DEN NOM_FREQ insn|block
//
// CODE is a list of versions of code, oldest first: u64 tsc, u64 address, u32 size, u32 unused, bytes padded to 8.
// REGIONS is a list of u64 begin, end, tsc: parts of the stream, each decoded by a decoder of its own with the code as
// it was at `tsc`: the last version not younger, or the first there ever was.
// OUT gets `struct row`s. Code is handed to libipt in files behind its section cache, because its read callback and
// sections that are mapped again and again cost an order of magnitude. A region stops after more blocks than its bytes
// can mean, so that wrong code cannot make libipt walk in circles for ever.
#define _GNU_SOURCE
#include <fcntl.h>
#include <intel-pt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "insn.h"

#define SECTION 0x10000ull

enum kind { BLOCK, ENABLED, DISABLED, ASYNC_DISABLED, OVERFLOW, FAILED, TICK, OTHER, RUNAWAY };

struct row {
    uint64_t start, end;  // of a block; an event's or error's address, and the offset in the stream
    uint64_t time;
    uint32_t region;
    uint16_t count;  // instructions; an error's code
    uint8_t kind, unused;
};

struct version {
    uint64_t tsc, address;
    uint32_t size, unused;
    uint8_t code[];
};

static uint64_t lo, hi;
static uint8_t *memory;  // the code in [lo, hi) as it is now
static uint8_t *known;   // a byte each: some version has it
static uint8_t *dirty;   // a byte each section
static int file;         // each state of each section, one behind the other
static uint64_t file_size;
static char file_name[64];
static struct pt_image *image;
static struct pt_image_section_cache *cache;
static FILE *out;

static void fail(const char *what) {
    fprintf(stderr, "ipt_blocks: %s\n", what);
    exit(2);
}

static void *slurp(const char *path, size_t *size) {
    int fd = open(path, O_RDONLY);
    struct stat status;
    if (fd < 0 || fstat(fd, &status)) fail(path);
    *size = (size_t)status.st_size;
    void *bytes = *size ? mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) : malloc(1);
    if (bytes == MAP_FAILED) fail(path);
    close(fd);
    return bytes;
}

static bool outside(const struct version *v) {
    return v->address < lo || v->address + v->size > hi;
}

static void store(const struct version *v) {
    uint64_t at = v->address - lo;
    if (!memcmp(memory + at, v->code, v->size) && !memchr(known + at, 0, v->size)) return;
    memcpy(memory + at, v->code, v->size);
    memset(known + at, 1, v->size);
    for (uint64_t section = at / SECTION; section <= (at + v->size - 1) / SECTION; section++) dirty[section] = 1;
}

static const struct version *next_version(const struct version *v) {
    return (const struct version *)((const uint8_t *)v + sizeof *v + ((v->size + 7u) & ~7u));
}

// libipt refuses a file whose size or time of change is another than before: so there is room for all states from the
// start, and the time stands still.
static void publish(void) {
    static const struct timespec epoch[2];
    for (uint64_t section = 0; section <= (hi - lo) / SECTION; section++) {
        if (!dirty[section]) continue;
        dirty[section] = 0;
        uint64_t address = lo + section * SECTION, size = hi - address < SECTION ? hi - address : SECTION;
        if (pwrite(file, memory + section * SECTION, size, (off_t)file_size) != (ssize_t)size || futimens(file, epoch))
            fail("no room for the code");
        int id = pt_iscache_add_file(cache, file_name, file_size, size, address);
        file_size += SECTION;
        if (id < 0 || pt_image_add_cached(image, cache, id, NULL) < 0) fail("libipt refuses a section");
    }
}

static void emit(struct row row) {
    if (fwrite(&row, sizeof row, 1, out) != 1) fail("cannot write");
}

static void event_row(const struct pt_event *event, uint64_t offset, uint32_t region) {
    struct row row = {.end = offset, .time = event->has_tsc ? event->tsc : 0, .region = region, .kind = OTHER};
    if (event->status_update && event->type != ptev_tick) return;
    switch (event->type) {
        case ptev_enabled: row.kind = ENABLED, row.start = event->variant.enabled.ip; break;
        case ptev_disabled: row.kind = DISABLED, row.start = event->variant.disabled.ip; break;
        case ptev_async_disabled: row.kind = ASYNC_DISABLED, row.start = event->variant.async_disabled.at; break;
        case ptev_overflow: row.kind = OVERFLOW, row.start = event->variant.overflow.ip; break;
        case ptev_tick: row.kind = TICK, row.start = event->variant.tick.ip; break;
        default: row.count = (uint16_t)event->type;
    }
    emit(row);
}

static uint64_t end_of(uint64_t last) {
    struct insn insn;
    if (last < lo || last >= hi || !insn_decode(&insn, memory + (last - lo), hi - last)) return last;
    return last + insn.length;
}

// One loop for both decoders, written once for each of their types.
#define DECODE(prefix, type, unit, emit_unit)                                                             \
    static void decode_##prefix(const struct pt_config *config, uint32_t region, uint64_t base) {         \
        struct type##_decoder *decoder = prefix##_alloc_decoder(config);                                  \
        if (!decoder || prefix##_set_image(decoder, image) < 0) fail("libipt refuses the configuration"); \
        uint64_t left = 4096 + 64ull * 8 * (uint64_t)(config->end - config->begin), offset, time;         \
        int status = prefix##_sync_forward(decoder);                                                      \
        while (status >= 0 && left) {                                                                     \
            while (status >= 0 && status & pts_event_pending) {                                           \
                struct pt_event event;                                                                    \
                status = prefix##_event(decoder, &event, sizeof event);                                   \
                prefix##_get_offset(decoder, &offset);                                                    \
                if (status >= 0) event_row(&event, base + offset, region);                                \
            }                                                                                             \
            struct unit now = {0};                                                                        \
            time = 0;                                                                                     \
            if (status >= 0) { /* on to -pte_eos: the effects of the last packets come before it */       \
                status = prefix##_next(decoder, &now, sizeof now);                                        \
                prefix##_time(decoder, &time, NULL, NULL);                                                \
                left--;                                                                                   \
                emit_unit;                                                                                \
            }                                                                                             \
            if (status < 0 && status != -pte_eos) {                                                       \
                prefix##_get_offset(decoder, &offset);                                                    \
                emit((struct row){now.ip, base + offset, time, region, (uint16_t)-status, FAILED, 0});    \
                status = prefix##_sync_forward(decoder);                                                  \
            }                                                                                             \
        }                                                                                                 \
        if (!left) emit((struct row){.region = region, .kind = RUNAWAY});                                 \
        prefix##_free_decoder(decoder);                                                                   \
    }

DECODE(pt_blk, pt_block, pt_block,
       if (now.ninsn) emit((struct row){now.ip, end_of(now.end_ip), time, region, now.ninsn, BLOCK, 0}))
DECODE(pt_insn, pt_insn, pt_insn,
       if (status >= 0 || now.size) emit((struct row){now.ip, now.ip + now.size, time, region, 1, BLOCK, 0}))

int main(int argc, char **argv) {
    if (argc != 12) fail("usage: TRACE CODE REGIONS OUT FILTER_LO FILTER_HI MTC CTC_NUM CTC_DEN NOM_FREQ insn|block");
    size_t trace_size, code_size, regions_size;
    uint8_t *trace = slurp(argv[1], &trace_size);
    const uint8_t *code = slurp(argv[2], &code_size);
    const uint64_t (*regions)[3] = slurp(argv[3], &regions_size);
    out = fopen(argv[4], "wb");
    lo = strtoull(argv[5], NULL, 0);
    hi = strtoull(argv[6], NULL, 0);
    if (!out || hi <= lo || hi - lo > 1ull << 32) fail("cannot make the output, or no filter");

    memory = mmap(NULL, 2 * (hi - lo), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    known = memory + (hi - lo);
    dirty = calloc(1, (hi - lo) / SECTION + 1);
    file = memfd_create("code", 0);
    snprintf(file_name, sizeof file_name, "/proc/self/fd/%d", file);
    image = pt_image_alloc(NULL);
    cache = pt_iscache_alloc(NULL);
    if (memory == MAP_FAILED || !dirty || file < 0 || !image || !cache || pt_iscache_set_limit(cache, 1ull << 30) < 0)
        fail("out of memory");

    const struct version *begin = (const struct version *)code, *end = (const struct version *)(code + code_size);
    size_t versions = 0;
    for (const struct version *v = begin; v < end; v = next_version(v), versions++)
        if (v->size == 0 || outside(v) || (const uint8_t *)next_version(v) > code + code_size)
            fail("code outside the filter, or cut short");
    const struct version **order = malloc((versions + 1) * sizeof *order);
    versions = 0;
    for (const struct version *v = begin; v < end; v = next_version(v)) order[versions++] = v;
    for (size_t i = versions; i-- > 0;)  // the first version of each byte, to begin with
        store(order[i]);
    if (ftruncate(file, (off_t)(((hi - lo) / SECTION + 1 + 2 * versions) * SECTION))) fail("no room for the code");

    struct pt_config config;
    pt_config_init(&config);
    config.cpu.vendor = pcv_intel;
    config.cpu.family = 6;
    config.cpu.model = 142;
    pt_cpu_errata(&config.errata, &config.cpu);
    int mtc = atoi(argv[7]);
    config.mtc_freq = mtc < 0 ? 0 : (uint8_t)mtc;
    config.cpuid_0x15_ebx = (uint32_t)strtoul(argv[8], NULL, 0);
    config.cpuid_0x15_eax = (uint32_t)strtoul(argv[9], NULL, 0);
    config.nom_freq = (uint8_t)atoi(argv[10]);
    config.addr_filter.config.ctl.addr0_cfg = 1;  // IA32_RTIT_CTL.ADDR0_CFG: FilterEn
    config.addr_filter.addr0_a = lo;
    config.addr_filter.addr0_b = hi - 1;
    bool instructions = !strcmp(argv[11], "insn");
    if (!instructions) {
        config.flags.variant.block.enable_tick_events = mtc >= 0;
        config.flags.variant.block.end_on_call = 1;  // or a block is not one run of bytes
        config.flags.variant.block.end_on_jump = 1;
    }

    size_t applied = 0;
    for (size_t i = 0; i < regions_size / sizeof regions[0]; i++) {
        if (regions[i][0] > regions[i][1] || regions[i][1] > trace_size) fail("a region outside the stream");
        for (; applied < versions && order[applied]->tsc <= regions[i][2]; applied++) store(order[applied]);
        publish();
        if (regions[i][0] == regions[i][1]) continue;
        config.begin = trace + regions[i][0];
        config.end = trace + regions[i][1];
        if (instructions)
            decode_pt_insn(&config, (uint32_t)i, regions[i][0]);
        else
            decode_pt_blk(&config, (uint32_t)i, regions[i][0]);
    }
    if (fclose(out)) fail("cannot write");
    return 0;
}
