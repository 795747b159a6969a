"""The time stamp counter of this machine, read directly.

Clocks of the system are derived from the TSC with a factor that the kernel keeps adjusting; capture's stamp on a chunk
has to be an upper bound of the times inside it, so the counter itself is read. Python has no access to the instruction:
eleven bytes of machine code in a page of its own have.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable
from functools import cache

# lfence; rdtsc; shl rdx, 32; or rax, rdx; ret. lfence: no load before it is still under way (SDM vol. 2, RDTSC).
_CODE = bytes.fromhex("0faee8 0f31 48c1e220 4809d0 c3")


@cache
def _reader() -> Callable[[], int]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return time.monotonic_ns
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(_CODE)
    entry = ctypes.addressof(ctypes.c_char.from_buffer(page))  # keeps the page exported, hence mapped, for ever
    function: Callable[[], int] = ctypes.CFUNCTYPE(ctypes.c_uint64)(entry)
    _pages.append(page)
    return function


_pages: list[mmap.mmap] = []


def now() -> int:
    """TSC ticks; on other processors, where no trace is made, CLOCK_MONOTONIC nanoseconds."""
    return _reader()()
