"""Times by CYC packets, checked against the packets that carry time themselves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.messages import U8
from stages.pt import packet_scan as ps
from stages.pt import packets as p
from stages.pt import timing

_TIMING = (p.TSC, p.TMA, p.MTC, p.CYC, p.CBR, p.PSB, p.PSBEND)


class Times(NamedTuple):
    """Of each packet that tells the time: the estimate before it, and the packet's time, in TSC ticks."""

    kind: NDArray[np.uint8]  # stages.pt.packets.TSC or MTC
    header: NDArray[np.bool_]  # it stands in PSB+
    estimated: NDArray[np.int64]
    told: NDArray[np.int64]


def times(trace: U8, mtc_shift: int, ctc_num: int, ctc_den: int, nominal: int, calibrate: bool) -> Times:
    """Without `calibrate` a core cycle is a TSC tick, as in the emulated core; with it, that has to be found out from
    the packets."""
    packets = np.zeros(len(trace), ps.PACKET_DTYPE)
    n, at = ps.scan(p.frozen(trace), 0, len(trace), 0, ps.scanner(), packets)
    assert at == len(trace)
    packets = packets[:n][np.isin(packets[:n]["kind"], _TIMING)]
    rates = np.zeros(1, timing.RATES_DTYPE)
    rates[["mtc_shift", "nominal", "ctc_num", "ctc_den"]] = mtc_shift, nominal, ctc_num, ctc_den
    before, after, header = (np.zeros(len(packets), np.int64) for _ in range(3))
    _count(packets, rates, np.zeros(1, timing.TIME_DTYPE), calibrate, before, after, header)
    tell = np.isin(packets["kind"], (p.TSC, p.MTC)) & (before != 0)
    return Times(packets["kind"][tell], header[tell] == 1, before[tell], after[tell])


@kernel
def _count(packets: Any, rates: Any, clock: Any, calibrate: bool, before: Any, after: Any, header: Any) -> None:
    inside = 0
    for k in range(packets.size):
        kind, payload, sub = np.int64(packets[k]["kind"]), packets[k]["payload"], np.int64(packets[k]["sub"])
        if kind == p.PSB or kind == p.PSBEND:
            inside = 1 if kind == p.PSB else 0
        before[k], header[k] = clock[0]["tsc"], inside
        if calibrate:
            timing.apply(clock[0], kind, payload, sub, inside, rates[0])
        else:
            timing.update(clock[0], kind, payload, sub, np.uint64(1 << timing.FCR_SHIFT), rates[0])
        after[k] = clock[0]["tsc"]
