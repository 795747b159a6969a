"""Calls through inline-cache stubs (up to JDK 22): `MOV RAX, class; JMP rel32`, in a buffer of their own.

A call leads through one till the next safepoint; then it leads where the stub did (ICStub::finalize, icBuffer.cpp). The
stubs are soon used for other calls, and read as seldom as all else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.calls.call_sites import CALL, CALL_SIZE, JMP, STUB_JUMP, targets

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]


def through(code: U8, start: int, stubs: tuple[int, int]) -> tuple[I64, U64]:
    """(n,) offsets of the calls in `code`, which stands at `start`, that lead to stubs in [from, to); (n,) where."""
    opcodes = np.flatnonzero(code[: 1 - CALL_SIZE] == CALL)
    to = targets(code, start, opcodes)
    some = (stubs[0] <= to) & (to < stubs[1])
    return opcodes[some], to[some]


def ended(was: U8, code: U8, start: int, stubs: tuple[int, int]) -> I64:
    """(n, CALL_SIZE) offsets of the bytes of calls that led to stubs in `was`, and lead elsewhere in `code`."""
    led = through(was, start, stubs)[0]
    calls = np.setdiff1d(led, through(code, start, stubs)[0]) if len(led) else led  # mostly there is none
    at: I64 = calls[code[calls] == CALL][:, None] + np.arange(CALL_SIZE)
    return at


def seen_through(code: U8, was: U8, shown: U8, start: int, stubs: tuple[int, int], buffer: U8) -> U8 | None:
    """`code` with its calls to stubs led where those do in `buffer`, the bytes of [from, to), or not all of them; calls
    that it has in common with `was`, where they lead in `shown`. None: there is none."""
    calls, to = through(code, start, stubs)
    if not len(calls):
        return None
    out = code.copy()
    for call, jump in zip(calls.tolist(), (to - stubs[0] + STUB_JUMP).tolist(), strict=True):
        here = slice(call, call + CALL_SIZE)
        if np.array_equal(was[here], code[here]):
            out[here] = shown[here]
        elif jump + CALL_SIZE <= len(buffer) and buffer[jump] == JMP:
            behind = int(targets(buffer, stubs[0], np.array([jump]))[0])
            if not stubs[0] <= behind < stubs[1]:
                distance = behind - (start + call + CALL_SIZE) & 0xFFFFFFFF
                out[call + 1 : call + CALL_SIZE] = np.frombuffer(distance.to_bytes(4, "little"), np.uint8)
    return out
