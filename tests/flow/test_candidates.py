"""The candidates of an instruction, against bytes put together one after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some
from numba import njit

from jvm.calls.call_sites import JMP
from jvm.code.revision_store import Uncertain
from stages.follow.repair.candidates import ROOM, V_FAR, V_INFERRED, V_INSN, V_TARGET, VA, candidates
from stages.follow.repair.known import WINDOW, Known, raw_known
from stages.pt import x86

BASE = 0x7F00_0000_1000
_CODE = some.sampled_from([
    bytes.fromhex(h) for h in (
        "e800000000", "e810000000", "e8f0ffffff", "e904000000", "e9fbffffff", "90", "0f1f00", "7402", "75fe", "c3",
        "48b80000000000000000", "48b8aabbccddeeff0011", "0f8400010000", "cc", "0000", "f4", "ffe0", "ffd0",
    )
])  # fmt: skip


@njit
def _candidates(columns, here, size, tsc, slack, buffer, found):  # type: ignore[no-untyped-def]
    return candidates(raw_known(columns), here, size, tsc, slack, buffer, found)


@njit
def _decode(code, size):  # type: ignore[no-untyped-def]
    return x86.decode(code, 0, size)


def _read(code: bytes, here: int) -> tuple[int, int]:
    padded = np.frombuffer(code.ljust(WINDOW, b"\0"), np.uint8)
    insn = int(_decode(padded, len(code)))
    length, what = insn & 0xFF, insn >> 8 & 0xFF
    if code[:1] in (b"\xcc", b"\xf4") or code[:2] == b"\0\0":
        insn = length | x86.BAD << 8
    target = here + length
    if what in (x86.JUMP, x86.CALL, x86.COND):
        size = 1 if insn >> 16 else 4
        target += int.from_bytes(code[length - size : length], "little", signed=True)
    return insn, target


def _naive(
    now: bytes,
    patches: list[tuple[int, bytes, bytes, int, int]],
    calls: list[int],
    waiting: bytes,
    tsc: int,
    slack: int,
) -> list[tuple[int, int, int, int]]:
    """(instruction, target, distance in time, inferred); first the present one, then the others in any order."""
    touching = [p for p in patches if -len(p[1]) < p[0] < WINDOW - 1][-24:]
    state = bytearray(now)

    def put(at: int, code: bytes) -> None:
        for k, byte in enumerate(code):
            if 0 <= at + k < len(now):
                state[at + k] = byte

    for at, old, _, _, _ in reversed(touching):
        put(at, old)
    states = [bytes(state)]
    for at, _, new, _, _ in touching:
        put(at, new)
        states.append(bytes(state))
    found = [(*_read(now, BASE), 0, 0)]
    for k, code in enumerate(states if touching else []):
        begins = touching[k - 1][3] if k else 0
        far = max(0, begins - tsc, tsc - touching[k][4] if k < len(touching) else 0)
        if far <= slack:
            found.append((*_read(code, BASE), far, 0))
    for target in calls:
        distance = (target - BASE - 5).to_bytes(4, "little", signed=True)
        found.append((*_read(b"\xe8" + distance + now[5:], BASE), 2, 1))
    if waiting and now[0] == JMP:
        found.append((*_read(waiting, BASE), 2, 1))
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for insn, target, far, inferred in found[1:]:
        if insn & 0xFF and insn >> 8 & 0xFF != x86.BAD and (insn, target) != found[0][:2]:
            known = best.get((insn, target))
            best[insn, target] = (min(far, known[0]), known[1]) if known else (far, inferred)
    return [found[0], *((*key, *value) for key, value in best.items())]


@settings(max_examples=300, deadline=None)
@given(
    some.lists(_CODE, min_size=1, max_size=4),
    some.lists(some.tuples(some.integers(-6, 15), _CODE, some.integers(1, 90), some.integers(1, 20)), max_size=6),
    some.lists(some.sampled_from([BASE, BASE + 64, BASE - 999]), max_size=3, unique=True),
    some.booleans(),
    _CODE,
    some.integers(0, 100),
    some.sampled_from([0, 10, 1000]),
)
def test_all_that_it_may_have_been(
    code: list[bytes],
    edits: list[tuple[int, bytes, int, int]],
    calls: list[int],
    jumps: bool,
    copy: bytes,
    tsc: int,
    slack: int,
) -> None:
    """`jumps`: a JMP stands there that waits to be patched with `copy`."""
    if jumps:
        code = [bytes((JMP, 0, 1, 0, 0)), *code]
    waiting = copy.ljust(WINDOW, b"\x90") if jumps else b""
    now = b"".join(code).ljust(WINDOW, b"\x90")[:WINDOW]
    edits = sorted(edits, key=lambda e: e[2])
    patches = [(at, bytes(len(new)), new, before, before + width) for at, new, before, width in edits]
    store = b"".join(old + new for _, old, new, _, _ in patches)
    sizes = [len(new) for _, _, new, _, _ in patches]
    starts = np.cumsum([0, *(2 * n for n in sizes)])[:-1]
    known = Known.of(
        Uncertain(
            np.array([BASE + p[0] for p in patches], np.uint64),
            np.array(sizes, np.int32),
            np.array([p[3] for p in patches], np.uint64),
            np.array([p[4] for p in patches], np.uint64),
            starts.astype(np.int64),
            (starts + sizes).astype(np.int64),
            np.ones(len(patches), np.int64),
            np.frombuffer(store, np.uint8),
        )
    )._replace(
        resolved=np.full(len(calls), BASE), branch=np.array([(to, 0) for to in calls], np.int64).reshape(-1, 2),
        waiting=np.full(int(jumps), BASE), waiting_content=np.frombuffer(waiting, np.uint8).reshape(-1, WINDOW),
    )  # fmt: skip
    buffer = np.zeros(ROOM * WINDOW, np.uint8)
    buffer[:WINDOW] = np.frombuffer(now, np.uint8)
    found = np.zeros(ROOM * VA, np.int64)
    n = _candidates(known.raw(), BASE, WINDOW, tsc, slack, buffer, found)
    rows = found.reshape(-1, VA)[:n]
    got = [tuple(int(row[c]) for c in (V_INSN, V_TARGET, V_FAR, V_INFERRED)) for row in rows]
    expected = _naive(now, patches, calls, waiting, tsc, slack)
    assert got[0] == expected[0]
    assert sorted(got[1:]) == sorted(expected[1:])
    assert [g[2] for g in got[1:]] == sorted(g[2] for g in got[1:])
    for k in range(n):  # and the bytes are those
        assert _read(buffer[k * WINDOW : (k + 1) * WINDOW].tobytes(), BASE) == got[k][:2]
