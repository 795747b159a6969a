"""Memory of another process, read while it runs (proc(5): /proc/<pid>/mem).

Permitted to root, to CAP_SYS_PTRACE, and where kernel.yama.ptrace_scope is 0 to the same user.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capture.live.source import process_start

PAGE = 4096
BLOCK = 1 << 20
MOST = 1 << 18  # bytes read at once by ProcessMemory


class UnreadableError(Exception):
    """We may not read that process's memory, or it lacks the expected contents. One line, for the user."""


def pages(pid: int, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    """(address, bytes) of the mappings in [low, high), in runs of pages that are not all zero. Unreadable pages are
    left out: the process may end or change its mappings meanwhile, or we may not look into it at all."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for line in maps.splitlines():
            span, mode = line.split(maxsplit=2)[:2]
            start, end = (int(each, 16) for each in span.split("-"))
            if mode[0] != "r":
                continue
            for at in range(max(start, low), min(end, high), BLOCK):
                try:
                    block = os.pread(memory, min(BLOCK, min(end, high) - at), at)
                except (OSError, OverflowError):
                    continue
                yield from _runs(at, block)
    finally:
        os.close(memory)


def _runs(address: int, block: bytes) -> Iterator[tuple[int, bytes]]:
    """The runs of pages in `block` that have a byte other than 0."""
    nothing = bytes(PAGE)
    begin = 0
    for at in range(0, len(block) + PAGE, PAGE):
        page = block[at : at + PAGE]
        if not page or page == nothing[: len(page)]:
            if begin < at and begin < len(block):
                yield address + begin, block[begin:at]
            begin = at + PAGE


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class ProcessMemory:
    """Scattered pieces of another process's memory, by process_vm_readv(2): it neither stops nor notices."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.gone = False  # it has ended
        libc = ctypes.CDLL(None, use_errno=True)
        self._readv = libc.process_vm_readv
        self._readv.restype = ctypes.c_ssize_t
        size = ctypes.c_ulong
        self._readv.argtypes = (ctypes.c_int, ctypes.c_void_p, size, ctypes.c_void_p, size, size)
        self._buffer = np.empty(MOST, np.uint8)
        self._local = _Iovec(self._buffer.ctypes.data, 0)
        self._identity = process_start(pid)

    def alive(self) -> bool:
        """Is there still the process that had this pid at first?"""
        self.gone |= self._identity != process_start(self.pid)
        return not self.gone

    def read(self, addresses: NDArray[np.uint64], size: int) -> NDArray[np.uint8]:
        """(n,) addresses → (m, size) bytes there, m ≤ n: up to the first that cannot be read. n ≤ 1024, n · size ≤
        `MOST`. Valid until the next call. Raises UnreadableError when it is not permitted."""
        remote = np.empty((len(addresses), 2), np.uint64)
        remote[:, 0], remote[:, 1] = addresses, size
        self._local.size = len(addresses) * size
        local = ctypes.byref(self._local)
        count = self._readv(self.pid, local, 1, remote.ctypes.data, len(addresses), 0)
        if count < 0:
            error = ctypes.get_errno()
            if error == errno.ESRCH:
                self.gone = True
            elif error != errno.EFAULT:
                text = os.strerror(error)
                raise UnreadableError(f"process {self.pid}: its memory cannot be read: {text}")
            count = 0
        rows = count // size
        return self._buffer[: rows * size].reshape(rows, size)

    def mapped(self) -> list[int]:
        """Where its mappings begin."""
        try:
            lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        except OSError:
            return []
        return [int(line.partition("-")[0], 16) for line in lines]
