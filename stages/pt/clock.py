"""The time in a stream, from TSC, TMA and MTC packets.

TSC packets (in PSB+ and alone) give it; all packets before one happened before it, all behind it after (SDM, "TSC
packet"). Between them, with `stages.pt.crystal`'s rules,

    tsc(MTC) = tsc(TSC) − FastCounter + (CTC ticks since the TMA's) · EBX/EAX of CPUID.15H

TMA carries 16 bits of the CTC: with MTCFreq > 8 the upper bits of the first MTC are not known and left out. After an
OVF MTCs may be missing, so they are not used until the next TMA. Time never goes back.

The time itself is an argument and a result: a kernel keeps it in a register. `state` (uint64) holds the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, near
from stages.pt.crystal import MTC_BITS, TMA_BITS, ctc_step, full_tsc, tsc_ticks
from stages.pt.packets import Int

U64 = NDArray[np.uint64]
BASE_TSC, LAST_CTC, CTC_GONE, CTC_BITS = range(4)  # at the TMA; at the last MTC; ticks since the TMA; 0: no TMA
CLOCK_SIZE = 4
_0 = np.uint64(0)


@near
def on_tsc(state: U64, time: Int, payload: Int) -> Any:
    """The time behind a TSC packet."""
    tsc = full_tsc(payload, time)
    state[CTC_BITS] = _0
    state[BASE_TSC] = tsc
    return max(tsc, time)


@near
def on_tma(state: U64, ctc: Int, fast: Int, mtc_shift: Int, den: Int) -> None:
    """`ctc`, `fast`: CTC and FastCounter of a TMA."""
    if mtc_shift >= 0 and den > 0:
        state[BASE_TSC] -= np.uint64(fast)
        state[LAST_CTC] = np.uint64(ctc)
        state[CTC_GONE] = _0
        state[CTC_BITS] = np.uint64(min(TMA_BITS, mtc_shift + MTC_BITS))


@inner
def on_mtc(state: U64, time: Int, mtc: Int, mtc_shift: Int, num: Int, den: Int) -> Any:
    """Whether an MTC tells the time, and the time then."""
    bits = np.int64(state[CTC_BITS])
    if bits == 0 or mtc_shift < 0 or den <= 0:
        return False, time
    gone = np.int64(state[CTC_GONE]) + max(ctc_step(mtc, np.int64(state[LAST_CTC]), bits, mtc_shift), 0)
    state[LAST_CTC] = np.uint64(mtc << mtc_shift)
    state[CTC_GONE] = np.uint64(gone)
    state[CTC_BITS] = np.uint64(mtc_shift + MTC_BITS)
    return True, max(state[BASE_TSC] + tsc_ticks(gone, num, den), time)


@near
def on_ovf(state: U64) -> None:
    state[CTC_BITS] = _0
