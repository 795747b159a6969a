// libipt on the same bytes, as fast as it goes: its packet decoder, or its block decoder over a cached image.
//
//   libipt packets PASSES TRACE
//   libipt blocks  PASSES IMAGE SECTIONS FILTER_LO FILTER_HI TRACE…
//
// Pass n is over trace n, and over the last once there are no more. SECTIONS is a text file of "address offset size"
// lines (hexadecimal) into IMAGE: few and large, as libipt likes them. One line a pass goes to stdout: CPU seconds,
// packets or blocks, instructions, errors. The image and its block cache live through all passes, so the first is cold
// and the rest are warm. Errors do not stop it: it goes on at the next PSB. A pass is given up (line "endless") after
// more blocks than the bytes could ever encode, since a wrong image can lead libipt round in circles.
#include <intel-pt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what, int status) {
    fprintf(stderr, "libipt: %s: %s\n", what, status < 0 ? pt_errstr(pt_errcode(status)) : "failed");
    exit(1);
}

static uint8_t *load(const char *name, size_t *size) {
    FILE *f = fopen(name, "rb");
    if (!f || fseek(f, 0, SEEK_END)) fail(name, 0);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size + 1);
    if (!data || fread(data, 1, *size, f) != *size) fail(name, 0);
    fclose(f);
    return data;
}

static void packets(struct pt_config *config) {
    uint64_t n = 0, errors = 0;
    struct pt_packet packet;
    struct pt_packet_decoder *d = pt_pkt_alloc_decoder(config);
    if (!d) fail("packet decoder", 0);
    double start = cpu_seconds();
    for (;;) {
        int status = pt_pkt_sync_forward(d);
        if (status < 0) break;
        while ((status = pt_pkt_next(d, &packet, sizeof(packet))) >= 0) n++;
        if (status == -pte_eos) break;
        errors++;
    }
    printf("%.6f %" PRIu64 " 0 %" PRIu64 "\n", cpu_seconds() - start, n, errors);
    pt_pkt_free_decoder(d);
}

static void blocks(struct pt_config *config, struct pt_image *image, size_t size) {
    uint64_t n = 0, instructions = 0, errors = 0;
    const uint64_t most = 64 * (uint64_t)size + 1000000;
    struct pt_block block;
    struct pt_event event;
    struct pt_block_decoder *d = pt_blk_alloc_decoder(config);
    if (!d) fail("block decoder", 0);
    int status = pt_blk_set_image(d, image);
    if (status < 0) fail("image", status);
    double start = cpu_seconds();
    for (;;) {
        status = pt_blk_sync_forward(d);
        if (status < 0) break;
        for (;;) {
            while (status & pts_event_pending) {
                status = pt_blk_event(d, &event, sizeof(event));
                if (status < 0) break;
            }
            if (status < 0 || (status & pts_eos)) break;
            status = pt_blk_next(d, &block, sizeof(block));
            n++;
            instructions += block.ninsn;
            if (status < 0) break;
            if (n > most) {
                puts("endless");
                exit(0);
            }
        }
        if (status == -pte_eos || (status >= 0 && (status & pts_eos))) break;
        errors++;
    }
    printf("%.6f %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", cpu_seconds() - start, n, instructions, errors);
    pt_blk_free_decoder(d);
}

int main(int argc, char **argv) {
    if (argc != 4 && argc < 8) {
        fprintf(stderr, "usage: libipt packets PASSES TRACE | blocks PASSES IMAGE SECTIONS LO HI TRACE...\n");
        return 2;
    }
    size_t size;
    struct pt_config config;
    int passes = atoi(argv[2]);

    pt_config_init(&config);
    config.errata.bdm70 = 1;
    if (argc == 4) {
        config.begin = load(argv[3], &size);
        config.end = config.begin + size;
        while (passes-- > 0) {
            packets(&config);
            fflush(stdout);
        }
        return 0;
    }
    uint64_t lo = strtoull(argv[5], NULL, 16), hi = strtoull(argv[6], NULL, 16);
    if (lo < hi) {
        config.addr_filter.config.ctl.addr0_cfg = 1;  // FilterEn
        config.addr_filter.addr0_a = lo;
        config.addr_filter.addr0_b = hi - 1;
    }
    struct pt_image_section_cache *cache = pt_iscache_alloc("benchmark");
    struct pt_image *image = pt_image_alloc("benchmark");
    if (!cache || !image) fail("image", 0);
    int status = pt_iscache_set_limit(cache, UINT64_C(4) << 30);
    if (status < 0) fail("cache limit", status);
    FILE *sections = fopen(argv[4], "r");
    if (!sections) fail(argv[4], 0);
    uint64_t address, offset, length;
    while (fscanf(sections, "%" SCNx64 " %" SCNx64 " %" SCNx64, &address, &offset, &length) == 3) {
        int isid = pt_iscache_add_file(cache, argv[3], offset, length, address);
        if (isid < 0) fail("section", isid);
        status = pt_image_add_cached(image, cache, isid, NULL);
        if (status < 0) fail("section", status);
    }
    fclose(sections);
    for (int pass = 0; pass < passes; pass++) {
        config.begin = load(argv[pass < argc - 7 ? 7 + pass : argc - 1], &size);
        config.end = config.begin + size;
        blocks(&config, image, size);
        fflush(stdout);
        free(config.begin);
    }
    pt_image_free(image);
    pt_iscache_free(cache);
    return 0;
}
