"""Flow: events + machine code → every executed instruction, and the events at their places between them.

The trace says only as much as the code leaves open. So the decoder always holds the next event and asks where it takes
place: here, at an address further on, at the next instruction of some kind, or (TNT, TIP) at the next branch
(`places`). It walks there (`walker`), tells the event, fetches the next. Before walking on after a branch it looks
whether the next event is at home right where it stands. An instruction that one event bound to (a PTWRITE, a far branch
with a PIP) is *postponed*: passed only when no other event of another kind binds to it too.

`run` is a state machine that can stop anywhere its output is full or an instruction is not decoded yet, and go on
there. Places and order of events are libipt's, which users of such output compare with. One difference: the return
stack is popped at every near RET, compressed or not, as the SDM has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import inner, kernel
from stages.messages import U8
from stages.pt.errata import SKD022
from stages.pt.errors import (
    BAD_CONTEXT,
    BAD_MATCH,
    BAD_STATUS,
    END,
    IGNORED_EVENT,
    NO_IP,
    NOT_ENABLED,
)
from stages.pt.events import event as e
from stages.pt.events.decoder import next_event, sync
from stages.pt.events.places import AT_INSTRUCTION, AT_IP, PLACE, is_elsewhere, skd022, to_event, trailing
from stages.pt.exact.branching import branch, drop, forget_postponed
from stages.pt.exact.walker import (
    AGAIN,
    BLOCK_ENDS,
    FULL,
    MISSING,
    NEEDS_TRACE,
    NO_EVENT_YET,
    OK,
    PENDING,
    WANTS_PSB,
    WANTS_TIP,
    after,
    walk,
)
from stages.pt.packets import Int

# phases; their numbers are none of a walk's results
SYNC, NEXT, PROCEED, TRAILING_BLOCK, TRAILING, TELL, RESYNC, DONE = range(32, 40)
RESYNC_ERROR = 1  # `vector` of an ERROR event: happened while resynchronising
_EVENTS_A_STEP = 4  # room that one step of the state machine may need


@inner
def _take_effect(ev: Any, fl: Any) -> Any:
    """Applies an event to the position → OK or an error."""
    kind = ev["kind"]
    if (PLACE[kind] == AT_IP or kind in (e.TRIG, e.SWINTR, e.SYSCALL)) and is_elsewhere(fl, ev):
        return BAD_MATCH
    if kind == e.TIP:
        return BAD_MATCH
    if kind == e.ENABLED:
        if ev["ip"] == fl["ip"]:
            ev["flags"] = e.RESUMED
        if ev["status"]:
            return OK if fl["enabled"] else BAD_STATUS
        if ev["no_ip"]:
            return NO_IP
        if fl["enabled"]:
            return BAD_CONTEXT
        fl["ip"] = ev["ip"]
        fl["enabled"] = 1
    elif kind in (e.DISABLED, e.ASYNC_DISABLED):
        if ev["status"]:
            return BAD_STATUS if fl["enabled"] else OK
        if not fl["enabled"]:
            return BAD_CONTEXT
        fl["enabled"] = 0  # fl["ip"] stays: from there tracing may be resumed
        fl["icnt"] = 0
    elif kind == e.INTERRUPTED:
        if not fl["enabled"]:
            return BAD_CONTEXT
        fl["ip"] = ev["ip"]
    elif kind == e.OVERFLOW:
        fl["enabled"] = 0 if ev["no_ip"] else 1
        fl["ip"] = ev["ip"]
        fl["speculative"] = 0
    elif kind == e.EXEC_MODE:
        known = fl["mode"] != e.MODE_UNKNOWN
        if ev["status"] and fl["enabled"] and known and fl["mode"] != ev["flags"]:
            return BAD_STATUS
        fl["mode"] = ev["flags"]
    elif kind == e.TSX:
        fl["speculative"] = ev["flags"] & e.INTX
    elif kind == e.STOPPED and fl["enabled"]:
        return BAD_CONTEXT
    return OK


@inner
def _emit(ev: Any, fl: Any, events: Any) -> Any:
    """Append a copy of `ev` to the output; → it."""
    told = events[fl["events"]]
    e.copy(told, ev)
    told["index"] = fl["out"]
    fl["events"] += 1
    return told


@inner
def _tell(ev: Any, fl: Any, events: Any) -> Any:
    """The event at home here: take it into account, tell it."""
    if fl["error"] < 0:
        return fl["error"]
    if ev["kind"] == e.TNT:  # a tick, at the first of its bits that is used
        if not fl["ticks"] or not ev["has_tsc"] or ev["tsc"] == fl["tsc"]:
            return BAD_MATCH
        told = _emit(ev, fl, events)
        told["kind"] = e.TICK
        told["ip"] = fl["ip"]
        told["no_ip"] = 0
        fl["has_tsc"] = 1
        fl["tsc"] = ev["tsc"]
        return drop(ev, fl) if ev["count"] == 0 else OK
    status = _take_effect(ev, fl)
    if status < 0:
        return status
    _emit(ev, fl, events)
    return drop(ev, fl)


@inner
def _tell_error(st: Any, fl: Any, table: Any, events: Any, error: Int, resyncing: Int) -> None:
    told = events[fl["events"]]
    e.clear(told, e.ERROR)
    last = fl["block_last"]
    if last < 0:
        told["ip"] = fl["block_ip"]
    elif error == BAD_MATCH:  # concerns the last instruction; all others the place after it
        told["ip"] = table[last]["ip"]
    else:
        told["ip"] = after(table, last)
    told["a"] = np.uint64(st["at"] - st["size"])
    told["count"] = error
    told["vector"] = resyncing
    told["index"] = fl["out"]
    fl["events"] += 1


@inner
def _begin(st: Any, fl: Any) -> None:
    """State of the flow at a PSB whose PSB+ has been read."""
    fl["tsc"] = np.uint64(0)
    fl["has_tsc"] = 0
    fl["ip"] = np.uint64(0)
    fl["mode"] = e.MODE_UNKNOWN
    fl["enabled"] = 0
    fl["speculative"] = 0
    fl["anchored"] = 0
    fl["icnt"] = 0
    fl["steps"] = 0
    fl["depth"] = 0
    forget_postponed(fl)
    fl["error"] = OK
    fl["dropped"] = NO_EVENT_YET
    if st["waiting"] and st["queue"][0]["kind"] == e.ENABLED:
        fl["enabled"] = 1
        if st["have_ip"] and not st["suppressed"]:
            fl["ip"] = st["last_ip"]


@inner
def _resync_disabled(ev: Any, fl: Any) -> Any:
    fl["enabled"] = 0
    fl["ip"] = np.uint64(0)
    fl["icnt"] = 0
    status = drop(ev, fl)
    return TRAILING if status == OK else status


@inner
def _resync(ev: Any, rates: Any, fl: Any, table: Any, slots: Any) -> Any:
    """After an error: the next event that tells where we are → PENDING (it is to be told), TRAILING, NEXT,
    AGAIN (this one does not: ask with the next), WANTS_PSB (begin its PSB+ anew), MISSING or an error."""
    forget_postponed(fl)
    if fl["error"] < 0:
        return fl["error"]
    kind = ev["kind"]
    if ev["status"]:  # inside a PSB+, it is not known how far: from its PSB anew
        return WANTS_PSB
    if kind == e.ENABLED:
        fl["enabled"] = 0
        return PENDING
    if kind == e.OVERFLOW:
        return PENDING
    if kind == e.DISABLED:
        return _resync_disabled(ev, fl)
    if kind == e.TIP:
        fl["ip"] = ev["ip"]
        status = drop(ev, fl)
        return TRAILING if status == OK else status
    if kind in (e.ASYNC_DISABLED, e.INTERRUPTED):
        fl["ip"] = ev["at"]
        if kind == e.ASYNC_DISABLED and rates["errata"] & SKD022:
            struck = skd022(ev, fl, table, slots)
            if struck:  # MISSING, or now a synchronous one
                return MISSING if struck == MISSING else _resync_disabled(ev, fl)
        return PENDING
    if kind in (e.EXEC_MODE, e.TSX, e.IFLAGS, e.INTERRUPT):
        fl["enabled"] = 0 if ev["no_ip"] else 1
        if not ev["no_ip"]:
            fl["ip"] = ev["ip"]
        return PENDING
    if kind == e.PTWRITE and ev["no_ip"]:
        return IGNORED_EVENT
    is_placed = PLACE[kind] in (AT_IP, AT_INSTRUCTION) or kind == e.TICK
    if is_placed and not ev["no_ip"] and kind not in (e.PAGING, e.VMCS):
        fl["ip"] = ev["ip"]
        return NEXT if kind in (e.PTWRITE, e.VMENTRY, e.UIRET) else PENDING
    status = drop(ev, fl)
    return AGAIN if status == OK else status


@inner
def _told(fl: Any, events: Any, kind: Int) -> Any:
    """Append an event of our own to the output; → it."""
    told = events[fl["events"]]
    e.clear(told, kind)
    told["no_ip"] = 1
    told["index"] = fl["out"]
    fl["events"] += 1
    return told


@inner
def _proceed(
    ev: Any, rates: Any, fl: Any, table: Any, slots: Any, filters: Any, out: Any, speculative: U8, events: Any
) -> Any:
    """Walk one block, to the next branch or to the next event → as `walk` and `branch`; PENDING at an event."""
    if fl["phase"] == NEXT:
        if fl["error"] < 0:
            return fl["error"]
        fl["block_ip"] = fl["ip"]
        fl["block_last"] = -1
        fl["block_size"] = 0
        fl["block_speculative"] = fl["speculative"]
        fl["blocks"] += 1
        fl["phase"] = PROCEED
        if fl["tell_blocks"]:
            _told(fl, events, e.BLOCK)["a"] = np.uint64(fl["blocks"])
    if ev["kind"] not in (e.TNT, e.TIP):
        status = to_event(ev, rates, fl, table, slots, out, speculative, filters)
        if status == BLOCK_ENDS:
            fl["phase"] = NEXT
            return AGAIN
        return BAD_MATCH if status == NEEDS_TRACE else status
    if not fl["enabled"]:
        return NOT_ENABLED
    status = walk(fl, table, slots, out, speculative, 0, np.uint64(0), 0)
    if status == NEEDS_TRACE:
        return branch(ev, fl, table, fl["last"])
    return OK if status == BLOCK_ENDS else status


@inner
def _after_error(st: Any, fl: Any, phase: Int) -> Any:
    """The phase to go on with: resynchronise here if that is wanted and has not just failed here, else at a PSB."""
    if not fl["resync"] or phase in (SYNC, RESYNC):
        return SYNC
    if fl["resync_at"] == st["at"] and fl["resync_waiting"] == st["waiting"]:
        return SYNC
    fl["resync_at"] = st["at"]
    fl["resync_waiting"] = st["waiting"]
    return RESYNC


@kernel
def run(
    data: U8, states: Any, evs: Any, rates: Any, flows: Any, table: Any, slots: Any, filters: Any,
    out: Any, speculative: U8, events: Any,
) -> Any:  # fmt: skip
    """Go on until the trace ends → DONE, or FULL (take the output), or MISSING (decode fl["missing"]); then again.

    `data` uint8[:] the trace; `states` STATE_DTYPE[2], `evs` EVENT_DTYPE[2] (the second of each for looking ahead),
    `rates` a RATES_DTYPE record, `flows` FLOW_DTYPE[1]; `table`, `slots` as in `Instructions`; `filters` uint64[n, 3].
    Output: `out` uint64[:] addresses and `speculative` uint8[:] (in a transaction), fl["out"] of them; `events`
    EVENT_DTYPE[:], fl["events"] of them, each with the number of instructions before it in `index`.
    """
    st = states[0]
    ev = evs[0]
    fl = flows[0]
    while fl["phase"] != DONE:
        if fl["events"] + _EVENTS_A_STEP > events.size:
            return FULL
        if fl["dropped"] == NO_EVENT_YET and not fl["enabled"]:
            # Tracing is off: the next event must come without an error, else this is no beginning; and must not say
            # that tracing is on without having gone on (a PSB+ with a FUP right behind one without).
            states[1] = states[0]
            status = OK
            evs[1]["status"] = 1
            while status == OK and evs[1]["status"] and st["at"] == states[1]["at"]:
                status = next_event(data, st, evs[1], rates)
                if status == OK and evs[1]["status"] and evs[1]["kind"] == e.ENABLED:
                    fl["enabled"] = 1
                    fl["ip"] = evs[1]["ip"]
            states[0] = states[1]
            if status < 0 and status != END:
                _tell_error(st, fl, table, events, status, 0)
                fl["dropped"] = 0
                fl["phase"] = SYNC
                continue
        if fl["dropped"]:
            fl["dropped"] = 0
            fl["error"] = next_event(data, st, ev, rates)
            if fl["error"] < 0:
                e.clear(ev, e.NONE)
        phase = fl["phase"]
        if phase == SYNC:
            fl["block_ip"] = np.uint64(0)
            fl["block_last"] = -1
            status = sync(data, st, ev, rates, 0)
            if status == OK:
                _begin(st, fl)
                fl["phase"] = TRAILING
                continue
            if status == END:
                if st["at"] < data.size:  # inside a PSB+
                    _tell_error(st, fl, table, events, END, 0)
                fl["phase"] = DONE
                continue
        elif phase in (TRAILING, TRAILING_BLOCK):
            status = trailing(ev, rates, fl, table, slots, phase == TRAILING_BLOCK)
        elif phase == TELL:
            status = _tell(ev, fl, events)
            if status == OK:
                fl["phase"] = TRAILING
                continue
        elif phase == RESYNC:
            status = _resync(ev, rates, fl, table, slots)
            if status == IGNORED_EVENT:
                status = _tell(ev, fl, events)
                status = AGAIN if status == OK else status
            elif status == WANTS_PSB:
                status = sync(data, st, ev, rates, 1)
                if status == OK:
                    _begin(st, fl)
                    status = TRAILING
        else:
            status = _proceed(ev, rates, fl, table, slots, filters, out, speculative, events)
        if status == WANTS_TIP:  # take it out from behind the TNT in use
            states[1] = states[0]
            if next_event(data, st, evs[1], rates) == OK and evs[1]["kind"] == e.TIP:
                fl["ip"] = evs[1]["ip"]
                status = OK
            else:
                states[0] = states[1]
                status = BAD_MATCH
        if status in (MISSING, FULL):
            return status
        if status == AGAIN:
            continue
        if status < 0:
            _tell_error(st, fl, table, events, status, RESYNC_ERROR if phase == RESYNC else 0)
            fl["phase"] = _after_error(st, fl, phase)
        elif phase == RESYNC:
            if not fl["enabled"]:
                _told(fl, events, e.DISABLED)
            fl["phase"] = TELL if status == PENDING else status
        elif status == PENDING:
            fl["phase"] = TELL
        elif phase in (NEXT, PROCEED):
            fl["phase"] = TRAILING_BLOCK
        elif fl["error"] == END:  # nothing more comes
            if st["at"] < data.size:  # but the beginning of a packet
                _tell_error(st, fl, table, events, END, 0)
            elif fl["enabled"]:
                _told(fl, events, e.END_OF_TRACE)
            fl["phase"] = DONE
        else:
            fl["phase"] = NEXT
    return DONE
