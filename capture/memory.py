"""Memory of another process, read while it runs (proc(5): /proc/<pid>/mem).

Permitted to root, to CAP_SYS_PTRACE, and where kernel.yama.ptrace_scope is 0 to the same user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

PAGE = 4096
BLOCK = 1 << 20


def pages(pid: int, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    """(address, bytes) of what is mapped in [low, high), in runs of pages that are not all zero. What cannot be read
    is left out: the process may end or change its mappings meanwhile, or we may not look into it at all."""
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
