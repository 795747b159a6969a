// Small things that all parts of the emulated PT use. The parts, each with a header of its name:
//
//   plugin.c   QEMU's callbacks, emulator.json
//   options.c  the emulator's options, given when it is loaded
//   clock.c    TSC and perf time
//   say.c      lines on stderr
//   flow.c     which branches happened: from blocks that ran (block.h) to encoder calls
//   signals.c  asynchronous transfers; compiled with rbp fixed, where QEMU keeps the guest's registers
//   cpus.c     whose stream it is: guest threads on host CPUs
//   service.c  events that are rare: PSB+, MTC, full buffers, overflow
//   encoder.h  packets, into a stream (stream.h)
//   rings.c    perf events in files
//   range.c    the code cache; executable mappings
//   code.c     the code as last seen, to notice changes
//   truth.c    the blocks that really ran
#pragma once

#define PAGE 4096u
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
