#include "options.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Where streamer looks for a JVM that was started with the agent and no path: streamer/config.py, default_runtime_dir.
static void default_ring(char *path, size_t size) {
    const char *runtime = getenv("STREAMER_RUNTIME_DIR"), *xdg = getenv("XDG_RUNTIME_DIR"), *tmp = getenv("TMPDIR");
    if (runtime && *runtime)
        snprintf(path, size, "%s/default/jit-%d.ring", runtime, getpid());
    else if (xdg && *xdg)
        snprintf(path, size, "%s/streamer/default/jit-%d.ring", xdg, getpid());
    else
        snprintf(path, size, "%s/streamer-%d/default/jit-%d.ring", tmp && *tmp ? tmp : "/tmp", geteuid(), getpid());
}

// "64m" → bytes; 0 if it is no size. The ring's size must be a power of two; the
// largest record that is always there, the interpreter (75–105 KB), must fit into half of it.
static uint64_t parse_size(const char *text) {
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    int shift = *end == 'k' || *end == 'K' ? 10 : *end == 'm' || *end == 'M' ? 20 : *end == 'g' || *end == 'G' ? 30 : 0;
    if (shift) end++;
    if (*end || end == text || value > UINT64_MAX >> 34) return 0;
    value <<= shift;
    return value >= 262144 && value <= (uint64_t)1 << 34 && !(value & (value - 1)) ? value : 0;
}

// "100" → 100, if it is within the bounds, "0" → 0; −1 if it is neither.
static long parse_number(const char *text, long least, long most) {
    char *end;
    long value = strtol(text, &end, 10);
    return !*end && end != text && (!value || (value >= least && value <= most)) ? value : -1;
}

// Milliseconds between two stacks of a thread.
static long parse_period(const char *text) {
    return parse_number(text, 10, 60000);
}

// Mounts of virtual threads that are told a second.
static long parse_mounts(const char *text) {
    return parse_number(text, 100, 10000000);
}

bool options_parse(const char *text, struct options *o, char *error, size_t error_size) {
    *o = (struct options){.size = 64 << 20, .classes = true, .stacks_ms = 100, .mounts = 10000};
    if (text && strlen(text) >= sizeof o->text) {
        snprintf(error, error_size, "options are too long");
        return false;
    }
    char copy[sizeof o->text];
    strcpy(o->text, text ? text : "");
    strcpy(copy, o->text);
    char *rest = copy;
    for (char *option; (option = strsep(&rest, ","));) {
        if (!*option) continue;
        char *value = strchr(option, '=');
        if (value) *value++ = 0;
        if (value && !strcmp(option, "ring") && *value == '/') {
            strcpy(o->ring, value);
        } else if (value && !strcmp(option, "dir") && *value == '/') {
            snprintf(o->ring, sizeof o->ring, "%.4000s/jit-%d.ring", value, getpid());
        } else if (value && !strcmp(option, "size") && parse_size(value)) {
            o->size = parse_size(value);
        } else if (value && !strcmp(option, "classes") && (!strcmp(value, "on") || !strcmp(value, "off"))) {
            o->classes = !strcmp(value, "on");
        } else if (value && !strcmp(option, "stacks") && parse_period(value) >= 0) {
            o->stacks_ms = (unsigned)parse_period(value);
        } else if (value && !strcmp(option, "mounts") && parse_mounts(value) >= 0) {
            o->mounts = (unsigned)parse_mounts(value);
        } else {
            snprintf(error, error_size,
                     "bad option '%s%s%s' (known: ring=/PATH, dir=/DIR, size=N[k|m|g] a power of two from 256k, "
                     "classes=on|off, stacks=0 or 10 to 60000, mounts=0 or 100 to 10000000)",
                     option, value ? "=" : "", value ? value : "");
            return false;
        }
    }
    if (!*o->ring) default_ring(o->ring, sizeof o->ring);
    return true;
}
