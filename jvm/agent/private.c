// Each step of a path must belong to this user or to root and be writable by its owner alone. A directory with the
// sticky bit may be passed: only its owner can take an entry away, and the entry's owner is the next step's. A link of
// a safe owner leads to a real path, which is walked in its turn. After that no other user can change where the path
// leads.
#define _GNU_SOURCE
#include "private.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmstructs.h"

static bool safe_owner(const struct stat *status) {
    return status->st_uid == 0 || status->st_uid == geteuid();
}

static bool others_write(const struct stat *status, bool last) {
    return status->st_mode & 022 && (last || !(status->st_mode & S_ISVTX));
}

static bool walk(const char *directory, bool last, bool make, char *error, size_t error_size);

// One step. `last`: the path ends here; `make`: it may be missing, or a link.
static bool step(const char *path, bool last, bool make, char *error, size_t error_size) {
    struct stat status;
    bool there = !lstat(path, &status);
    if (!there && make && errno == ENOENT) there = (!mkdir(path, 0700) || errno == EEXIST) && !lstat(path, &status);
    if (!there) {
        snprintf(error, error_size, "cannot make %s: %s", path, strerror(errno));
    } else if (!safe_owner(&status)) {
        snprintf(error, error_size, "%s belongs to another user (%u)", path, status.st_uid);
    } else if (S_ISLNK(status.st_mode) && make) {
        char real[PATH_MAX];
        if (realpath(path, real)) return walk(real, last, false, error, error_size);
        snprintf(error, error_size, "%s: %s", path, strerror(errno));
    } else if (!S_ISDIR(status.st_mode)) {
        snprintf(error, error_size, "%s is no directory", path);
    } else if (others_write(&status, last)) {
        snprintf(error, error_size, "%s can be written by others", path);
    } else {
        return true;
    }
    return false;
}

static bool walk(const char *directory, bool last, bool make, char *error, size_t error_size) {
    char path[PATH_MAX];
    if (!step("/", false, false, error, error_size)) return false;
    snprintf(path, sizeof path, "%s", directory);
    for (char *slash = path + 1;; slash++) {
        if (*slash && *slash != '/') continue;
        char end = *slash;
        *slash = 0;
        bool good = step(path, !end && last, make, error, error_size);
        *slash = end;
        if (!good || !end) return good;
    }
}

bool private_directory(const char *directory, char *real, char *error, size_t error_size) {
    if (!walk(directory, true, true, error, error_size)) return false;
    if (!realpath(directory, real)) {
        snprintf(error, error_size, "no directory %s: %s", directory, strerror(errno));
        return false;
    }
    struct stat status;
    if (!walk(real, true, false, error, error_size) || lstat(real, &status)) return false;
    if (status.st_uid == geteuid()) return true;
    snprintf(error, error_size, "%s belongs to another user (%u)", real, status.st_uid);
    return false;
}
