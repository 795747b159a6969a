"""OVF: packets were lost, and how the trace goes on.

If tracing is on when the overflow is over, a FUP says where execution is; only timing packets stand between. Anything
else after the OVF means that tracing was off by then, and a TIP.PGE turns it on. So: look for the FUP; the first
packet that may not stand before it decides. Three errata blur this (`errata`): SKD010 loses the FUP or TIP.PGE,
APL11 adds a TIP.PGD, APL12 adds a FUP. For each, the packets behind tell whether it struck.
"""

from __future__ import annotations

from typing import Any

from jvm.kernels import inner
from stages.messages import U8
from stages.pt import packets as p
from stages.pt import timing
from stages.pt.errata import APL11, APL12, SKD010
from stages.pt.errors import BAD_CONTEXT, BAD_OPCODE, BAD_PACKET, END, INTERNAL
from stages.pt.events import event as e
from stages.pt.events.event import AT_BOUND_FUP, AT_EXSTOP, AT_FUP, AT_PWRX, AT_TIP, EVENT, LAST, MORE
from stages.pt.events.psb import header_fup, psbend
from stages.pt.packets import Int

_NOT_STRUCK = 1  # an erratum did not, or that cannot be told


@inner
def _fup_offset(data: U8, st: Any) -> Any:
    """Bytes up to the end of the FUP that ends the overflow; 0: tracing is off; or an error."""
    at = st["at"]
    context = st["context"]
    while True:
        kind, size, payload, _ = p.next_packet(data, at, data.size, context)
        if kind < 0:
            return END if kind == p.CUT else BAD_OPCODE if kind == p.UNKNOWN else BAD_PACKET
        at += size
        if kind == p.FUP:
            return at - st["at"]
        if kind in (p.PSBEND, p.TIP, p.TIP_PGD, p.TNT_8, p.TNT_64):
            return BAD_CONTEXT
        if not (p.CBR <= kind <= p.CYC or kind in (p.PAD, p.MNT, p.INVALID)):
            return 0
        context = p.next_context(context, kind, payload)


@inner
def _remember(st: Any) -> None:
    st["spare"] = st["clock"]
    st["spare_size"] = st["size"]


@inner
def _give_up(st: Any, at: Int, context: Int, status: Int) -> Any:
    st["kind"] = p.OVF
    st["size"] = st["spare_size"]
    st["at"] = at
    st["context"] = context
    st["clock"] = st["spare"]
    return status


@inner
def _resume_at(st: Any, ev: Any, ip_bytes: Int, payload: Int) -> Any:
    e.take_ip(st, ip_bytes, payload)
    st["enabled"] = 1
    e.put_ip(st, ev)
    return EVENT


@inner
def _new(st: Any, ev: Any) -> None:
    """The overflow, with the time before it: the next event tells how long it took."""
    e.clear(ev, e.OVERFLOW)
    e.put_time(st, ev)


@inner
def _skd010(data: U8, st: Any, ev: Any, rates: Any) -> Any:
    """Is tracing on though no FUP said so? Then resume at the next address → an event, else _NOT_STRUCK."""
    at = st["at"]
    context = st["context"]
    _remember(st)
    _new(st, ev)
    tsx = -1  # a MODE.TSX passed on the way
    while True:
        kind = e.advance(data, st)
        if kind < 0:
            error = st["error"]
            return _give_up(st, at, context, _NOT_STRUCK if error == END else error)
        if kind == p.TIP_PGD:
            ev["no_ip"] = 1
            return LAST
        if kind == p.FUP:
            if tsx >= 0:
                ev["kind"] = e.TSX
                ev["flags"] = tsx
                status = e.enqueue(st, ev, AT_BOUND_FUP)
                if status < 0:
                    return status
                ev["kind"] = e.OVERFLOW
                ev["flags"] = 0
            return _resume_at(st, ev, st["sub"], st["payload"])  # the FUP stays the current packet
        if kind == p.TIP:
            _resume_at(st, ev, st["sub"], st["payload"])
            return LAST
        if kind == p.PSB:
            found, ip_bytes, payload = header_fup(data, st["at"], st["context"])
            if found <= 0:
                return _give_up(st, at, context, _NOT_STRUCK if found in (0, END) else found)
            return _resume_at(st, ev, ip_bytes, payload)  # the PSB stays the current packet
        if kind == p.MODE_TSX:
            if tsx >= 0:
                return _give_up(st, at, context, _NOT_STRUCK)
            tsx = st["sub"]
        elif p.CBR <= kind <= p.CYC:
            status = timing.apply(st["clock"], kind, st["payload"], st["sub"], 0, rates)
            if status < 0:
                return _give_up(st, at, context, status)
        elif kind == p.PSBEND:
            return _give_up(st, at, context, BAD_CONTEXT)
        elif not (
            kind in (p.PIP, p.VMCS, p.MODE_EXEC, p.PAD, p.MNT, p.PWRE, p.PWRX, p.EVD, p.TRIG)
            or (kind in (p.EXSTOP, p.PTW, p.CFE) and not st["sub"] & p.IP_FLAG)
        ):
            # TIP.PGE, OVF, TraceStop: all is well; TNT: something is wrong, but where to go on cannot be told
            return _give_up(st, at, context, _NOT_STRUCK)


