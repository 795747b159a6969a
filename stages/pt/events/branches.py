"""Events of the packets that move control: TNT, TIP, TIP.PGE, TIP.PGD, FUP, and those bound to them (MODE, PIP, VMCS).

A FUP belongs to the event that waits for it. A FUP that nothing waits for opens a compound: FUP + TIP is an
asynchronous branch (interrupt, fault …), FUP + TIP.PGD one that turned tracing off. PIP, VMCS and MODE.Exec inside a
compound are events at its end. Where several events come of one packet the branch is told first, since the others hold
at its target.
"""

from __future__ import annotations

from typing import Any

from jvm.kernels import inner, kernel
from stages.pt.errors import BAD_CONTEXT, INTERNAL, NO_IP, QUEUE_FULL, SUPPRESSED_IP
from stages.pt.events import event as e
from stages.pt.events.event import AT_BOUND_FUP, AT_FUP, AT_TIP, EVENT, MORE
from stages.pt.packets import Int


@inner
def tnt(st: Any, ev: Any) -> Any:
    if not st["enabled"]:
        return BAD_CONTEXT
    e.clear(ev, e.TNT)
    ev["a"] = st["payload"]
    ev["count"] = st["sub"]
    return e.standalone(st, ev)


@inner
def tip(st: Any, ev: Any) -> Any:
    if not st["enabled"]:
        return BAD_CONTEXT
    e.take_ip(st, st["sub"], st["payload"])
    if not st["bound"]:
        st["bound"] = 1
        branch = e.find(st, AT_TIP, e.INTERRUPTED)
        if branch >= 0:
            e.copy(ev, st["queue"][branch])
            ev["waits"] = 0
            e.remove(st, branch)
        else:
            e.clear(ev, e.TIP)
        e.put_ip(st, ev)
        e.put_time(st, ev)
        return EVENT
    while e.dequeue(st, AT_TIP, ev):
        kind = ev["kind"]
        if kind == e.IGNORE:
            continue
        if kind == e.INTERRUPTED:
            return INTERNAL
        if kind not in (e.EXEC_MODE, e.ASYNC_PAGING, e.ASYNC_VMCS, e.IFLAGS):
            return BAD_CONTEXT
        e.put_ip(st, ev)
        e.put_time(st, ev)
        return EVENT
    return MORE


@inner
def tip_pge(st: Any, ev: Any) -> Any:
    e.take_ip(st, st["sub"], st["payload"])
    if not st["bound"]:
        e.clear(ev, e.ENABLED)
        e.put_ip(st, ev)
        e.put_time(st, ev)
        st["enabled"] = 1
        st["bound"] = 1
        return EVENT
    while e.dequeue(st, AT_TIP, ev):
        if ev["kind"] == e.IGNORE:
            continue
        if ev["kind"] not in (e.EXEC_MODE, e.IFLAGS):
            return BAD_CONTEXT
        e.put_ip(st, ev)
        e.put_time(st, ev)
        return EVENT
    return MORE


@inner
def tip_pgd(st: Any, ev: Any) -> Any:
    e.take_ip(st, st["sub"], st["payload"])
    if not e.dequeue(st, AT_TIP, ev):
        if st["bound"]:
            return MORE
        e.clear(ev, e.DISABLED)
        e.put_ip(st, ev)
        st["enabled"] = 0
        return e.standalone(st, ev)
    kind = ev["kind"]
    if kind == e.INTERRUPTED:
        ev["kind"] = e.ASYNC_DISABLED
        e.put_ip(st, ev)
        st["enabled"] = 0
        st["bound"] = 1
    elif kind in (e.ASYNC_PAGING, e.ASYNC_VMCS):
        if not st["bound"]:
            return INTERNAL
        ev["no_ip"] = 1
    elif kind == e.EXEC_MODE:
        ev["no_ip"] = 1  # tracing is off before the new mode's code is reached
    else:
        return BAD_CONTEXT
    e.put_time(st, ev)
    return EVENT


