"""Intel PT of a kernel that is not there: perf_event_open and ioctl answered with files in memory.

An event's file is laid out as its mapping would be. When it is enabled, it gets a switch record, some packets in the
range of its filter (or of `code`, if the filter was refused) and their AUX record.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from capture.live import perf_event, ring, tsc
from capture.live.perf_event import EXCLUDE_KERNEL, IOC_DISABLE, IOC_ENABLE, IOC_SET_FILTER
from tests.capture import perfwriter as w
from tests.stages.ptbytes import psb_plus, tip

TYPE = 77


@dataclass
class Event:
    pid: int
    cpu: int
    kernel_too: bool
    filter: tuple[int, int] | None = None
    enabled: bool = False


@dataclass
class FakeKernel:
    data_size: int
    aux_size: int
    takes_filters: bool = True
    refuses: int = 0  # errno of perf_event_open
    code: tuple[int, int] = (0x1000, 0x2000)
    packets: int = 100
    on_enable: Callable[[Event], None] = lambda event: None
    events: dict[int, Event] = field(default_factory=dict)

    def install(self, monkeypatch: pytest.MonkeyPatch, pmu: Path, **files: str) -> None:
        """`files`: more of the PMU's directory, `caps__mtc="1"` for caps/mtc."""
        for name, text in {"type": f"{TYPE}\n", **files}.items():
            path = pmu / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(perf_event, "PMU", pmu)
        monkeypatch.setattr(perf_event, "_perf_event_open", self.open)
        monkeypatch.setattr(fcntl, "ioctl", self.ioctl)

    def open(self, _number: int, attr: ctypes.Array[ctypes.c_char], pid: int, cpu: int) -> int:
        if self.refuses:
            ctypes.set_errno(self.refuses)
            return -1
        assert struct.unpack_from("<I", attr.raw)[0] == TYPE
        fd = os.memfd_create("event", os.MFD_CLOEXEC)
        page = bytearray(ring.PAGE)
        struct.pack_into("<Q", page, ring.CAPABILITIES, ring.CAP_USER_TIME_ZERO)
        struct.pack_into("<HI", page, ring.TIME_SHIFT, w.SHIFT, w.MULT)
        struct.pack_into("<4Q", page, ring.DATA_HEAD, 0, 0, ring.PAGE, self.data_size)
        os.ftruncate(fd, ring.PAGE + self.data_size + self.aux_size)
        os.pwrite(fd, page, 0)
        flags = struct.unpack_from("<Q", attr.raw, 40)[0]
        self.events[fd] = Event(pid, cpu, not flags & EXCLUDE_KERNEL)
        return fd

    def ioctl(self, fd: int, request: int, argument: bytes = b"") -> int:
        event = self.events[fd]
        if request == IOC_SET_FILTER:
            if not self.takes_filters or not event.kernel_too:
                raise OSError(errno.EINVAL, "Invalid argument")
            found = re.fullmatch(rb"filter (0x[0-9a-f]+)/(0x[0-9a-f]+)\0", argument)
            assert found
            low, size = int(found[1], 16), int(found[2], 16)
            event.filter = low, low + size
        elif request == IOC_ENABLE:
            event.enabled = True
            self.write(fd, event)
            self.on_enable(event)
        elif request == IOC_DISABLE:
            event.enabled = False
        else:
            raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")
        return 0

    def write(self, fd: int, event: Event) -> None:
        low, _ = event.filter or self.code
        now = tsc.now() // 2 * 2
        trace = psb_plus(now, low + 64) + b"".join(tip(low + 64 + 16 * n) for n in range(self.packets))
        trace += psb_plus(now + 1000, low + 64)
        records = w.switch(event.pid, event.pid, ns=now // 2) + w.aux(0, len(trace), ns=now // 2 + 500)
        os.pwrite(fd, trace, ring.PAGE + self.data_size)
        os.pwrite(fd, records, ring.PAGE)
        os.pwrite(fd, struct.pack("<Q", len(records)), ring.DATA_HEAD)
        os.pwrite(fd, struct.pack("<Q", len(trace)), ring.AUX_HEAD)

    @property
    def trace_size(self) -> int:
        return 2 * len(psb_plus(0, 1)) + len(tip(0)) * self.packets
