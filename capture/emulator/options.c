#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "emulator.h"
#include "say.h"

struct options options = {
    .aux_size = 8 << 20, .data_size = 512 << 10, .psb_bytes = 2048, .tsc = true, .mtc = -1, .cyc = -1, .retcomp = true};

static uint64_t power_of_two(const char *name, uint64_t value) {
    if (value < PAGE || value & (value - 1) || value > 1ull << 36)
        die("%s: %lu bytes are not a power of two of pages", name, value);
    return value;
}

void options_take(char *argument) {
    char *value = strchr(argument, '=');
    if (!value) die("option %s has no value", argument);
    *value++ = 0;
    bool yes = !strcmp(value, "on") || !strcmp(value, "true") || !strcmp(value, "yes");
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {{"per_thread", &options.per_thread}, {"tsc", &options.tsc},
                 {"retcomp", &options.retcomp},       {"retcomp_strict", &options.retcomp_strict},
                 {"long_tnt", &options.long_tnt},     {"psb_on_code_change", &options.psb_on_code_change}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (!strcmp(argument, flags[i].name)) {
            *flags[i].flag = yes;
            return;
        }
    if (!strcmp(argument, "dir"))
        options.dir = value;
    else if (!strcmp(argument, "truth"))
        options.truth = value;
    else if (!strcmp(argument, "aux_kib"))
        options.aux_size = power_of_two(argument, strtoull(value, NULL, 10) << 10);
    else if (!strcmp(argument, "data_kib"))
        options.data_size = power_of_two(argument, strtoull(value, NULL, 10) << 10);
    else if (!strcmp(argument, "psb_kib"))
        options.psb_bytes = strtoull(value, NULL, 10) << 10;
    else if (!strcmp(argument, "mtc"))
        options.mtc = atoi(value);
    else if (!strcmp(argument, "cyc"))
        options.cyc = atoi(value);
    else if (!strcmp(argument, "ovf_mb_s"))
        options.ovf_mb_s = atof(value);
    else
        die("unknown option %s", argument);
}
