// Asynchronous transfers, and a repair.
//
// Plugin API 1 cannot read registers. But TCG's code for x86-64 hosts keeps the CPU state in rbp, the callbacks of a
// block are called from it directly, and the state begins with the general registers (target/i386/cpu.h:
// CPUArchState.regs): so a callback compiled with -ffixed-rbp finds them. At the start of a block all of them are in
// memory.
//
// An indirect jump may lead anywhere, so only the start of a known signal handler tells a signal from a branch. There
// RSI points to the siginfo, RDX to the ucontext with the interrupted RIP.
//
// QEMU 7.2 sets up signal frames with RSP a multiple of 16 at the handler's entry, where the psABI has RSP + 8 so;
// HotSpot's stack overflow handling then faults in movaps. The handler gets RSP − 8, with the return address copied
// there; the restorer, which expects RSP behind it, gets its RSP back. Both look at the alignment alone, so a QEMU
// that is right is left alone.
#include "signals.h"

#include <pthread.h>
#include <signal.h>

#include "block.h"
#include "cpus.h"
#include "emulator.h"
#include "flow.h"
#include "range.h"

register uint64_t *registers __asm__("rbp");

enum { RDX = 2, RSP = 4, RSI = 6 };

#define HANDLERS_MAX 256

static struct {
    _Atomic uint64_t handler, restorer;
} actions[HANDLERS_MAX];
static atomic_uint actions_count;

void signals_action(uint64_t action) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (!action) return;
    const uint64_t *kernel_action = (const uint64_t *)(action + guest_base);  // handler, flags, restorer, mask
    uint64_t handler = kernel_action[0], restorer = kernel_action[1] & 0x04000000 ? kernel_action[2] : 0;
    if (handler <= 1)  // SIG_DFL, SIG_IGN
        return;
    pthread_mutex_lock(&lock);
    unsigned count = actions_count, i = 0;
    while (i < count && (actions[i].handler != handler || actions[i].restorer != restorer)) i++;
    if (i == count && count < HANDLERS_MAX) {
        actions[i].handler = handler;
        actions[i].restorer = restorer;
        actions_count = count + 1;
    }
    pthread_mutex_unlock(&lock);
}

bool signals_is_handler(uint64_t address) {
    for (unsigned i = 0, count = actions_count; i < count; i++)
        if (actions[i].handler == address) return true;
    return false;
}

bool signals_is_restorer(uint64_t address) {
    for (unsigned i = 0, count = actions_count; i < count; i++)
        if (actions[i].restorer == address) return true;
    return false;
}

static void interrupted(uint64_t info_at, uint64_t context_at) {
    const siginfo_t *info = (const siginfo_t *)(info_at + guest_base);
    const ucontext_t *context = (const ucontext_t *)(context_at + guest_base);
    bool fault = info->si_signo == SIGSEGV || info->si_signo == SIGBUS || info->si_signo == SIGILL ||
                 info->si_signo == SIGFPE || info->si_signo == SIGTRAP;
    flow_signal((uint64_t)context->uc_mcontext.gregs[16], fault && info->si_code > 0);  // REG_RIP
}

void signals_handler(unsigned vcpu, void *block) {
    (void)vcpu;
    (void)block;
    uint64_t *regs = registers;
    if (regs[RSP] % 16 == 0) {
        uint64_t *stack = (uint64_t *)(regs[RSP] + guest_base);
        stack[-1] = stack[0];
        regs[RSP] -= 8;
    }
    if (self && self->inside) interrupted(regs[RSI], regs[RDX]);
}

void signals_restorer(unsigned vcpu, void *block) {
    if (registers[RSP] % 16 == 0) registers[RSP] += 8;
    signals_outside(vcpu, block);
}

void signals_outside(unsigned vcpu, void *block) {
    const struct block *b = block;
    if (likely(!self || !self->inside)) return;
    if (unlikely(signals_is_handler(b->start)))  // translated before it became one
        signals_handler(vcpu, block);
    else
        flow_outside(b->start);
}
