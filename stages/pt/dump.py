"""A packet dump: one line a packet, in the columns that readers of Intel PT dumps know.

    0000000000000025  fup        3: 0000000000001001
    offset            packet     payload                 what was tracked (last IP, time, …)

A `?` is a digit that the compressed IP does not carry. Errors are lines of their own: [offset: what is wrong].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.messages import U8
from stages.pt import errors, timing
from stages.pt import packet_scan as ps
from stages.pt import packets as p
from stages.pt.errata import of_cpu
from stages.pt.events import event as events
from stages.pt.events.branches import exec_mode
from stages.pt.events.interrupts import CFE_NAMES, EVD_NAMES, INTR, SIPI, SWINTR, UINTR, VMEXIT_INTR
from stages.pt.packets import Records
from stages.pt.timing import RATES_DTYPE, TIME_DTYPE

MODE_NAMES = {
    events.MODE_UNKNOWN: "unknown",
    events.MODE_16: "16-bit",
    events.MODE_32: "32-bit",
    events.MODE_64: "64-bit",
}
_PACKETS_AT_ONCE = 1 << 16
_TIMING = frozenset((p.TSC, p.CBR, p.TMA, p.MTC, p.CYC))


@dataclass(frozen=True)
class DumpOptions:
    family: int = 0
    model: int = 0
    sync: bool = True  # begin at the first PSB; else the first byte begins a packet
    pad: bool = True
    timing: bool = True  # show timing packets
    cyc: bool = True  # show CYC and use it
    offset: bool = True
    raw: bool = False
    last_ip: bool = False
    exec_mode: bool = False
    time: bool = False
    calibration: bool = False
    delta: bool = False  # times and ratios as differences
    calibrate: bool = True
    wall_clock: bool = True  # a TSC must come before there is a time
    keep_calibration: bool = False
    mtc_shift: int = 0
    nominal: int = 0
    ctc_num: int = 0
    ctc_den: int = 0


def ip_text(ip_bytes: int, payload: int) -> str:
    """The IP as the packet carries it."""
    digits = (0, 4, 8, 16, 12, 0, 16)[ip_bytes]
    if ip_bytes == 3 and payload >> 47:
        payload |= 0xFFFF << 48  # sign-extended from bit 47
    return f"{ip_bytes:x}: {'?' * (16 - digits)}" + (f"{payload:0{digits}x}" if digits else "")


def _tnt(payload: int, bits: int) -> str:
    return "".join("!" if payload >> bit & 1 else "." for bit in range(bits - 1, -1, -1))


def _joined(*names: str) -> str:
    return ", ".join(name for name in names if name)


def _c_state(state: int) -> str:
    return f"c{(state + 1) & 0xF}"


def _pwrx(payload: int) -> str:
    reasons = [name for bit, name in ((0x100, "int"), (0x400, " st"), (0x800, " hw")) if payload & bit]
    reason = reasons[0] if len(reasons) == 1 else "bad"
    return f"{reason}: {_c_state(payload >> 4 & 0xF)}, {_c_state(payload & 0xF)}"


def _cfe(sub: int, vector: int) -> str:
    number = sub & 0x1F
    ip = ", ip" if sub & p.IP_FLAG else ""
    if number == SIPI:
        return f"{number}: {vector:x}{ip}"
    return f"{number}: {vector}{ip}" if number in (INTR, VMEXIT_INTR, UINTR, SWINTR) else f"{number}{ip}"


def payload_text(kind: int, payload: int, sub: int) -> str:
    """A packet's payload as text; empty where there is nothing to say."""
    ip = "ip" if sub & p.IP_FLAG else ""
    match kind:
        case p.TIP | p.TIP_PGE | p.TIP_PGD | p.FUP:
            return ip_text(sub, payload)
        case p.TNT_8 | p.TNT_64:
            return _tnt(payload, sub)
        case p.PIP:
            return f"{payload:x}" + (", nr" if sub else "")
        case p.MODE_EXEC:
            return _joined("cs.d" if sub & 2 else "", "cs.l" if sub & 1 else "", "if" if sub & 4 else "")
        case p.MODE_TSX:
            return _joined("intx" if sub & 1 else "", "abrt" if sub & 2 else "")
        case p.TSC | p.CBR | p.MTC | p.CYC | p.VMCS | p.MNT:
            return f"{payload:x}"
        case p.TMA:
            return f"{payload:x}, {sub:x}"
        case p.EXSTOP | p.BEP:
            return ip
        case p.MWAIT:
            return f"{payload & 0xFFFFFFFF:08x}, {payload >> 32:08x}"
        case p.PWRE:
            return f"{_c_state(payload >> 12)}.{(payload >> 8) + 1 & 0xF}" + (", hw" if payload & 8 else "")
        case p.PWRX:
            return _pwrx(payload)
        case p.PTW:
            return f"{sub & 3:x}: {payload:x}" + (", ip" if ip else "")
        case p.CFE:
            return _cfe(sub, payload)
        case p.EVD:
            return f"{sub}: {payload:x}"
        case p.TRIG:
            count = f"icnt: {payload >> 8}" if sub & p.TRIG_ICNT else ""
            return _joined(f"{payload & 0xFF:02x}", ip, "mult" if sub & p.TRIG_MULT else "", count)
        case p.BBP:
            return f"{sub:x}, {payload}"
        case p.BIP:
            return f"{sub:x}: {payload:x}"
    return ""


