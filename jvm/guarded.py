"""Mappings of files that another process may cut.

A load from a page of a mapping that lies behind the end of its file is a SIGBUS (mmap(2)), whatever was checked just
before, and a seal against it (F_SEAL_SHRINK) can only be on a file that has no name. So SIGBUS is taken: where the
address lies in a guarded mapping, a page of zeros is put there, the mapping is marked, and the load goes on.
The reader looks at `cut` behind each read, and believes nothing of the bytes read if it is set. Anywhere else SIGBUS
ends the process.

The handler is Python, called from the middle of a load. That is sound here: the signal is not asynchronous but the
load's own, so it comes while nothing but that load is done (no lock is held, nothing is half allocated), and ctypes
takes the interpreter's lock if the load had given it up.
"""

from __future__ import annotations

import ctypes
import mmap
import signal
from collections.abc import Sequence

import numpy as np

_SA_SIGINFO = 4  # asm-generic/signal-defs.h
_ADDRESS = 16  # offset of si_addr in siginfo_t (asm-generic/siginfo.h, 64 bits)
_PROT, _MAP = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10  # … | MAP_FIXED
_FAILED = ctypes.c_void_p(-1).value
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    """struct sigaction as glibc has it."""

    _fields_ = (
        ("handler", _Handler), ("mask", ctypes.c_ubyte * 128), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)
    )  # fmt: skip


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_mappings: dict[int, Guarded] = {}  # by address, until they are closed
_installed = False


class Guarded:
    """A writable mapping of a file; `map` is it. Views of `map` must be gone before `close`."""

    def __init__(self, fd: int, size: int, offset: int = 0) -> None:
        """Raises OSError, ValueError as mmap does."""
        _install()
        self.map = mmap.mmap(fd, size, offset=offset)
        self.hit = False
        """A page was read or written that the file no longer had."""
        self.end = offset + size
        self._address = int(np.frombuffer(self.map, np.uint8).ctypes.data)
        _mappings[self._address] = self

    @property
    def cut(self) -> bool:
        """The file has been too short, or is: of a last page that is cut, too, the rest reads as zeros."""
        return self.hit or self.map.size() < self.end

    @property
    def closed(self) -> bool:
        return self.map.closed

    def close(self) -> None:
        if not self.map.closed:
            self.map.close()
            _mappings.pop(self._address, None)

    def holds(self, address: int) -> bool:
        return self._address <= address < self._address + len(self.map)


def any_cut(guards: Sequence[Guarded]) -> bool:
    """Whether one of these mappings, all of one file, is cut: with one look at the file."""
    return any(guard.hit for guard in guards) or (
        bool(guards) and guards[0].map.size() < max(guard.end for guard in guards)
    )


def _on_bus_error(number: int, info: int, _context: int) -> None:
    address = ctypes.c_void_p.from_address(info + _ADDRESS).value or 0
    mapping = next((each for each in _mappings.values() if each.holds(address)), None)
    page = address & -mmap.PAGESIZE
    if mapping is None or _libc.mmap(page, mmap.PAGESIZE, _PROT, _MAP, -1, 0) == _FAILED:
        _libc.signal(number, None)  # SIG_DFL, and the load is tried again
    else:
        mapping.hit = True


_handler = _Handler(_on_bus_error)  # lives as long as the process: the kernel has its address


def _install() -> None:
    global _installed
    if not _installed:
        _libc.sigaction(signal.SIGBUS, ctypes.byref(_Action(_handler, flags=_SA_SIGINFO)), None)
        _installed = True
