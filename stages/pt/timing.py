"""The time in the trace: TSC, then TMA + MTC, then CYC, each refining the one before.

    TSC   the time, wholly; a TMA with it tells how far the crystal clock (CTC) and the fast counter (FC, in TSC
          ticks since the last CTC tick) were at that moment
    MTC   8 bits of the CTC, one every 2^MTCFreq crystal ticks: time = base + ΔCTC · P, P = CPUID.15H EBX/EAX
    CYC   core cycles since the last CYC: time = base + Σ cycles · FCR

FCR, the TSC ticks a core cycle, is not in the trace. It is estimated ("calibrated") from the cycles between two MTCs,
or between two TSCs in PSB+, or from a CBR (core : bus ratio) when the nominal frequency is known; MTC is preferred.
All in integers, FCR as 24.8 fixed point, so that two decoders agree to the tick (SDM vol. 3, "Intel PT Timing
Packets"; the rounding and the handling of lost packets are libipt's, which every reader of these traces expects).

A `clock` is one TIME_DTYPE record, changed in place; a `rates` is one RATES_DTYPE record, how the trace was made.
Each function returns 0, or a negative code from `stages.pt.errors`; the clock stays usable after an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import inner, kernel
from stages.pt import errata
from stages.pt.crystal import MTC_BITS, TMA_BITS, TSC_BITS, ctc_step, tsc_ticks
from stages.pt.errors import BAD_CONFIG, BAD_CONTEXT, BAD_PACKET, INTERNAL, NO_TIME
from stages.pt.packets import CBR, CYC, MTC, TMA, TSC, Int

RATES_DTYPE = np.dtype(
    [
        ("mtc_shift", "<i8"),  # IA32_RTIT_CTL.MTCFreq, 0 … 15
        ("nominal", "<i8"),  # MSR_PLATFORM_INFO[15:8]: nominal frequency in bus clocks; 0 = not known
        ("ctc_num", "<i8"),  # CPUID.15H EBX; 0 = not known
        ("ctc_den", "<i8"),  # CPUID.15H EAX; 0 = not known
        ("errata", "<i8"),
        ("no_calibration", "<i8"),
        ("keep_calibration", "<i8"),  # over an OVF
    ]
)

TIME_DTYPE = np.dtype(
    [
        ("tsc", "<u8"),  # the estimate
        ("base", "<u8"),  # time at the last TSC or MTC (less the FC of a TMA)
        ("fc", "<u8"),  # TSC ticks since `base`, from CYC
        ("ctc", "<i8"),  # at the last MTC (or TMA)
        ("ctc_cyc", "<i8"),  # at the last MTC that a CYC has been counted from
        ("have_tsc", "<i8"),
        ("have_tma", "<i8"),
        ("have_mtc", "<i8"),
        ("lost_cyc", "<i8"),
        ("fcr", "<u8"),  # calibration from here on: TSC ticks a core cycle · 256
        ("calibrated", "<i8"),
        ("cal_tsc", "<u8"),  # at the last TSC; 0 = none
        ("cal_cyc_tsc", "<u8"),  # cycles since
        ("cal_cyc_mtc", "<u8"),  # cycles since the last MTC
        ("cal_ctc", "<i8"),
        ("cal_have_mtc", "<i8"),
        ("cal_check_skl168", "<i8"),
    ]
)

FCR_SHIFT = 8
_LARGEST = (1 << (64 - FCR_SHIFT)) - 1  # the most that may be shifted without loss


@inner
def _since(mtc: Int, last: Int, bits: Int, rates: Any) -> Any:
    """Crystal ticks from `last`, of which so many bits are known, to an MTC, over at most one wrap-around."""
    ticks = ctc_step(mtc, last, bits, rates["mtc_shift"])
    return ticks + (np.int64(1) << bits) if ticks < 0 else ticks


@inner
def _ticks(ctc: Int, rates: Any) -> Any:
    """Crystal ticks → TSC ticks; the caller has checked that the ratio is known."""
    return tsc_ticks(ctc, rates["ctc_num"], rates["ctc_den"])


@inner
def _no_ratio(rates: Any) -> Any:
    return rates["ctc_num"] <= 0 or rates["ctc_den"] <= 0


@kernel
def forget_calibration(clock: Any) -> None:
    clock["fcr"] = np.uint64(0)
    clock["calibrated"] = 0
    clock["cal_check_skl168"] = 0
    interrupt_calibration(clock)


@kernel
def interrupt_calibration(clock: Any) -> None:
    """Packets are missing (OVF): the count under way is void, the ratio found before still holds."""
    clock["cal_tsc"] = np.uint64(0)
    clock["cal_cyc_tsc"] = np.uint64(0)
    clock["cal_cyc_mtc"] = np.uint64(0)
    clock["cal_ctc"] = 0
    clock["cal_have_mtc"] = 0


@inner
def _set_fcr(clock: Any, fcr: Int) -> None:
    clock["fcr"] = fcr
    clock["calibrated"] = 1


@inner
def _calibrate_tsc(clock: Any, tsc: Int, header: Int) -> Any:
    last = clock["cal_tsc"]
    cycles = clock["cal_cyc_tsc"]
    clock["cal_tsc"] = tsc
    clock["cal_cyc_tsc"] = np.uint64(0)
    if not header:
        # The core slept, or packets were lost: cycles are counted from here, so must the crystal's ticks be. (libipt
        # goes on from the MTC before, and is wrong by the pause until the MTC after the next.)
        clock["cal_cyc_mtc"] = np.uint64(0)
        clock["cal_have_mtc"] = 0
        return 0
    # MTC calibrates better
    if last == np.uint64(0) or cycles == np.uint64(0) or clock["cal_have_mtc"]:
        return 0
    if tsc < last:
        tsc += np.uint64(1) << np.uint64(TSC_BITS)
        if tsc < last:
            return BAD_PACKET
    ticks = tsc - last
    if ticks > np.uint64(_LARGEST):
        return INTERNAL
    _set_fcr(clock, (ticks << np.uint64(FCR_SHIFT)) // cycles)
    return 0


@inner
def _calibrate_cbr(clock: Any, ratio: Int, header: Int, rates: Any) -> Any:
    if not header:  # the frequency changes now
        forget_calibration(clock)
    if rates["nominal"] == 0:
        return 0
    if ratio == np.uint64(0):
        return BAD_PACKET
    _set_fcr(clock, (np.uint64(rates["nominal"]) << np.uint64(FCR_SHIFT)) // ratio)
    return 0


@inner
def _calibrate_mtc(clock: Any, payload: Int, rates: Any) -> Any:
    last = clock["cal_ctc"]
    cycles = clock["cal_cyc_mtc"]
    after_psb = clock["cal_check_skl168"]
    clock["cal_check_skl168"] = 0
    ctc = np.int64(payload) << rates["mtc_shift"]
    if not clock["cal_have_mtc"]:
        clock["cal_cyc_mtc"] = np.uint64(0)
        clock["cal_ctc"] = ctc
        clock["cal_have_mtc"] = 1
        return 0
    if cycles == np.uint64(0):  # spread over this period and the next
        return 0
    clock["cal_cyc_mtc"] = np.uint64(0)
    clock["cal_ctc"] = ctc
    delta = _since(np.int64(payload), last, rates["mtc_shift"] + MTC_BITS, rates)
    if _no_ratio(rates):
        return BAD_CONFIG
    ticks = _ticks(delta, rates)
    if ticks > np.uint64(_LARGEST):
        return INTERNAL
    if after_psb:
        if delta > 1 << rates["mtc_shift"]:
            return 0  # an MTC is missing
        # A missing wrap-around CYC stands for 4096 cycles; 0xF00 leaves room for variation. At long MTC periods it
        # cannot be told from that variation.
        expected = (clock["fcr"] * (cycles + np.uint64(0xF00))) >> np.uint64(FCR_SHIFT)
        if rates["mtc_shift"] < 10 and clock["calibrated"] and expected < ticks:
            return 0
    _set_fcr(clock, (ticks << np.uint64(FCR_SHIFT)) // cycles)
    return 0


@kernel
def calibrate(clock: Any, kind: Int, payload: Int, header: Int, rates: Any) -> Any:
    """Take a timing packet into account for calibration. `header`: it stands in PSB+."""
    if kind == CYC:
        clock["cal_cyc_mtc"] += payload
        clock["cal_cyc_tsc"] += payload
        return 0
    if kind == MTC:
        return _calibrate_mtc(clock, payload, rates)
    if kind == TSC:
        return _calibrate_tsc(clock, payload, header)
    if kind == CBR:
        return _calibrate_cbr(clock, payload, header, rates)
    return 0


@kernel
def calibrate_psb(clock: Any, rates: Any) -> None:
    if rates["errata"] & errata.SKL168:
        clock["cal_check_skl168"] = 1


@inner
def _update_tsc(clock: Any, tsc: Int) -> Any:
    clock["have_tsc"] = 1
    clock["have_tma"] = 0
    clock["have_mtc"] = 0
    clock["tsc"] = tsc
    clock["base"] = tsc
    clock["ctc"] = 0
    clock["fc"] = np.uint64(0)
    clock["lost_cyc"] = 0
    return 0


@inner
def _update_tma(clock: Any, ctc: Int, fc: Int, rates: Any) -> Any:
    if not clock["have_tsc"] or clock["have_tma"]:
        return BAD_CONTEXT  # one TMA a TSC
    if clock["have_mtc"]:
        return INTERNAL
    top = rates["mtc_shift"] + MTC_BITS
    clock["have_tma"] = 1
    clock["base"] -= np.uint64(fc)
    clock["fc"] += np.uint64(fc)
    # With a short MTC period TMA carries all the CTC bits an MTC would, and stands for one. Else the high bits are
    # inferred at the next MTC.
    if top <= TMA_BITS:
        clock["have_mtc"] = 1
    clock["ctc"] = np.int64(ctc) & ((1 << top) - 1)
    clock["ctc_cyc"] = clock["ctc"]
    return 0


@inner
def _update_mtc(clock: Any, payload: Int, rates: Any) -> Any:
    if clock["have_tsc"] and not clock["have_tma"]:
        return 0  # between a TSC and its TMA: would look like a wrap-around
    have_mtc = clock["have_mtc"]
    last = clock["ctc"]
    ctc = np.int64(payload) << rates["mtc_shift"]
    if clock["fc"] != np.uint64(0) or clock["lost_cyc"] or not have_mtc:
        clock["ctc_cyc"] = ctc
    clock["have_mtc"] = 1
    clock["fc"] = np.uint64(0)
    clock["ctc"] = ctc
    clock["lost_cyc"] = 0
    if not have_mtc and not clock["have_tma"]:
        return 0  # how much of this period had gone when tracing began is not known
    delta = _since(np.int64(payload), last, rates["mtc_shift"] + MTC_BITS if have_mtc else TMA_BITS, rates)
    if _no_ratio(rates):
        return BAD_CONFIG
    clock["base"] += _ticks(delta, rates)
    clock["tsc"] = clock["base"]
    return 0


@inner
def _update_cyc(clock: Any, cycles: Int, fcr: Int, rates: Any) -> Any:
    if fcr == np.uint64(0):
        clock["lost_cyc"] += 1
        return 0
    fc = clock["fc"]
    if fc == np.uint64(0) and clock["ctc"] != clock["ctc_cyc"]:
        # the first CYC after one or more MTCs without any: part of its cycles lies before the last MTC
        shift = rates["mtc_shift"]
        delta = _since(clock["ctc"] >> shift, clock["ctc_cyc"], shift + MTC_BITS, rates)
        if _no_ratio(rates):
            return BAD_CONFIG
        before = (_ticks(delta, rates) << np.uint64(FCR_SHIFT)) // fcr
        cycles = cycles - before if cycles > before else np.uint64(0)
    fc += (cycles * fcr) >> np.uint64(FCR_SHIFT)
    clock["fc"] = fc
    clock["tsc"] = clock["base"] + fc
    return 0


@kernel
def update(clock: Any, kind: Int, payload: Int, sub: Int, fcr: Int, rates: Any) -> Any:
    """Move the clock on at a timing packet; `fcr` is the calibration to use for a CYC (0 = none yet)."""
    if kind == CYC:
        return _update_cyc(clock, payload, fcr, rates)
    if kind == MTC:
        return _update_mtc(clock, payload, rates)
    if kind == TSC:
        return _update_tsc(clock, payload)
    if kind == TMA:
        return _update_tma(clock, payload, sub, rates)
    if kind == CBR and payload == np.uint64(0):
        return BAD_PACKET
    return 0


@kernel
def apply(clock: Any, kind: Int, payload: Int, sub: Int, header: Int, rates: Any) -> Any:
    """Calibrate, then move the clock on. An unknown crystal ratio is no error here: MTCs then tell nothing."""
    status = 0
    if not rates["no_calibration"]:
        status = calibrate(clock, kind, payload, header, rates)
        if status < 0 and status != BAD_CONFIG:
            return status
    status = update(clock, kind, payload, sub, clock["fcr"], rates)
    return 0 if status == BAD_CONFIG else status


@inner
def query(clock: Any) -> Any:
    return 0 if clock["have_tsc"] else NO_TIME
