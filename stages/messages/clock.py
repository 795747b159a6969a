"""How a trace was made, and its clock."""

from __future__ import annotations

from typing import NamedTuple


class Clock(NamedTuple):
    """TSC → perf/CLOCK_MONOTONIC ns, as in struct perf_event_mmap_page: ns = zero + (tsc * mult >> shift), and
    the wall time (ns since the epoch) of ns = 0."""

    mult: int
    shift: int
    zero: int
    wall_zero: int

    def ns(self, tsc: int) -> int:
        # quotient and remainder as perf_event.h says, so that nothing overflows in C; Python only needs the sum
        return self.zero + ((tsc * self.mult) >> self.shift)

    def tsc(self, ns: int) -> int:
        return ((ns - self.zero) << self.shift) // self.mult

    def seconds_since(self, tsc: int, wall_ns: int) -> float:
        """From a TSC to a wall time (ns since the epoch)."""
        return (wall_ns - self.wall_zero - self.ns(tsc)) / 1e9

    @property
    def hz(self) -> float:
        return 1e9 * (1 << self.shift) / self.mult


class PtConfig(NamedTuple):
    """How the trace was made: as much as a decoder must know (perf's AUXTRACE_INFO carries the same)."""

    family: int = 0  # CPU family and model, for errata; 0 = none
    model: int = 0
    filter_lo: int = 0  # IP filter [lo, hi); lo == hi: no filter
    filter_hi: int = 0
    mtc_shift: int = -1  # IA32_RTIT_CTL.MTCFreq; −1: no MTC
    ctc_num: int = 0  # CPUID.15H: EBX (numerator, TSC) and EAX (denominator, crystal clock)
    ctc_den: int = 0
    noretcomp: bool = False
    cyc: bool = False