@inner
def _apl11(data: U8, st: Any, ev: Any, rates: Any) -> Any:
    """Was there a TIP.PGD too many? Go on after it, tracing off → an event, else _NOT_STRUCK."""
    at = st["at"]
    context = st["context"]
    _remember(st)
    _new(st, ev)
    while True:
        kind = e.advance(data, st)
        if kind < 0:
            return _give_up(st, at, context, st["error"])
        if kind == p.TIP_PGD:
            ev["no_ip"] = 1
            return LAST
        if p.CBR <= kind <= p.CYC:
            status = timing.apply(st["clock"], kind, st["payload"], st["sub"], 0, rates)
            if status < 0:
                return _give_up(st, at, context, status)
        elif kind not in (p.PAD, p.MNT, p.CFE, p.EVD, p.TRIG):
            return _give_up(st, at, context, _NOT_STRUCK)


@inner
def _is_off_after(data: U8, at: Int, context: Int) -> Any:
    """APL12: is tracing off after the FUP that ends at `at`? 1, 0 (on, or not known) or an error."""
    while True:
        kind, size, payload, _ = p.next_packet(data, at, data.size, context)
        if kind < 0:
            return 0 if kind == p.CUT else BAD_OPCODE if kind == p.UNKNOWN else BAD_PACKET
        context = p.next_context(context, kind, payload)
        at += size
        if kind in (p.STOP, p.TIP_PGE):
            return 1
        if kind in (p.TNT_8, p.TNT_64, p.TIP, p.TIP_PGD, p.PSBEND, p.OVF, p.INVALID):
            return 0
        if kind == p.PSB:
            found, _, _ = header_fup(data, at, context)
            if found == 0:
                return 1
            return 0 if found in (1, END) else found


@inner
def _apl12(data: U8, st: Any, ev: Any, rates: Any, end: Int) -> Any:
    """Was the FUP that ends at `end` void? Go on after it, tracing off → an event, else _NOT_STRUCK."""
    off = _is_off_after(data, end, st["context"])
    if off <= 0:
        return _NOT_STRUCK if off == 0 else off
    while e.advance(data, st) >= 0 and st["at"] < end:
        if p.CBR <= st["kind"] <= p.CYC:
            status = timing.apply(st["clock"], st["kind"], st["payload"], st["sub"], 0, rates)
            if status < 0:
                return status
    if st["at"] != end:
        return INTERNAL
    e.clear(ev, e.OVERFLOW)
    ev["no_ip"] = 1
    return e.standalone(st, ev)


@inner
def _flush(st: Any, ev: Any) -> Any:
    """Tell an event that was waiting when the packets it waited for got lost. With tracing on it cannot be placed:
    dropped."""
    if st["enabled"]:
        return MORE
    while e.dequeue(st, AT_BOUND_FUP | AT_FUP | AT_TIP | AT_EXSTOP | AT_PWRX, ev):
        kind = ev["kind"]
        if kind in (e.PWRE, e.RSM, e.SIPI):
            return EVENT
        if kind in (
            e.EXSTOP, e.MWAIT, e.PTWRITE, e.TSX, e.EXEC_MODE, e.IFLAGS, e.INTERRUPT, e.IRET, e.SMI, e.INIT, e.VMENTRY,
            e.VMEXIT, e.SHUTDOWN, e.UINTR, e.UIRET, e.TRIG, e.SWINTR, e.SYSCALL,
        ):  # fmt: skip
            ev["no_ip"] = 1
            return EVENT
    return MORE


@inner
def ovf(data: U8, st: Any, ev: Any, rates: Any) -> Any:
    if psbend(st, ev) == EVENT:
        return EVENT
    if _flush(st, ev) == EVENT:
        return EVENT
    e.reset(st)
    if rates["keep_calibration"]:
        timing.interrupt_calibration(st["clock"])
    else:
        timing.forget_calibration(st["clock"])
    offset = _fup_offset(data, st)
    if offset <= 0:
        if rates["errata"] & SKD010:
            status = _skd010(data, st, ev, rates)
            if status != _NOT_STRUCK:
                return status
        if rates["errata"] & APL11 and offset == BAD_CONTEXT:
            status = _apl11(data, st, ev, rates)
            if status != _NOT_STRUCK:
                return status
        if offset < 0 and offset != END:
            return offset
        _new(st, ev)
        ev["no_ip"] = 1
        return LAST
    if rates["errata"] & APL12:
        status = _apl12(data, st, ev, rates, st["at"] + offset)
        if status != _NOT_STRUCK:
            return status
    _new(st, ev)
    return e.enqueue(st, ev, AT_BOUND_FUP)
