"""Events of Event Trace: CFE (a control flow event happened) with the EVDs (more about it) before it.

An EVD waits for its CFE. A CFE with the IP bit stands at the FUP that follows and has it for itself. Without that
bit, but with tracing on, some kinds share the FUP of the asynchronous branch that they are the reason of.
"""

from __future__ import annotations

from typing import Any

from jvm.kernels import inner
from stages.pt.errors import BAD_CONTEXT, BAD_PACKET
from stages.pt.events import event as e
from stages.pt.events.event import AT_BOUND_FUP, AT_CFE, AT_FUP, MORE
from stages.pt.packets import IP_FLAG, Int

# CFE types (SDM vol. 3, "CFE Packet Type and Vector Fields")
(_, INTR, IRET, SMI, RSM, SIPI, INIT, VMENTRY, VMEXIT, VMEXIT_INTR, SHUTDOWN) = range(11)
UINTR, UIRET, SWINTR, SYSCALL = 12, 13, 14, 15
CR2, VMXQ, VMXR = 0, 1, 2  # EVD types

CFE_NAMES = {
    INTR: "intr", IRET: "iret", SMI: "smi", RSM: "rsm", SIPI: "sipi", INIT: "init", VMENTRY: "vmentry",
    VMEXIT: "vmexit", VMEXIT_INTR: "vmexit_intr", SHUTDOWN: "shutdown", UINTR: "uintr", UIRET: "uiret",
    SWINTR: "swintr", SYSCALL: "syscall",
}  # fmt: skip
EVD_NAMES = {CR2: "cr2", VMXQ: "vmxq", VMXR: "vmxr"}


@inner
def _event_kind(cfe: Int) -> Any:
    """The event a CFE type stands for; NONE for a type not known here, which is passed over."""
    if cfe == INTR:
        return e.INTERRUPT
    if cfe == IRET:
        return e.IRET
    if cfe == SMI:
        return e.SMI
    if cfe == RSM:
        return e.RSM
    if cfe == SIPI:
        return e.SIPI
    if cfe == INIT:
        return e.INIT
    if cfe == VMENTRY:
        return e.VMENTRY
    if cfe in (VMEXIT, VMEXIT_INTR):
        return e.VMEXIT
    if cfe == SHUTDOWN:
        return e.SHUTDOWN
    if cfe == UINTR:
        return e.UINTR
    if cfe == UIRET:
        return e.UIRET
    if cfe == SWINTR:
        return e.SWINTR
    if cfe == SYSCALL:
        return e.SYSCALL
    return e.NONE


@inner
def cfe(st: Any, ev: Any) -> Any:
    number = st["sub"] & 0x1F
    has_ip = st["sub"] & IP_FLAG
    kind = _event_kind(number)
    if not e.dequeue(st, AT_CFE, ev):
        e.clear(ev, kind)
    elif ev["kind"] != kind or kind == e.NONE:
        return BAD_CONTEXT  # an EVD of something else
    if kind == e.NONE:
        if not has_ip:
            return MORE
        ev["kind"] = e.IGNORE  # the FUP is its own all the same
        return e.enqueue(st, ev, AT_BOUND_FUP)
    if number == VMEXIT_INTR:
        ev["flags"] |= e.HAS_VECTOR
    if number in (INTR, SIPI, VMEXIT_INTR, UINTR, SWINTR):
        ev["vector"] = st["payload"]
    if number in (RSM, SIPI):
        if has_ip:
            return BAD_PACKET  # they begin where nothing ran before
        ev["no_ip"] = 1
    if has_ip:
        return e.enqueue(st, ev, AT_BOUND_FUP)
    if st["enabled"] and number not in (IRET, VMENTRY, SHUTDOWN, UIRET, SYSCALL):
        return e.enqueue(st, ev, AT_FUP)
    ev["no_ip"] = 1
    return e.standalone(st, ev)


@inner
def evd(st: Any, ev: Any) -> Any:
    number = st["sub"]
    if number > VMXR:
        return MORE  # not known here, and only an addition
    waiting = e.find(st, AT_CFE, e.NONE)
    if number == CR2:
        if waiting >= 0:
            return BAD_CONTEXT
        e.clear(ev, e.INTERRUPT)
        ev["flags"] = e.HAS_CR2
        ev["a"] = st["payload"]
        return e.enqueue(st, ev, AT_CFE)
    if waiting < 0:
        e.clear(ev, e.VMEXIT)
        status = e.enqueue(st, ev, AT_CFE)
        if status < 0:
            return status
        waiting = st["waiting"] - 1
    exit_ = st["queue"][waiting]
    flag = e.HAS_VMXQ if number == VMXQ else e.HAS_VMXR
    if exit_["kind"] != e.VMEXIT or exit_["flags"] & flag:
        return BAD_CONTEXT
    exit_["flags"] |= flag
    if number == VMXQ:
        exit_["a"] = st["payload"]
    else:
        exit_["b"] = st["payload"]
    return MORE