_REASONS = {-p.CUT: errors.END, -p.UNKNOWN: errors.BAD_OPCODE, -p.MALFORMED: errors.BAD_PACKET}


class _Tracker:
    """The state from packet to packet: last IP, time, whether we are in PSB+."""

    def __init__(self, options: DumpOptions) -> None:
        self._options = options
        rates = np.zeros(1, RATES_DTYPE)
        rates[0] = (
            options.mtc_shift, options.nominal, options.ctc_num, options.ctc_den,
            of_cpu(options.family, options.model), not options.calibrate, options.keep_calibration,
        )  # fmt: skip
        self._rates = rates[0]
        self._clock = np.zeros(1, TIME_DTYPE)[0]
        self.restart()

    def restart(self) -> None:
        events.reset_clock(self._clock)
        self._in_header = 0
        self._tsc = 0
        self._fcr = 0

    def see(self, packet: Any) -> None:
        """State packets that print nothing about time."""
        kind = packet["kind"]
        if kind == p.PSB:
            timing.calibrate_psb(self._clock, self._rates)
            self._in_header = 1
        elif kind == p.PSBEND:
            self._in_header = 0
        elif kind == p.OVF:
            if self._options.keep_calibration:
                timing.interrupt_calibration(self._clock)
            else:
                timing.forget_calibration(self._clock)

    def time(self, packet: Any) -> Iterator[str]:
        """Take a timing packet into account → its errors."""
        kind, payload, sub = int(packet["kind"]), packet["payload"], int(packet["sub"])
        clock, rates = self._clock, self._rates
        if self._options.calibrate:
            if kind == p.CYC and not clock["calibrated"]:
                yield f"calibration error: {errors.MESSAGES[errors.NO_TIME]}"
            status = timing.calibrate(clock, kind, payload, self._in_header, rates)
            if status < 0:
                yield f"error calibrating time: {errors.MESSAGES[status]}"
        fcr = clock["fcr"]
        status = timing.update(clock, kind, payload, sub, fcr, rates)
        if status < 0:
            yield f"error updating time: {errors.MESSAGES[status]}"
        elif kind == p.CYC and not fcr:
            yield "error updating time: no calibration"

    def tracked_time(self, kind: int) -> tuple[str, str, str]:
        """(name, value, error) of the column behind a timing packet; empty names: nothing."""
        clock = self._clock
        if self._options.calibration and kind not in (p.TMA, p.CYC):
            if not clock["calibrated"]:
                return "fcr", "<unavailable>", f"error printing time: {errors.MESSAGES[errors.NO_TIME]}"
            fcr = int(clock["fcr"])
            scale = 1 << timing.FCR_SHIFT
            value = f"{fcr / scale - self._fcr / scale:+.3f}" if self._options.delta else f"{fcr / scale:.3f}"
            self._fcr = fcr
            return "fcr", value, ""
        if self._options.time and kind != p.CBR:
            if not clock["have_tsc"] and self._options.wall_clock:
                return "tsc", "<unavailable>", f"error printing time: {errors.MESSAGES[errors.NO_TIME]}"
            tsc = int(clock["tsc"])
            if not self._options.delta:
                return "tsc", f"{tsc:016x}", ""
            difference, self._tsc = tsc - self._tsc, tsc
            return "tsc", f"{difference:+x}", ""
        return "", "", ""


