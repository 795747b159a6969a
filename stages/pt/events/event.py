"""The event layer: packets → events, each complete and in the order in which it happened.

A packet alone says little: a FUP is where an interrupt came from, or where a transaction began, or where a PTWRITE
stands, as the packets before it tell. So a packet that needs another one is *queued* with the kind of packet that it
waits for (`AT_…`) and becomes an event when that comes. PSB+ is not a sequence of events but one statement of the
state (`status`); its parts wait for PSBEND, or for the OVF that cuts it off.

This module holds the forms: event records, the decoder's state, the queue. The rules are in `psb`, `branches`,
`overflow`, `power`, `interrupts` (one kernel a packet kind), put together by `eventdecoder.next_event`.

Every rule kernel returns EVENT (`ev` is filled in, and the packet may give more), LAST (`ev` is filled in, the packet
is used up), MORE (used up without an event) or an error < 0.
Sources: SDM vol. 3, "Intel Processor Trace", packet definitions ("Dependencies", "Application"); libipt's behaviour
where the SDM leaves the reader a choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.kernels import inner, kernel
from stages.messages import U8
from stages.pt.errata import SKD007 as ERRATUM_SKD007
from stages.pt.errata import SKZ84 as ERRATUM_SKZ84
from stages.pt.errors import BAD_OPCODE, BAD_PACKET, END, QUEUE_FULL
from stages.pt.packets import (
    CUT,
    PAD,
    SKD007,
    SKZ84,
    UNKNOWN,
    Int,
    next_context,
    next_packet,
    reconstruct_ip,
)
from stages.pt.timing import TIME_DTYPE, forget_calibration

# fmt: off
(NONE, ENABLED, DISABLED, ASYNC_DISABLED, INTERRUPTED, PAGING, ASYNC_PAGING, VMCS, ASYNC_VMCS, OVERFLOW, EXEC_MODE,
 TSX, STOPPED, EXSTOP, MWAIT, PWRE, PWRX, PTWRITE, TICK, CBR, MNT, TIP, TNT, IFLAGS, INTERRUPT, IRET, SMI, RSM, SIPI,
 INIT, VMENTRY, VMEXIT, SHUTDOWN, UINTR, UIRET, TRIG, SWINTR, SYSCALL, IGNORE, ERROR, END_OF_TRACE, BLOCK) = range(42)
# fmt: on

EVENT_DTYPE = np.dtype(
    [
        ("tsc", "<u8"),
        ("ip", "<u8"),  # where, or where to; of no meaning where `no_ip`
        ("at", "<u8"),  # ASYNC_DISABLED, INTERRUPTED: where from
        ("a", "<u8"),  # by kind: CR3, VMCS base, payload, TNT bits, CR2 or VMX qualification, hints, packet payload
        ("b", "<u8"),  # by kind: VMX reason, packet `sub`
        ("count", "<i8"),  # TNT: bits left; TRIG: instructions from `ip` on
        ("flags", "<i8"),  # by kind: mode, HAS_…, INTX | ABORTED …
        ("vector", "<i8"),
        ("index", "<i8"),  # in a flow's output: how many instructions precede it
        ("kind", "<i8"),
        ("no_ip", "<i8"),
        ("has_tsc", "<i8"),
        ("status", "<i8"),  # stands in PSB+: a state, not something that happens
        ("waits", "<i8"),  # in the queue: for which packet
    ]
)

AT_PSBEND, AT_TIP, AT_FUP, AT_BOUND_FUP, AT_EXSTOP, AT_CFE, AT_PWRX = 1, 2, 4, 8, 16, 32, 64
EVENT, MORE, LAST = 0, 1, 2
QUEUE = 15  # events that may wait at a time

HAS_CR2, HAS_VECTOR, HAS_VMXR, HAS_VMXQ = 1, 2, 4, 8  # `flags` of INTERRUPT and VMEXIT
INTX, ABORTED = 1, 2  # of TSX
RESUMED = 1  # of ENABLED: from where it was disabled
MODE_UNKNOWN, MODE_16, MODE_32, MODE_64 = range(4)  # of EXEC_MODE

STATE_DTYPE = np.dtype(
    [
        ("at", "<i8"),  # position after the current packet
        ("sync", "<i8"),  # of the last PSB
        ("kind", "<i8"),  # the current packet; −1: none, `error` says why
        ("size", "<i8"),
        ("payload", "<u8"),
        ("sub", "<i8"),
        ("context", "<i8"),  # see `packets.next_packet`
        ("error", "<i8"),
        ("enabled", "<i8"),  # packet generation is on
        ("bound", "<i8"),  # the current FUP, TIP or TIP.PGE has given its first event
        ("mode_valid", "<i8"),
        ("mode", "<i8"),  # bits of the last MODE.Exec
        ("iflags", "<i8"),  # option: tell changes of IF
        ("last_ip", "<u8"),
        ("have_ip", "<i8"),
        ("suppressed", "<i8"),
        ("waiting", "<i8"),  # length of the queue
        ("queue", EVENT_DTYPE, (QUEUE,)),
        ("clock", TIME_DTYPE),
        ("spare", TIME_DTYPE),  # the clock before a look ahead that may be given up,
        ("spare_size", "<i8"),  # and the size of the packet
    ]
)


@inner
def reset(st: Any) -> None:
    """Forget everything but the position and options: to begin at a PSB, or after an OVF."""
    st["enabled"] = 0
    st["bound"] = 0
    st["mode_valid"] = 0
    forget_ip(st)
    st["waiting"] = 0


@kernel
def reset_clock(clock: Any) -> None:
    clock["tsc"] = np.uint64(0)
    clock["base"] = np.uint64(0)
    clock["fc"] = np.uint64(0)
    clock["ctc"] = 0
    clock["ctc_cyc"] = 0
    clock["have_tsc"] = 0
    clock["have_tma"] = 0
    clock["have_mtc"] = 0
    clock["lost_cyc"] = 0
    forget_calibration(clock)


@kernel
def start_context(errata_mask: Int) -> Any:
    """The packet layer's `context` at the beginning of a stream."""
    context = 0
    if errata_mask & ERRATUM_SKD007:
        context |= SKD007
    if errata_mask & ERRATUM_SKZ84:
        context |= SKZ84
    return context


