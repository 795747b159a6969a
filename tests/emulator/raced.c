// A thread that runs code again and again, which another one on the same CPU changes and runs itself, whenever that
// comes to run: now and then the first is then on its way into the old code, but not there yet.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define SIZE (1 << 20)
#define PAUSE 20000  // ns, by a timer, so that a change comes at any point of the other thread's round

static char *code;  // the 3 bytes at its beginning change
static atomic_bool over;

static void check(int good) {
    if (!good) {
        perror("raced");
        exit(1);
    }
}

static void run(void) {
    asm volatile("call *%0" : : "r"(code) : "rax", "rcx", "r11", "memory");
}

static void *again_and_again(void *unused) {
    while (!over) run();
    return unused;
}

int main(int argc, char **argv) {
    int changes = argc > 1 ? atoi(argv[1]) : 1;
    cpu_set_t may, one;
    check(!sched_getaffinity(0, sizeof may, &may));
    int cpu = 0;
    while (!CPU_ISSET(cpu, &may)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    check(!sched_setaffinity(0, sizeof one, &one));
    code = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(code != MAP_FAILED);
    check(mmap(code, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == code);
    static const char ways[2][3] = {"\x66\x90\xc3", "\xeb\x10\xc3"};  // NOP of two bytes; JMP to code + 18
    memcpy(code, ways[0], 3);
    code[18] = '\xc3';
    pthread_t thread;
    check(!pthread_create(&thread, NULL, again_and_again, NULL));
    for (int n = 1; n <= changes; n++) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE}, NULL);
        memcpy(code, ways[n % 2], 2);
        run();
    }
    over = true;
    check(!pthread_join(thread, NULL));
    puts("caught 31");
    return 0;
}
