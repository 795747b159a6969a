"""Reading another process's memory: the pages that are there, and nothing where nothing is."""

from __future__ import annotations

import ctypes
import mmap
import os

from hypothesis import given, settings
from hypothesis import strategies as st

from capture.code_poller import memory


def test_pages_of_this_process() -> None:
    area = mmap.mmap(-1, 8 * 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    area[4096:4100] = b"code"
    area[5 * 4096 - 1] = 7
    found = dict(memory.pages(os.getpid(), address, address + 8 * 4096))
    assert sorted(found) == [address + 4096, address + 4 * 4096]
    assert found[address + 4096] == b"code".ljust(4096, b"\0")
    assert dict(memory.pages(os.getpid(), address + 4098, address + 4100)) == {address + 4098: b"de"}


def test_what_cannot_be_read_is_left_out() -> None:
    assert list(memory.pages(2**22 + 1, 0, 1 << 47)) == []
    assert list(memory.pages(os.getpid(), 0, 4096)) == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), max_size=8), st.integers(0, 4095))
def test_runs(full: list[bool], extra: int) -> None:
    block = b"".join((b"x" if each else b"\0") * 4096 for each in full) + b"y" * extra
    found = list(memory._runs(1 << 20, block))
    whole = bytearray(len(block))
    for address, data in found:
        assert data[:1] != b"\0"
        whole[address - (1 << 20) : address - (1 << 20) + len(data)] = data
    assert whole == block
    ends = [address + len(data) for address, data in found]
    assert all(end < address for end, (address, _) in zip(ends, found[1:], strict=False))
