"""PSB+: PSB … PSBEND (or OVF) describes the state at this point, in no order of its own.

With a FUP in it tracing is on and here is where; without one it is off. All of it waits for PSBEND and becomes
`status` events, the on/off one first; MNT alone is an event proper. Nothing else may be waiting when a PSB comes.
"""

from __future__ import annotations

from typing import Any

from jvm.kernels import inner
from stages.messages import U8
from stages.pt import packets as p
from stages.pt import timing
from stages.pt.errata import BDM70
from stages.pt.errors import BAD_CONTEXT, BAD_STATUS, END, INTERNAL
from stages.pt.events import event as e
from stages.pt.events.branches import exec_mode
from stages.pt.events.event import AT_PSBEND, EVENT, MORE
from stages.pt.packets import Int
from stages.pt.psb_plus import belongs_in_psb_plus, ends_psb_plus


@inner
def _pge_follows(data: U8, st: Any) -> Any:
    """BDM70: does the trace turn on after this PSB+, so that its FUP was void? 1, 0 or an error."""
    at = st["at"]
    context = st["context"]
    while True:
        kind, size, payload, _ = p.next_packet(data, at, data.size, context)
        if kind < 0:
            return 0 if kind == p.CUT else BAD_CONTEXT
        if kind == p.TIP_PGE:
            return 1
        if not belongs_in_psb_plus(kind) and kind != p.PSBEND:
            return 0
        context = p.next_context(context, kind, payload)
        at += size


@inner
def _fup(data: U8, st: Any, rates: Any) -> Any:
    enabled = st["sub"] != 0
    if rates["errata"] & BDM70:
        void = _pge_follows(data, st)
        if void < 0:
            return void
        if void:
            enabled = False
    st["enabled"] = 1 if enabled else 0
    if enabled:
        e.take_ip(st, st["sub"], st["payload"])
    return MORE


@inner
def _mode_exec(st: Any, ev: Any) -> Any:
    bits = st["sub"]
    if not st["mode_valid"]:
        st["mode_valid"] = 1
        st["mode"] = bits
    elif (st["mode"] ^ bits) & (7 if st["iflags"] else 3):  # IF is tracked only where its changes are traced
        return BAD_STATUS
    e.clear(ev, e.EXEC_MODE)
    ev["status"] = 1
    ev["flags"] = exec_mode(bits)
    status = e.enqueue(st, ev, AT_PSBEND)
    if status < 0 or not st["iflags"]:
        return status
    e.clear(ev, e.IFLAGS)
    ev["status"] = 1
    ev["flags"] = 1 if bits & 4 else 0
    return e.enqueue(st, ev, AT_PSBEND)


@inner
def _inside(data: U8, st: Any, ev: Any, rates: Any) -> Any:
    """One packet of PSB+."""
    kind = st["kind"]
    if kind == p.FUP:
        return _fup(data, st, rates)
    if kind == p.MODE_EXEC:
        return _mode_exec(st, ev)
    if p.CBR <= kind <= p.CYC:
        status = timing.apply(st["clock"], kind, st["payload"], st["sub"], 1, rates)
        if status < 0 or kind != p.CBR:
            return status
        e.clear(ev, e.CBR)
    elif kind == p.MODE_TSX:
        e.clear(ev, e.TSX)
    elif kind == p.PIP:
        e.clear(ev, e.ASYNC_PAGING)
    elif kind == p.VMCS:
        e.clear(ev, e.ASYNC_VMCS)
    elif kind == p.MNT:
        e.clear(ev, e.MNT)
    elif kind in (p.INVALID, p.PAD):
        return MORE
    else:
        return BAD_CONTEXT
    ev["status"] = 0 if kind == p.MNT else 1
    ev["a"] = st["payload"]
    ev["flags"] = st["sub"]
    return e.enqueue(st, ev, AT_PSBEND)


@inner
def psb(data: U8, st: Any, ev: Any, rates: Any) -> Any:
    """Read a PSB+; the current packet is then the PSBEND or OVF that ends it → MORE, or an error."""
    if st["waiting"]:
        return BAD_CONTEXT
    st["sync"] = st["at"] - st["size"]
    e.forget_ip(st)
    st["enabled"] = 0
    e.clear(ev, e.NONE)  # on or off: the first event to be told is known last
    ev["status"] = 1
    if e.enqueue(st, ev, AT_PSBEND) < 0:
        return INTERNAL
    while True:
        kind = e.advance(data, st)
        if kind < 0:
            return st["error"]
        if kind == p.PSBEND:
            state = st["queue"][0]
            state["kind"] = e.ENABLED if st["enabled"] else e.DISABLED
            state["no_ip"] = 0 if st["enabled"] else 1
            return MORE
        if kind == p.OVF:
            # the FUP may have been lost: without one nothing is known
            if st["enabled"]:
                st["queue"][0]["kind"] = e.ENABLED
            else:
                e.remove(st, 0)
            return MORE
        status = _inside(data, st, ev, rates)
        if status < 0:
            return status


@inner
def psbend(st: Any, ev: Any) -> Any:
    if not e.dequeue(st, AT_PSBEND, ev):
        return MORE
    kind = ev["kind"]
    if kind in (e.ENABLED, e.EXEC_MODE, e.IFLAGS, e.TSX, e.ASYNC_PAGING, e.ASYNC_VMCS):
        e.put_ip(st, ev)
    e.put_time(st, ev)
    return EVENT


@inner
def header_fup(data: U8, at: Int, context: Int) -> Any:
    """Look for the FUP in the PSB+ that `at` stands in → 1 and (IPBytes, payload), 0 if there is none, or an error."""
    while True:
        kind, size, payload, sub = p.next_packet(data, at, data.size, context)
        if kind < 0:
            return (END if kind == p.CUT else BAD_CONTEXT), sub, payload
        if kind == p.FUP:
            return 1, sub, payload
        if ends_psb_plus(kind):
            return 0, sub, payload
        if not belongs_in_psb_plus(kind) and kind != p.INVALID:
            return BAD_CONTEXT, sub, payload
        context = p.next_context(context, kind, payload)
        at += size
