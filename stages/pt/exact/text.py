"""A flow as text: one 16-digit address a line, `? ` before it in a transaction, events in brackets between them.

An error is [offset, ip: error: what is wrong]: the offset of the packet the decoder stood at, the instruction that
could not be passed or reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stages.pt.dump import MODE_NAMES
from stages.pt.errors import MESSAGES
from stages.pt.events import event as e
from stages.pt.exact.decoder import Batch
from stages.pt.exact.flow import RESYNC_ERROR


@dataclass(frozen=True)
class TextOptions:
    event_ip: bool = False
    event_time: bool = False
    quiet: bool = False  # errors alone
    number_blocks: bool = False


def _c_state(state: int) -> str:
    return f"c{(state + 1) & 0xF}"


def _pwrx(payload: int) -> str:
    reasons = "".join(name for bit, name in ((0x100, "int: "), (0x400, "st: "), (0x800, "hw: ")) if payload & bit)
    return f"pwrx {reasons}{_c_state(payload >> 4 & 0xF)} ({_c_state(payload & 0xF)})"


def _vmexit(ev: Any) -> str:
    flags = int(ev["flags"])
    text = "vmexit"
    if flags & e.HAS_VECTOR:
        text += f", intr: {ev['vector']}"
    if flags & e.HAS_VMXR:
        text += f", vmxr: {int(ev['b']):016x}"
    if flags & e.HAS_VMXQ:
        text += f", vmxq: {int(ev['a']):016x}"
    return text


_NAMES = {
    e.OVERFLOW: "overflow", e.STOPPED: "stopped", e.EXSTOP: "exstop", e.TICK: "tick", e.IRET: "iret", e.SMI: "smi",
    e.RSM: "rsm", e.INIT: "init", e.VMENTRY: "vmentry", e.SHUTDOWN: "shutdown", e.UIRET: "uiret",
    e.SYSCALL: "syscall", e.DISABLED: "disabled", e.ASYNC_DISABLED: "disabled", e.INTERRUPTED: "interrupt",
}  # fmt: skip
# these have an address only as part of a compound, or none
_WITHOUT_IP = frozenset(
    (e.PAGING, e.VMCS, e.STOPPED, e.PWRE, e.PWRX, e.CBR, e.MNT, e.SIPI, e.RSM, e.INTERRUPTED, e.TRIG)
)


def _what(ev: Any) -> str:
    kind, a, flags, vector = int(ev["kind"]), int(ev["a"]), int(ev["flags"]), int(ev["vector"])
    match kind:
        case e.ENABLED:
            return "resumed" if flags & e.RESUMED else "enabled"
        case e.PAGING | e.ASYNC_PAGING:
            return f"paging, cr3: {a:016x}" + (", nr" if flags else "")
        case e.VMCS | e.ASYNC_VMCS:
            return f"vmcs, base: {a:016x}"
        case e.EXEC_MODE:
            return f"exec mode: {MODE_NAMES[flags] if flags else '<unknown>'}"
        case e.TSX:
            return "aborted" if flags & e.ABORTED else "begin transaction" if flags & e.INTX else "committed"
        case e.MWAIT:
            return f"mwait {a & 0xFFFFFFFF:x} {a >> 32:x}"
        case e.PWRE:
            return f"pwre {_c_state(a >> 12)}.{(a >> 8) + 1 & 0xF}" + (" hw" if a & 8 else "")
        case e.PWRX:
            return _pwrx(a)
        case e.PTWRITE:
            return f"ptwrite: {a:x}"
        case e.CBR:
            return f"cbr: {a:x}"
        case e.MNT:
            return f"mnt: {a:x}"
        case e.IFLAGS:
            return f"interrupts {'enabled' if flags else 'disabled'}"
        case e.INTERRUPT:
            return f"interrupt {vector}" + (f", cr2: {a:016x}" if flags & e.HAS_CR2 else "")
        case e.SIPI:
            return f"sipi: {vector:x}"
        case e.VMEXIT:
            return _vmexit(ev)
        case e.UINTR:
            return f"uintr {vector}"
        case e.SWINTR:
            return f"swintr {vector}"
        case e.TRIG:
            return f"trig {a:02x}" + (", mult" if flags else "")
    return _NAMES[kind]


def event_text(ev: Any, options: TextOptions) -> str:
    """One event as a line."""
    kind = int(ev["kind"])
    if kind == e.ERROR:
        what = "resync error" if ev["vector"] == RESYNC_ERROR else "error"
        return f"[{int(ev['a']):x}, {int(ev['ip']):x}: {what}: {MESSAGES[int(ev['count'])]}]"
    if kind == e.END_OF_TRACE:
        return "[end of trace]"
    if kind == e.BLOCK:
        return f"[block {int(ev['a']):x}]" if options.number_blocks else "[block]"
    text = f"{int(ev['tsc']):016x}  " if options.event_time and ev["has_tsc"] else ""
    text += _what(ev)
    if options.event_ip:
        if kind == e.ASYNC_DISABLED:
            text += f", at: {int(ev['at']):016x}"
        elif kind == e.INTERRUPTED:
            text += f", from: {int(ev['at']):016x}"
        if not ev["no_ip"]:
            if kind in (e.INTERRUPTED, e.TRIG) or kind not in _WITHOUT_IP:
                text += f", {'to' if kind == e.INTERRUPTED else 'ip'}: {int(ev['ip']):016x}"
        elif kind in (e.ENABLED, e.ASYNC_PAGING, e.ASYNC_VMCS):
            text += f", ip: {int(ev['ip']):016x}"
    if kind == e.TRIG and ev["count"]:
        text += f", icnt: {ev['count']}"
    return f"[{text}]"


def lines(batch: Batch, options: TextOptions) -> Iterator[str]:
    """The lines of a piece of a flow, without line ends."""
    at = 0
    for ev in batch.events:
        index = int(ev["index"])
        if not options.quiet:
            yield from _addresses(batch, at, index)
        at = index
        if ev["status"] or (options.quiet and ev["kind"] != e.ERROR):
            continue  # a state, not something that happened
        yield event_text(ev, options)
    if not options.quiet:
        yield from _addresses(batch, at, len(batch.ips))


def _addresses(batch: Batch, begin: int, end: int) -> Iterator[str]:
    for ip, speculative in zip(batch.ips[begin:end].tolist(), batch.speculative[begin:end].tolist(), strict=True):
        yield f"? {ip:016x}" if speculative else f"{ip:016x}"
