"""Where events take place: at an address, at an instruction of some kind, or wherever we are.

`trailing` answers whether the next event is at home right here, without walking; `to_event` walks to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import inner
from stages.messages import U8
from stages.pt.errata import BDM64, SKD022, SKL014
from stages.pt.errors import BAD_PACKET, END, INTERNAL
from stages.pt.events import event as e
from stages.pt.exact import instructions as i
from stages.pt.exact.branching import drop, forget_postponed, pass_postponed
from stages.pt.exact.walker import (
    AGAIN,
    BLOCK_ENDS,
    MISSING,
    NEEDS_TRACE,
    OK,
    PENDING,
    REACHED,
    follows_statically,
    pop,
    walk,
)
from stages.pt.packets import Int

_BDM64_STEPS = 0x100

# Where an event takes place, by kind
ANYWHERE, AT_IP, AT_INSTRUCTION, OTHERWISE = range(4)
PLACE = np.full(48, OTHERWISE, np.uint8)
for _kind in (e.OVERFLOW, e.STOPPED, e.PWRE, e.PWRX, e.CBR, e.MNT, e.TICK, e.ENABLED, e.RSM, e.SIPI):
    PLACE[_kind] = ANYWHERE
for _kind in (
    e.ASYNC_PAGING, e.ASYNC_VMCS, e.EXEC_MODE, e.TSX, e.EXSTOP, e.MWAIT, e.IFLAGS, e.INTERRUPT, e.SMI, e.INIT,
    e.VMEXIT, e.SHUTDOWN, e.UINTR, e.ASYNC_DISABLED, e.INTERRUPTED,
):  # fmt: skip
    PLACE[_kind] = AT_IP
_BINDS = np.zeros(48, np.uint16)  # the instructions it binds to
for _kind, _flag in (
    (e.PAGING, i.TAKES_PIP), (e.VMCS, i.TAKES_VMCS), (e.PTWRITE, i.IS_PTWRITE), (e.IRET, i.IS_IRET),
    (e.VMENTRY, i.IS_VMENTRY), (e.UIRET, i.IS_UIRET), (e.SWINTR, i.IS_SWINT), (e.SYSCALL, i.IS_SYSCALL),
):  # fmt: skip
    PLACE[_kind] = AT_INSTRUCTION
    _BINDS[_kind] = _flag


@inner
def _anchor(fl: Any, ev: Any) -> Any:
    """Give a TRIG the address from which it counts on."""
    if ev["no_ip"]:
        return INTERNAL
    if ev["ip"] != np.uint64(0):
        return OK
    if not fl["anchored"] or ev["count"] < fl["icnt"]:
        return BAD_PACKET
    ev["count"] -= fl["icnt"]
    ev["ip"] = fl["ip"]
    return OK


@inner
def _place_ip(ev: Any) -> Any:
    return ev["at"] if ev["kind"] in (e.ASYNC_DISABLED, e.INTERRUPTED) else ev["ip"]


@inner
def is_elsewhere(fl: Any, ev: Any) -> Any:
    """Whether an event with an address takes place at another than where we stand."""
    kind = ev["kind"]
    if kind in (e.ASYNC_DISABLED, e.INTERRUPTED):
        return ev["at"] != fl["ip"]
    if ev["no_ip"]:
        return False
    # with tracing off these have no address unless something is wrong; for the others ours is then void
    if not fl["enabled"] and kind not in (e.TSX, e.ASYNC_PAGING, e.ASYNC_VMCS):
        return False
    return ev["ip"] != fl["ip"]


@inner
def skd022(ev: Any, fl: Any, table: Any, slots: Any) -> Any:
    """Was this disable at a VM entry meant to be synchronous? → 1 (now it is), 0 or MISSING."""
    index = i.lookup(table, slots, ev["at"], fl["mode"])
    if index < 0:
        fl["missing"] = ev["at"]
        return MISSING
    if not table[index]["flags"] & i.IS_VMENTRY:
        return 0
    ev["kind"] = e.DISABLED
    return 1


@inner
def _bdm64(ev: Any, fl: Any, table: Any, slots: Any) -> Any:
    """Was the branch before this abort traced wrongly? Then it leads to the abort. → OK or MISSING"""
    last = fl["block_last"]
    if not ev["flags"] & e.ABORTED or last < 0 or table[last]["kind"] == i.PLAIN:
        return OK
    ip = fl["ip"]
    for _ in range(_BDM64_STEPS):
        if ip == ev["ip"]:
            return OK  # it can be reached: take it so
        index = i.lookup(table, slots, ip, fl["mode"])
        if index < 0:
            fl["missing"] = ip
            return MISSING
        static, ip = follows_statically(table, index)
        if not static:
            break
    fl["ip"] = ev["ip"]
    return OK


@inner
def _disable_resumes_at(fl: Any, table: Any, index: Int) -> None:
    """Where tracing may come on again after a disable at this instruction: after a call; else it is not known. A return
    out of the filter takes its entry off the stack like any other."""
    here = table[index]
    if here["kind"] == i.RETURN:
        pop(fl)
    call = here["kind"] in (i.INDIRECT_CALL, i.CALL, i.FAR_CALL)
    fl["ip"] = here["ip"] + np.uint64(here["size"]) if call else np.uint64(0)


@inner
def _trailing_disabled(ev: Any, fl: Any, table: Any) -> Any:
    index = fl["postponed"]
    if index < 0:
        return PENDING if ev["status"] else OK
    if ev["no_ip"] and table[index]["flags"] & i.SETS_CR3:
        return PENDING
    static, ip = follows_statically(table, index)
    if not static:
        _disable_resumes_at(fl, table, index)
        return PENDING
    fl["ip"] = ip
    forget_postponed(fl)
    return PENDING if not ev["no_ip"] and ip == ev["ip"] else OK


@inner
def trailing(ev: Any, rates: Any, fl: Any, table: Any, slots: Any, after_block: Int) -> Any:
    """Is the next event at home here? → PENDING, OK (no), AGAIN (ask again with the event after it), WANTS_TIP,
    MISSING or an error."""
    if fl["error"] == 0 and ev["kind"] == e.TNT:
        if fl["ticks"] and after_block and ev["has_tsc"] and ev["tsc"] != fl["tsc"]:
            last = fl["block_last"]
            if last >= 0 and table[last]["kind"] in (i.CONDITIONAL, i.RETURN):
                return PENDING
        elif ev["count"] == 0:
            status = drop(ev, fl)
            return status if status < 0 else AGAIN
    if fl["error"] < 0:
        status = pass_postponed(ev, fl, table)
        return status if status != OK or fl["error"] == END else PENDING
    kind = ev["kind"]
    place = PLACE[kind]
    result = OK
    if place == AT_INSTRUCTION:
        if not fl["enabled"]:
            return PENDING
        index = fl["postponed"]
        if index >= 0 and not fl["bound"] >> kind & 1:
            exact = kind in (e.PAGING, e.VMCS) or ev["no_ip"]
            if exact and table[index]["flags"] & _BINDS[kind]:
                fl["bound"] |= 1 << kind
                return PENDING
    elif kind == e.DISABLED:
        result = _trailing_disabled(ev, fl, table)
        if result != OK:
            return result
    elif place == ANYWHERE:
        result = PENDING
    elif kind == e.TRIG:
        status = pass_postponed(ev, fl, table)
        if status != OK:
            return status
        if not fl["enabled"] or ev["no_ip"]:
            return PENDING
        status = _anchor(fl, ev)
        if status < 0:
            return status
        if ev["count"] == 0:
            return PENDING if ev["ip"] == fl["ip"] else BAD_PACKET
    elif place == AT_IP:
        status = pass_postponed(ev, fl, table)
        if status != OK:
            return status
        may_be_bdm64 = kind == e.TSX and after_block and not ev["no_ip"] and rates["errata"] & BDM64
        if may_be_bdm64 and _bdm64(ev, fl, table, slots) == MISSING:
            return MISSING
        if not is_elsewhere(fl, ev):
            if kind == e.ASYNC_DISABLED and rates["errata"] & SKD022:
                struck = skd022(ev, fl, table, slots)
                return MISSING if struck == MISSING else OK if struck else PENDING
            result = PENDING
    status = pass_postponed(ev, fl, table)
    return result if status == OK else status


@inner
def _is_traced(filters: Any, ip: Int) -> Any:
    """Whether the IP filter lets `ip` through. `filters` uint64[n, 3]: kind (1 filter, 2 stop), first, last."""
    inside = False
    filtered = False
    for n in range(filters.shape[0]):
        hit = filters[n, 1] <= ip <= filters[n, 2]
        if filters[n, 0] == np.uint64(2) and hit:
            return False
        if filters[n, 0] == np.uint64(1):
            filtered = True
            inside |= hit
    return inside or not filtered


@inner
def _to_disabled(ev: Any, rates: Any, fl: Any, table: Any, slots: Any, out: Any, speculative: U8, filters: Any) -> Any:
    """To where tracing went off synchronously: the address, or a MOV CR3, or the next branch that needs a packet."""
    if not ev["no_ip"]:
        return walk(fl, table, slots, out, speculative, 0, ev["ip"], 1)
    if not (rates["errata"] & SKL014 and filters.shape[0]):
        return walk(fl, table, slots, out, speculative, i.SETS_CR3, np.uint64(0), 0)
    while True:  # or a direct branch out of the filter
        status = walk(fl, table, slots, out, speculative, i.SETS_CR3 | i.IS_DIRECT, np.uint64(0), 0)
        if status != REACHED or table[fl["last"]]["flags"] & i.SETS_CR3:
            return status
        target = table[fl["last"]]["target"]
        if not _is_traced(filters, target):
            return REACHED
        fl["ip"] = target
        kind = table[fl["last"]]["kind"]
        if (kind == i.CALL and fl["end_on_call"]) or (kind == i.JUMP and fl["end_on_jump"]):
            return BLOCK_ENDS


@inner
def _to_trig(ev: Any, fl: Any, table: Any, slots: Any, out: Any, speculative: U8) -> Any:
    if ev["no_ip"]:
        return REACHED
    status = _anchor(fl, ev)
    if status < 0:
        return status
    if not fl["enabled"]:
        return REACHED if ev["count"] else INTERNAL
    status = walk(fl, table, slots, out, speculative, 0, ev["ip"], 1)
    while status == REACHED and ev["count"]:
        status = walk(fl, table, slots, out, speculative, i.IS_INSTRUCTION, np.uint64(0), 0)
        if status != REACHED:
            break
        static, ip = follows_statically(table, fl["last"])
        if not static:
            return NEEDS_TRACE
        fl["ip"] = ip
        fl["steps"] = 0
        ev["ip"] = ip
        ev["count"] -= 1
    return status


@inner
def to_event(ev: Any, rates: Any, fl: Any, table: Any, slots: Any, out: Any, speculative: U8, filters: Any) -> Any:
    """Walk to where the next event takes place → PENDING, or the cause that stopped the walk."""
    kind = ev["kind"]
    place = PLACE[kind]
    status = REACHED
    if place == AT_IP:
        asynchronous = kind in (e.ASYNC_DISABLED, e.INTERRUPTED)
        anywhere = ev["no_ip"] or (kind in (e.EXSTOP, e.MWAIT) and not fl["enabled"])
        if asynchronous or not anywhere:
            status = walk(fl, table, slots, out, speculative, 0, _place_ip(ev), 1)
        if status == REACHED and kind == e.ASYNC_DISABLED and rates["errata"] & SKD022:
            struck = skd022(ev, fl, table, slots)
            if struck:
                return MISSING if struck == MISSING else BLOCK_ENDS  # once more, as a synchronous one
    elif place == AT_INSTRUCTION:
        if not fl["enabled"]:
            return PENDING
        if kind in (e.PAGING, e.VMCS) or ev["no_ip"]:
            status = walk(fl, table, slots, out, speculative, _BINDS[kind], np.uint64(0), 0)
        else:
            status = walk(fl, table, slots, out, speculative, 0, ev["ip"], 1)
            if kind in (e.SWINTR, e.SYSCALL):  # told before the instruction, which an interrupt or a TIP then passes
                return PENDING if status == REACHED else status
            if status == REACHED:
                status = walk(fl, table, slots, out, speculative, i.IS_INSTRUCTION, np.uint64(0), 0)
        if status == REACHED:
            fl["postponed"] = fl["last"]
            fl["bound"] = 1 << kind
    elif kind == e.DISABLED and not ev["status"]:
        status = _to_disabled(ev, rates, fl, table, slots, out, speculative, filters)
        if status == NEEDS_TRACE:
            _disable_resumes_at(fl, table, fl["last"])
            status = REACHED
    elif kind == e.TRIG:
        status = _to_trig(ev, fl, table, slots, out, speculative)
    return PENDING if status == REACHED else status
