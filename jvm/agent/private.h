// Directories in which no other user can put something, or exchange it: the rule of jvm/private.py.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Makes `directory` and the directories that are missing above it, private to the user, and writes its real path, which
// has no links, to `real` (PATH_MAX bytes). Refuses a directory that others can write to, or whose path they can
// change; then false, with one line in `error`.
bool private_directory(const char *directory, char *real, char *error, size_t error_size);
