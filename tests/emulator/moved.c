// A thread that waits in the middle of a block while that block's code changes, and then goes on in the old one.
//
// moved old: on its stream, where meanwhile the new code ran (one CPU).
// moved new: on a stream that is older than its code (another CPU).
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (1 << 20)

static char *code;  // read(fd, buffer, size), rax being 0
static int waits[2], ready[2];
static _Atomic pid_t waiter;

static void check(int good) {
    if (!good) {
        perror("moved");
        exit(1);
    }
}

static const char straight[] = "\x90\x90", away[] = "\xeb\x10";  // NOP, NOP; JMP to code + 18

static void write_code(const char *first) {
    memcpy(code, first, 2);
    memcpy(code + 2, "\x0f\x05\xc3", 3);  // SYSCALL, RET
    memcpy(code + 18, "\x0f\x05\xc3", 3);
}

static void run(int fd) {
    char byte;
    long result = 0;
    register char *buffer asm("rsi") = &byte;
    asm volatile("call *%2" : "+a"(result) : "D"((long)fd), "r"(code), "r"(buffer), "d"(1l) : "rcx", "r11", "memory");
    check(result == 1);
}

static void on_cpu(pid_t tid, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    check(!sched_setaffinity(tid, sizeof set, &set));
}

static void *wait_there(void *cpu) {
    on_cpu(0, (int)(long)cpu);
    waiter = gettid();
    run(waits[0]);
    return NULL;
}

// The thread sleeps in the read: /proc says so.
static void let_it_wait(void) {
    char path[64], state = 0;
    while (!waiter) sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter);
    do {
        FILE *file = fopen(path, "r");
        check(file != NULL);
        int number = -1;
        unsigned fd = 0;
        check(fscanf(file, "%d 0x%x", &number, &fd) >= 0);
        fclose(file);
        state = number == 0 && (int)fd == waits[0];
        sched_yield();
    } while (!state);
}

int main(int argc, char **argv) {
    int older = argc > 1 && !strcmp(argv[1], "new");
    cpu_set_t may;
    check(!sched_getaffinity(0, sizeof may, &may));
    int cpus[2] = {-1, -1};
    for (int i = 0, n = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &may)) cpus[n++] = i;
    check(!pipe(waits) && !pipe(ready) && write(ready[1], "12", 2) == 2);
    code = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(code != MAP_FAILED);
    check(mmap(code, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == code);
    on_cpu(0, cpus[0]);
    write_code(older ? away : straight);
    run(ready[0]);
    if (older) write_code(straight);
    pthread_t thread;
    check(!pthread_create(&thread, NULL, wait_there, (void *)(long)cpus[older]));
    let_it_wait();
    if (older) {
        on_cpu(waiter, cpus[0]);
    } else {
        write_code(away);
        run(ready[0]);
    }
    check(write(waits[1], "3", 1) == 1);
    check(!pthread_join(thread, NULL));
    puts("caught 31");
    return 0;
}
