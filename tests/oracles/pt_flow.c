// libipt's decoding of a trace: packets, or executed instructions and events, one a line.
//
//   pt_flow packets TRACE
//   pt_flow flow TRACE CODE ORG FAMILY MODEL
//
// flow prints an address for each instruction ("? " before it in a transaction), [type] for each event (its number in
// enum pt_event_type), [OFFSET: error] for each error, after which it goes on at the next PSB.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-pt.h>

static uint8_t *load(const char *name, size_t *size) {
    FILE *file = fopen(name, "rb");
    uint8_t *bytes = NULL;

    if (!file || fseek(file, 0, SEEK_END) < 0) exit(2);
    *size = (size_t)ftell(file);
    rewind(file);
    bytes = malloc(*size + 1);
    if (!bytes || fread(bytes, 1, *size, file) != *size) exit(2);
    fclose(file);
    return bytes;
}

static void packets(struct pt_config *config) {
    struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(config);
    struct pt_packet packet;
    uint64_t offset;
    int status;

    if (!decoder) exit(2);
    while (pt_pkt_sync_forward(decoder) >= 0) {
        for (;;) {
            pt_pkt_get_offset(decoder, &offset);
            status = pt_pkt_next(decoder, &packet, sizeof(packet));
            if (status < 0) break;
            printf("%" PRIx64 " %d %d\n", offset, packet.type, packet.size);
        }
        if (status == -pte_eos) break;
        printf("%" PRIx64 " error\n", offset);
    }
    pt_pkt_free_decoder(decoder);
}

static int events(struct pt_insn_decoder *decoder, int status) {
    struct pt_event event;

    while (status & pts_event_pending) {
        status = pt_insn_event(decoder, &event, sizeof(event));
        if (status < 0) break;
        if (!event.status_update) printf("[%d]\n", event.type);
    }
    return status;
}

static int instructions(struct pt_insn_decoder *decoder, int status) {
    struct pt_insn insn;

    for (;;) {
        status = events(decoder, status);
        if (status < 0 || status & pts_eos) return status < 0 ? status : -pte_eos;
        memset(&insn, 0, sizeof(insn));
        status = pt_insn_next(decoder, &insn, sizeof(insn));
#if defined(LIBIPT_VERSION) && LIBIPT_VERSION >= 0x201
        if (status == -pte_event_ignored) {
            status = pts_event_pending;
            continue;
        }
        if (status < 0 && insn.iclass == ptic_unknown) return status;
#else
        if (status < 0 && insn.iclass == ptic_error) return status;
#endif
        printf("%s%016" PRIx64 "\n", insn.speculative ? "? " : "", insn.ip);
        if (status < 0) return status;
    }
}

static void flow(struct pt_config *config, const char *code, uint64_t origin) {
    struct pt_insn_decoder *decoder;
    uint64_t offset = 0;
    int status;

    decoder = pt_insn_alloc_decoder(config);
    if (!decoder || pt_image_add_file(pt_insn_get_image(decoder), code, 0, UINT64_MAX, NULL, origin) < 0) exit(2);
    for (;;) {
        status = pt_insn_sync_forward(decoder);
        if (status >= 0) status = instructions(decoder, status);
        if (status == -pte_eos) break;
        pt_insn_get_offset(decoder, &offset);
        printf("[%" PRIx64 ": error]\n", offset);
    }
    pt_insn_free_decoder(decoder);
}

int main(int argc, char **argv) {
    struct pt_config config;
    size_t size;

    pt_config_init(&config);
    if (argc < 3) return 2;
    config.begin = load(argv[2], &size);
    config.end = config.begin + size;
    if (!strcmp(argv[1], "packets")) {
        packets(&config);
        return 0;
    }
    if (argc < 7) return 2;
    if (atoi(argv[5])) {
        config.cpu.vendor = pcv_intel;
        config.cpu.family = (uint16_t)atoi(argv[5]);
        config.cpu.model = (uint8_t)atoi(argv[6]);
        pt_cpu_errata(&config.errata, &config.cpu);
    }
    flow(&config, argv[3], strtoull(argv[4], NULL, 0));
    return 0;
}
