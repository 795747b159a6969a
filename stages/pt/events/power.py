"""Events of power and software packets: MWAIT, PWRE, EXSTOP, PWRX, PTWRITE, CBR, MNT, TraceStop, and blocks.

MWAIT waits for its EXSTOP: with an IP both stand at the FUP that follows, without one neither has an address. PWRE
waits for its PWRX (the processor may go to sleep several times before it wakes).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import inner
from stages.pt.errors import BAD_PACKET
from stages.pt.events import event as e
from stages.pt.events.event import AT_BOUND_FUP, AT_EXSTOP, AT_PWRX, EVENT, MORE
from stages.pt.packets import IP_FLAG, TRIG_ICNT, TRIG_MULT, Int


@inner
def plain(st: Any, ev: Any, kind: Int) -> Any:
    """CBR, MNT, TraceStop: an event by itself."""
    e.clear(ev, kind)
    ev["a"] = st["payload"]
    return e.standalone(st, ev)


@inner
def at_fup_or_nowhere(st: Any, ev: Any) -> Any:
    """`ev` stands at the FUP that follows if the packet says so, else it has no address."""
    if st["sub"] & IP_FLAG:
        return e.enqueue(st, ev, AT_BOUND_FUP)
    ev["no_ip"] = 1
    return e.standalone(st, ev)


@inner
def exstop(st: Any, ev: Any) -> Any:
    if e.dequeue(st, AT_EXSTOP, ev):
        if not st["sub"] & IP_FLAG:
            ev["no_ip"] = 1
            e.put_time(st, ev)
            return EVENT  # the EXSTOP itself comes next
        status = e.enqueue(st, ev, AT_BOUND_FUP)
        if status < 0:
            return status
    e.clear(ev, e.EXSTOP)
    return at_fup_or_nowhere(st, ev)


@inner
def mwait(st: Any, ev: Any) -> Any:
    e.clear(ev, e.MWAIT)
    ev["a"] = st["payload"]
    return e.enqueue(st, ev, AT_EXSTOP)


@inner
def pwre(st: Any, ev: Any) -> Any:
    e.clear(ev, e.PWRE)
    ev["a"] = st["payload"]
    e.put_time(st, ev)
    return e.enqueue(st, ev, AT_PWRX)


@inner
def pwrx(st: Any, ev: Any) -> Any:
    if e.dequeue(st, AT_PWRX, ev):
        return EVENT
    e.clear(ev, e.PWRX)
    ev["a"] = st["payload"]
    return e.standalone(st, ev)


@inner
def ptwrite(st: Any, ev: Any) -> Any:
    e.clear(ev, e.PTWRITE)
    ev["a"] = st["payload"]
    return at_fup_or_nowhere(st, ev)


@inner
def block_end(st: Any, ev: Any) -> Any:
    """BEP: the block's content is for others (PEBS records); its FUP must not be taken for an interrupt's."""
    if not st["sub"] & IP_FLAG:
        return MORE
    e.clear(ev, e.IGNORE)
    return e.enqueue(st, ev, AT_BOUND_FUP)


@inner
def trig(st: Any, ev: Any) -> Any:
    """A trigger fired ICNT instructions after the last address in the trace, or where the FUP that follows says."""
    sub = st["sub"]
    icnt = np.int64(st["payload"] >> np.uint64(8))
    e.clear(ev, e.TRIG)
    ev["a"] = st["payload"] & np.uint64(0xFF)
    ev["flags"] = 1 if sub & TRIG_MULT else 0
    if sub & IP_FLAG:
        if not sub & TRIG_ICNT or icnt:
            return BAD_PACKET  # the FUP is the place itself
        return e.enqueue(st, ev, AT_BOUND_FUP)
    if sub & TRIG_ICNT:
        if icnt and not st["enabled"]:
            return BAD_PACKET  # nothing is counted while tracing is off
        ev["count"] = icnt
    else:
        ev["no_ip"] = 1
    return e.standalone(st, ev)
