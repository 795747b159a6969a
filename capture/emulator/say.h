// Lines on stderr.
#pragma once

// Before the JVM begins: bad options; where memory is exhausted, as QEMU itself does it.
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Everything else that fails: a line on stderr; the JVM runs on, with less trace or none.
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