@inner
def fup(st: Any, ev: Any) -> Any:
    e.take_ip(st, st["sub"], st["payload"])
    while True:
        if e.find(st, AT_BOUND_FUP, e.NONE) >= 0:
            st["bound"] = 1
        if not e.dequeue(st, AT_FUP | AT_BOUND_FUP, ev):
            break
        kind = ev["kind"]
        if kind == e.IGNORE:
            continue
        if kind in (e.RSM, e.SIPI):
            e.put_time(st, ev)
            return EVENT
        if kind == e.OVERFLOW:
            st["enabled"] = 1  # and the time stays that of the OVF: the next event tells how long it took
        else:
            e.put_time(st, ev)
        e.put_ip(st, ev)
        return EVENT
    if st["bound"]:
        return MORE
    if not st["have_ip"]:
        return NO_IP
    if st["suppressed"]:
        return SUPPRESSED_IP
    e.clear(ev, e.INTERRUPTED)
    ev["at"] = st["last_ip"]
    return e.enqueue(st, ev, AT_TIP)


@kernel
def exec_mode(bits: Int) -> Any:
    """CS.L and CS.D of a MODE.Exec → MODE_…"""
    if bits & 1:
        return e.MODE_UNKNOWN if bits & 2 else e.MODE_64
    return e.MODE_32 if bits & 2 else e.MODE_16


@inner
def mode_exec(st: Any, ev: Any) -> Any:
    """Two things change here, the mode and IF; a part that did not change is no event, but the packet is still
    bound."""
    bits = st["sub"]
    told = 0
    if not st["mode_valid"] or (st["mode"] ^ bits) & 3:
        e.clear(ev, e.EXEC_MODE)
        ev["flags"] = exec_mode(bits)
        if e.enqueue(st, ev, AT_TIP | AT_BOUND_FUP) < 0:
            return QUEUE_FULL
        told = 1
    iflag = st["mode"] & 4
    if st["iflags"]:
        if not st["mode_valid"] or (st["mode"] ^ bits) & 4:
            e.clear(ev, e.IFLAGS)
            ev["flags"] = 1 if bits & 4 else 0
            if e.enqueue(st, ev, AT_TIP | AT_BOUND_FUP) < 0:
                return QUEUE_FULL
            told = 1
        iflag = bits & 4
    if not told:
        e.clear(ev, e.IGNORE)
        if e.enqueue(st, ev, AT_TIP | AT_BOUND_FUP) < 0:
            return QUEUE_FULL
    st["mode"] = (bits & 3) | iflag
    st["mode_valid"] = 1
    return MORE


@inner
def mode_tsx(st: Any, ev: Any) -> Any:
    e.clear(ev, e.TSX)
    ev["flags"] = st["sub"]
    if st["enabled"]:
        # an abort's FUP also opens the FUP + TIP of the branch to the handler
        return e.enqueue(st, ev, AT_FUP if st["sub"] & e.ABORTED else AT_BOUND_FUP)
    ev["no_ip"] = 1
    return e.standalone(st, ev)


@inner
def pip(st: Any, ev: Any) -> Any:
    inside = e.find(st, AT_TIP, e.INTERRUPTED) >= 0
    e.clear(ev, e.ASYNC_PAGING if inside else e.PAGING)
    ev["a"] = st["payload"]
    ev["flags"] = st["sub"]
    return e.enqueue(st, ev, AT_TIP) if inside else e.standalone(st, ev)


@inner
def vmcs(st: Any, ev: Any) -> Any:
    paging = e.find(st, AT_TIP, e.ASYNC_PAGING)
    inside = paging >= 0 or e.find(st, AT_TIP, e.INTERRUPTED) >= 0
    e.clear(ev, e.ASYNC_VMCS if inside else e.VMCS)
    ev["a"] = st["payload"]
    if not inside:
        return e.standalone(st, ev)
    if paging < 0:
        return e.enqueue(st, ev, AT_TIP)
    # VMCS comes before PIP in effect, whatever the order of the packets
    if e.enqueue(st, st["queue"][paging], AT_TIP) < 0:
        return QUEUE_FULL
    e.copy(st["queue"][paging], ev)
    st["queue"][paging]["waits"] = AT_TIP
    return MORE
