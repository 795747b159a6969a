#define _GNU_SOURCE
#include "say.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// At once, and not by stdio; the reader of stderr may be gone, and before the JVM has its handlers SIGPIPE would end
// it.
static void vsay(const char *format, va_list arguments) {
    char line[1024] = "emulated PT: ";
    size_t prefix = strlen(line);
    int length = vsnprintf(line + prefix, sizeof line - prefix - 1, format, arguments);
    length = length < 0 ? 0 : length < (int)(sizeof line - prefix - 2) ? length : (int)(sizeof line - prefix - 2);
    line[prefix + (size_t)length] = '\n';
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    if (write(STDERR_FILENO, line, prefix + (size_t)length + 1) < 0 && errno == EPIPE && !sigismember(&before, SIGPIPE))
        sigtimedwait(&pipe, NULL, &(struct timespec){0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsay(format, arguments);
    va_end(arguments);
}

void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsay(format, arguments);
    va_end(arguments);
    _exit(1);
}
