// The template interpreter: its code, its codelets, its dispatch tables.
#pragma once

#include <stdbool.h>
#include <stdint.h>

bool interpreter_open(void);
bool interpreter_bounds(uint64_t *low, uint64_t *high);  // false as interpreter_write

// INTERPRETER, CODELET and DISPATCH_TABLE records; false if the interpreter is not made yet (or not found).
bool interpreter_write(void);
