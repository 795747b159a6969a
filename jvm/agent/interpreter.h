// The template interpreter: its code, its codelets, its dispatch tables.
#pragma once

#include <stdbool.h>

bool interpreter_open(void);

// INTERPRETER, CODELET and DISPATCH_TABLE records; false if the interpreter is not made yet (or not found).
bool interpreter_write(void);
