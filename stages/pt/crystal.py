"""Time in packets: TSC, and the crystal clock's counter (CTC) between two of them (SDM vol. 3, "Timing packets").

A TSC packet has the lower 56 bits of the time stamp counter. An MTC has bits [MTCFreq, MTCFreq + 8) of the CTC, one
each time they count up; a TMA behind a TSC says where the CTC stood at that TSC, 16 bits of it, and how many TSC ticks
had passed since its last tick. One CTC tick is EBX/EAX of CPUID.15H TSC ticks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import near

Int = Any

TSC_BITS, TMA_BITS, MTC_BITS = 56, 16, 8
_TSC_MASK = np.uint64((1 << TSC_BITS) - 1)
_HALF = np.uint64(1 << TSC_BITS - 1)
_0 = np.uint64(0)
_32 = np.uint64(32)


@near
def full_tsc(payload: Int, near: Int) -> Int:
    """The time nearest to `near` that ends in the 56 bits of a TSC packet; uint64 all."""
    tsc = (near & ~_TSC_MASK) | payload
    if tsc > near and tsc - near > _HALF and tsc >= _HALF + _HALF:
        return tsc - _HALF - _HALF
    if near > tsc and near - tsc > _HALF:
        return tsc + _HALF + _HALF
    return tsc


@near
def ctc_step(mtc: Int, last: Int, bits: Int, shift: Int) -> Int:
    """CTC ticks from `last`, whose lower `bits` bits are known (behind a TMA 16, else `shift` + 8), to an MTC; int64.

    Up to one wrap-around; negative where `last` lies behind the beginning of the same period, which an MTC that comes
    after it cannot mean: the caller decides.
    """
    periods = (mtc - (last >> shift)) & ((np.int64(1) << max(bits - shift, 0)) - 1)
    return (periods << shift) - (last & ((np.int64(1) << shift) - 1))


@near
def tsc_ticks(ctc: Int, num: Int, den: Int) -> Int:
    """⌊ctc · num / den⌋ of CTC ticks ≥ 0, num ≥ 0 and den > 0, as uint64."""
    ctc, by, to = np.uint64(ctc), np.uint64(num), np.uint64(den)
    if (ctc | by) >> _32 == _0:  # one division is enough
        return ctc * by // to
    return ctc // to * by + ctc % to * by // to