def _tracked(packet: Any, known_ip: bool, options: DumpOptions) -> tuple[str, str]:
    """(name, value) of the column behind the payload, time aside."""
    kind, payload, sub = int(packet["kind"]), int(packet["payload"]), int(packet["sub"])
    if kind in (p.PIP, p.VMCS):
        return "cr3" if kind == p.PIP else "vmcs", f"{payload:016x}"
    if kind == p.CFE:
        return "type", CFE_NAMES.get(sub & 0x1F, "unknown")
    if kind == p.EVD:
        return "type", EVD_NAMES.get(sub, "unknown")
    if kind == p.MODE_EXEC and options.exec_mode:
        return "em", MODE_NAMES[int(exec_mode(sub))]
    if p.TIP <= kind <= p.FUP and options.last_ip:
        return "ip", f"{int(packet['ip']):016x}" if sub else "<suppressed>" if known_ip else "<unavailable>"
    return "", ""


def _line(packet: Any, data: U8, tracked: tuple[str, str], options: DumpOptions, base: int) -> str:
    kind, offset = int(packet["kind"]), int(packet["offset"])
    payload = payload_text(kind, int(packet["payload"]), int(packet["sub"]))
    columns = []
    if options.offset:
        columns.append(f"{base + offset:016x} ")
    if options.raw:
        columns.append(f"{data[offset : offset + int(packet['size'])].tobytes().hex():<33}")
    columns.append(f"{p.NAMES[kind]:<10}" if payload else p.NAMES[kind])
    name, value = tracked
    if name:
        columns.append(f"{payload:<25} {name:<5}{value}")
    elif payload:
        columns.append(payload)
    return " ".join(columns)


def _nobody(_: int) -> None:
    pass


def _packets(data: U8, options: DumpOptions) -> Iterator[Records]:
    """Ends with a BAD record of `sub` −CUT if the trace ends inside a packet."""
    context = events.start_context(of_cpu(options.family, options.model))
    state = ps.scanner(context, synced=not options.sync)
    out = np.zeros(_PACKETS_AT_ONCE, ps.PACKET_DTYPE)
    data = p.frozen(data)
    at = 0
    while True:
        n, at = ps.scan(data, at, len(data), 0, state, out)
        if n:
            yield out[:n]
        elif at < len(data) and state[ps.STATE_SYNCED]:
            out[0] = 0
            out[0]["offset"], out[0]["kind"], out[0]["sub"] = at, p.BAD, -p.CUT
            yield out[:1]
            return
        else:
            return


def dump(
    data: U8, options: DumpOptions = DumpOptions(), base: int = 0, bad: Callable[[int], object] = _nobody
) -> Iterator[str]:
    """The lines of a dump of a whole trace, without line ends. `base`: offset of its first byte, to be shown; `bad`
    is told where in `data` bytes are no packet."""
    tracker = _Tracker(options)
    known_ip = False
    wants_time = options.time or options.calibration
    for packets in _packets(data, options):
        for packet in packets:
            kind = int(packet["kind"])
            if kind == p.BAD:
                reason = _REASONS[int(packet["sub"])]
                bad(int(packet["offset"]))
                yield f"[{base + int(packet['offset']):x}: error decoding packet: {errors.MESSAGES[reason]}]"
                tracker.restart()
                known_ip = False
            if kind in (p.BAD, p.SKIPPED):
                continue
            tracker.see(packet)
            if kind == p.PSB:
                known_ip = False
            tracked = _tracked(packet, known_ip, options)
            if tracked[1] == "<unavailable>":
                yield f"[{base + int(packet['offset']):x}: error tracking last-ip: {errors.MESSAGES[errors.NO_IP]}]"
            if p.TIP <= kind <= p.FUP and packet["sub"]:
                known_ip = True
            if kind in _TIMING:
                if wants_time and (options.cyc or kind != p.CYC):
                    where = f"[{base + int(packet['offset']):x}: "
                    for problem in tracker.time(packet):
                        yield f"{where}{problem}]"
                    name, value, problem = tracker.tracked_time(kind)
                    tracked = name, value
                    if problem:
                        yield f"{where}{problem}]"
                if not options.timing or (kind == p.CYC and not options.cyc):
                    continue
            if kind == p.PAD and not options.pad:
                continue
            yield _line(packet, data, tracked, options, base)
