"""Passing one instruction that needs a packet, and the instruction that was held back for more events.

A used-up event is *dropped*: the next is fetched by `flow.run`, in one place, before anything asks for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import inner
from stages.pt.errors import BAD_INSTRUCTION, BAD_MATCH, BAD_PACKET, BAD_RETURN, INTERNAL
from stages.pt.events import event as e
from stages.pt.exact import instructions as i
from stages.pt.exact.walker import DROPPED, OK, WANTS_TIP, follows_statically, pop
from stages.pt.packets import Int


@inner
def drop(ev: Any, fl: Any) -> Any:
    """Done with an event → OK or an error."""
    fl["tsc"] = ev["tsc"]
    fl["has_tsc"] = ev["has_tsc"]
    fl["steps"] = 0
    fl["dropped"] = DROPPED
    # a TRIG's instruction count is counted from the last address in the trace
    kind = ev["kind"]
    if kind in (e.DISABLED, e.ASYNC_DISABLED) or (kind == e.OVERFLOW and ev["no_ip"]):
        fl["anchored"] = 0
        fl["icnt"] = 0
    elif kind in (e.ENABLED, e.INTERRUPTED, e.TIP, e.TNT):
        if ev["no_ip"]:
            return INTERNAL
        fl["anchored"] = 1
        fl["icnt"] = 0
    elif not ev["no_ip"] and kind not in (
        e.PAGING, e.SIPI, e.CBR, e.MNT, e.STOPPED, e.VMCS, e.MWAIT, e.PWRE, e.PWRX,
    ):  # fmt: skip
        fl["anchored"] = 1
        fl["icnt"] = 0
    return OK


@inner
def _indirect(ev: Any, fl: Any) -> Any:
    """Go where the next TIP says → OK, WANTS_TIP or an error."""
    if ev["kind"] == e.TNT:
        return WANTS_TIP  # deferred: the processor may put the bits of later branches first
    if ev["kind"] != e.TIP:
        return BAD_MATCH
    if ev["no_ip"]:
        return BAD_PACKET
    ip = fl["ip"]
    fl["ip"] = ev["ip"]
    if fl["ticks"] and ev["tsc"] != fl["tsc"]:
        ev["kind"] = e.TICK
        ev["ip"] = ip
        return OK
    return drop(ev, fl)


@inner
def _bit(ev: Any) -> Any:
    """The next TNT bit. The event stays until it is known that no tick is to be made of it."""
    if ev["kind"] != e.TNT:
        return BAD_MATCH
    if ev["count"] <= 0:
        return INTERNAL
    ev["count"] -= 1
    return np.int64((ev["a"] >> np.uint64(ev["count"])) & np.uint64(1))


@inner
def branch(ev: Any, fl: Any, table: Any, index: Int) -> Any:
    """Pass instruction `index` as the trace says → OK, WANTS_TIP (goes where the TIP behind the TNT says) or an
    error."""
    here = table[index]
    kind = here["kind"]
    fl["steps"] = 0
    if kind == i.CONDITIONAL:
        taken = _bit(ev)
        if taken < 0:
            return taken
        fl["ip"] = here["target"] if taken else here["ip"] + np.uint64(here["size"])
        return OK
    if kind == i.RETURN:
        if ev["kind"] == e.TNT:
            taken = _bit(ev)
            if taken <= 0:
                return taken if taken < 0 else BAD_RETURN
            status, ip = pop(fl)
            if status == OK:
                fl["ip"] = ip
            return status
        status = _indirect(ev, fl)
        if status == OK:
            pop(fl)
        return status
    if kind < i.FIRST_THAT_NEEDS_TRACE:
        return INTERNAL
    if kind >= i.UNMAPPED:
        return BAD_INSTRUCTION
    return _indirect(ev, fl)


@inner
def forget_postponed(fl: Any) -> None:
    fl["postponed"] = -1
    fl["bound"] = 0


@inner
def pass_postponed(ev: Any, fl: Any, table: Any) -> Any:
    """→ OK, WANTS_TIP or an error"""
    index = fl["postponed"]
    if index < 0:
        return OK
    if fl["enabled"]:
        static, ip = follows_statically(table, index)
        if static:
            fl["ip"] = ip
        else:
            status = branch(ev, fl, table, index)
            if status < 0:
                return status
            forget_postponed(fl)
            return status
    forget_postponed(fl)
    return OK
