// libxdc on the same bytes, as fast as it goes: every edge told to a callback, or its own bitmap of edges, for which it
// remembers the targets of TNT bits.
//
//   libxdc LIBRARY edges|bitmap PASSES IMAGE SECTIONS FILTER_LO FILTER_HI TRACE…
//
// LIBRARY is a libxdc.so; IMAGE and SECTIONS are as for libipt.c. Pass n is over trace n, and over the last once there
// are no more. One line a pass goes to stdout: CPU seconds, edges (or 0), 0, 1 if it stopped before the end.
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, TRACE_END = 0x55, BITMAP = 1 << 16, MOST = 4096 };

struct section {
    uint64_t address, offset, size;
};

static struct section sections[MOST];
static size_t n_sections;
static const uint8_t *image;
static uint64_t edges;

static void fail(const char *what) {
    fprintf(stderr, "libxdc: %s failed\n", what);
    exit(1);
}

static uint8_t *load(const char *name, size_t *size) {
    FILE *f = fopen(name, "rb");
    if (!f || fseek(f, 0, SEEK_END)) fail(name);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size + 1);
    if (!data || fread(data, 1, *size, f) != *size) fail(name);
    data[*size] = TRACE_END;
    fclose(f);
    return data;
}

// The page at an address; bytes outside all sections are HLT. Asked for once a page.
static void *page_at(void *opaque, uint64_t address, bool *found) {
    uint8_t *page = malloc(PAGE);
    (void)opaque;
    address &= ~(uint64_t)(PAGE - 1);
    *found = false;
    memset(page, 0xf4, PAGE);
    for (size_t k = 0; k < n_sections; k++) {
        const struct section *s = &sections[k];
        uint64_t lo = s->address > address ? s->address : address;
        uint64_t hi = s->address + s->size < address + PAGE ? s->address + s->size : address + PAGE;
        if (lo < hi) {
            memcpy(page + (lo - address), image + s->offset + (lo - s->address), hi - lo);
            *found = true;
        }
    }
    return *found ? page : NULL;
}

static void edge(void *opaque, uint64_t from, uint64_t to) {
    (void)opaque;
    (void)from;
    (void)to;
    edges++;
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc < 9) fail("usage");
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) fail(dlerror());
    void *(*init)(uint64_t[4][2], void *(*)(void *, uint64_t, bool *), void *, void *, size_t);
    int (*decode)(void *, uint8_t *, size_t);
    void (*on_edge)(void *, void (*)(void *, uint64_t, uint64_t), void *);
    void (*enable)(void *);
    *(void **)&init = dlsym(library, "libxdc_init");
    *(void **)&decode = dlsym(library, "libxdc_decode");
    *(void **)&on_edge = dlsym(library, "libxdc_register_edge_callback");
    *(void **)&enable = dlsym(library, "libxdc_enable_tracing");
    if (!init || !decode || !on_edge || !enable) fail("a symbol");
    size_t size;
    image = load(argv[4], &size);
    FILE *f = fopen(argv[5], "r");
    if (!f) fail(argv[5]);
    struct section s;
    while (n_sections < MOST && fscanf(f, "%" SCNx64 " %" SCNx64 " %" SCNx64, &s.address, &s.offset, &s.size) == 3)
        sections[n_sections++] = s;
    fclose(f);
    uint64_t filter[4][2] = {{strtoull(argv[6], NULL, 16), strtoull(argv[7], NULL, 16)}};
    if (filter[0][0] == filter[0][1]) filter[0][0] = 0x1000, filter[0][1] = 0x7ffffffff000;
    void *self = init(filter, page_at, NULL, calloc(1, BITMAP), BITMAP);
    if (!self) fail("libxdc_init");
    if (!strcmp(argv[2], "edges")) {
        on_edge(self, edge, NULL);
        enable(self);
    }
    int passes = atoi(argv[3]), traces = argc - 8;
    uint8_t **data = calloc((size_t)traces, sizeof(*data));
    size_t *sizes = calloc((size_t)traces, sizeof(*sizes));
    for (int n = 0; n < traces; n++) data[n] = load(argv[8 + n], &sizes[n]);
    for (int pass = 0; pass < passes; pass++) {
        int n = pass < traces ? pass : traces - 1;
        edges = 0;
        double start = cpu_seconds();
        int result = decode(self, data[n], sizes[n]);
        printf("%.6f %" PRIu64 " 0 %d\n", cpu_seconds() - start, edges, result > 1);
    }
    return 0;
}