@inner
def advance(data: U8, st: Any) -> Any:
    """Make the next packet the current one, PADs included → its kind, or an error < 0 (and no current packet)."""
    kind, size, payload, sub = next_packet(data, st["at"], data.size, st["context"])
    if kind < 0:
        st["kind"] = -1
        st["size"] = 0
        st["error"] = END if kind == CUT else BAD_OPCODE if kind == UNKNOWN else BAD_PACKET
        return st["error"]
    st["context"] = next_context(st["context"], kind, payload)
    st["kind"] = kind
    st["size"] = size
    st["payload"] = payload
    st["sub"] = sub
    st["at"] += size
    return kind


@inner
def fetch(data: U8, st: Any) -> None:
    """`advance` past PADs. An error is kept until the packet is asked for."""
    while advance(data, st) == PAD:
        pass


@inner
def forget_ip(st: Any) -> None:
    st["last_ip"] = np.uint64(0)
    st["have_ip"] = 0
    st["suppressed"] = 0


@inner
def take_ip(st: Any, ip_bytes: Int, payload: Int) -> None:
    """Last IP after an IP packet. IPBytes = 0 suppresses it and leaves it as the base for the next."""
    if ip_bytes == 0:
        st["suppressed"] = 1
        return
    st["last_ip"] = reconstruct_ip(st["last_ip"], ip_bytes, payload)
    st["have_ip"] = 1
    st["suppressed"] = 0


@inner
def put_ip(st: Any, ev: Any) -> None:
    if st["have_ip"] and not st["suppressed"]:
        ev["ip"] = st["last_ip"]
    else:
        ev["ip"] = np.uint64(0)
        ev["no_ip"] = 1


@inner
def put_time(st: Any, ev: Any) -> None:
    ev["tsc"] = st["clock"]["tsc"]
    ev["has_tsc"] = st["clock"]["have_tsc"]


@inner
def clear(ev: Any, kind: Int) -> None:
    zero = np.uint64(0)
    ev["tsc"] = zero
    ev["ip"] = zero
    ev["at"] = zero
    ev["a"] = zero
    ev["b"] = zero
    ev["count"] = 0
    ev["flags"] = 0
    ev["vector"] = 0
    ev["index"] = 0
    ev["kind"] = kind
    ev["no_ip"] = 0
    ev["has_tsc"] = 0
    ev["status"] = 0
    ev["waits"] = 0


@inner
def copy(to: Any, ev: Any) -> None:
    to["tsc"] = ev["tsc"]
    to["ip"] = ev["ip"]
    to["at"] = ev["at"]
    to["a"] = ev["a"]
    to["b"] = ev["b"]
    to["count"] = ev["count"]
    to["flags"] = ev["flags"]
    to["vector"] = ev["vector"]
    to["index"] = ev["index"]
    to["kind"] = ev["kind"]
    to["no_ip"] = ev["no_ip"]
    to["has_tsc"] = ev["has_tsc"]
    to["status"] = ev["status"]
    to["waits"] = ev["waits"]


@inner
def enqueue(st: Any, ev: Any, waits: Int) -> Any:
    """Let `ev` wait for a packet → MORE, or QUEUE_FULL."""
    n = st["waiting"]
    if n >= QUEUE:
        return QUEUE_FULL
    copy(st["queue"][n], ev)
    st["queue"][n]["waits"] = waits
    st["waiting"] = n + 1
    return MORE


@inner
def find(st: Any, waits: Int, kind: Int) -> Any:
    """Index of the first event that waits for one of `waits` and is of `kind` (0: any); −1 if there is none."""
    for i in range(st["waiting"]):
        if st["queue"][i]["waits"] & waits and (kind == NONE or st["queue"][i]["kind"] == kind):
            return i
    return -1


@inner
def remove(st: Any, at: Int) -> None:
    for i in range(at, st["waiting"] - 1):
        copy(st["queue"][i], st["queue"][i + 1])
    st["waiting"] -= 1


@inner
def dequeue(st: Any, waits: Int, ev: Any) -> Any:
    """Take the first event that waits for one of `waits` out of the queue into `ev` → whether there was one."""
    at = find(st, waits, NONE)
    if at < 0:
        return False
    copy(ev, st["queue"][at])
    ev["waits"] = 0
    remove(st, at)
    return True


@inner
def standalone(st: Any, ev: Any) -> Any:
    """The current packet is an event by itself, with the time as of now."""
    put_time(st, ev)
    return LAST
