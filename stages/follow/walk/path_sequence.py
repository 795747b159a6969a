"""The walker's output: path ids in the order in which they were taken.

`order` is int32. A number ≥ 0 is a path id; −n says that the id before it came n times more. Two ids are marks:
P_DISABLED (tracing stopped here, the next path begins where it resumed) and P_BREAK (the next path does not follow from
the one before: see the breaks). A path may be made of paths (`stages.follow.cfg.window_cache`); `plain` writes them
out.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.follow.cfg.graph import (
    BL,
    BL_INSTRS,
    BL_RANGE,
    BL_RANGES,
    G_CODE_SIZE,
    PA,
    PA_FLAGS,
    PA_LEN,
    PA_POOL,
    PATH_OF_PATHS,
    Tables,
    blob_of,
    raw_tables,
)
from stages.pt import x86


@kernel
def _unroll(order, out):  # type: ignore[no-untyped-def]
    n = 0
    last = 0
    for x in order:
        if x >= 0:
            last = x
        for _ in range(1 if x >= 0 else -x):
            if len(out):
                out[n] = last
            n += 1
    return n


def paths(order: NDArray[np.int32]) -> NDArray[np.int32]:
    """`order` with repetitions written out."""
    out = np.empty(_unroll(order, np.empty(0, np.int32)), dtype=np.int32)
    if len(out):
        _unroll(order, out)
    return out


def parts(tables: Tables, order: NDArray[np.int32]) -> NDArray[np.int64]:
    """Of how many numbers of the plain order each number of `order` is made."""
    row = np.maximum(order, 0).astype(np.int64) * PA
    made = tables.path[row + PA_FLAGS] & PATH_OF_PATHS != 0
    return np.where(made & (order >= 0), tables.path[row + PA_LEN], 1).astype(np.int64)


def plain(tables: Tables, order: NDArray[np.int32]) -> NDArray[np.int32]:
    """`order` with paths made of paths written out."""
    count = parts(tables, order)
    out = np.repeat(order, count)
    row = np.maximum(out, 0).astype(np.int64) * PA
    made = np.flatnonzero((tables.path[row + PA_FLAGS] & PATH_OF_PATHS != 0) & (out >= 0))
    within = np.arange(len(out)) - np.repeat(np.cumsum(count) - count, count)
    out[made] = tables.pool[tables.path[row[made] + PA_POOL] + within[made]]
    return out


@kernel
def _blocks(order, path, pool, out):  # type: ignore[no-untyped-def]
    n = 0
    for p in order:
        for k in range(path[p * PA + PA_LEN]):
            if len(out):
                out[n] = pool[path[p * PA + PA_POOL] + k]
            n += 1
    return n


def blocks(tables: Tables, order: NDArray[np.int32]) -> NDArray[np.int32]:
    """The blocks completed, one after the other; marks leave nothing."""
    each = paths(plain(tables, order))
    out = np.empty(_blocks(each, tables.path, tables.pool, np.empty(0, np.int32)), dtype=np.int32)
    if len(out):
        _blocks(each, tables.path, tables.pool, out)
    return out


@kernel
def _addresses(ids, where, out):  # type: ignore[no-untyped-def]
    t = raw_tables(where)
    n = 0
    for s in ids:
        for k in range(t.block[s * BL + BL_RANGES]):
            r = np.int64(t.block[s * BL + BL_RANGE]) + k
            if len(out) == 0:
                n += t.ranges[3 * r + 2]
                continue
            here = t.ranges[3 * r]
            b = blob_of(t, here)
            for _ in range(t.ranges[3 * r + 2]):
                out[n] = here
                n += 1
                here += x86.decode(t.code, t.blob_at[b] + here - t.blob_start[b], t.g[G_CODE_SIZE]) & 0xFF
    return n


def addresses(tables: Tables, order: NDArray[np.int32]) -> NDArray[np.uint64]:
    """The address of every instruction executed, in order, as the code is *now*: for tests, before code changes."""
    ids = blocks(tables, order)
    out = np.empty(_addresses(ids, tables.raw(), np.empty(0, np.int64)), dtype=np.int64)
    if len(out):
        _addresses(ids, tables.raw(), out)
    return out.view(np.uint64)


def block_addresses(tables: Tables, ids: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The instructions of blocks, one after the other, and where each block's begin: (m,) addresses, (n + 1,)
    positions. By the code as it is now: only for blocks that are alive."""
    first = np.concatenate((np.zeros(1, np.int64), np.cumsum(tables.block[ids * BL + BL_INSTRS], dtype=np.int64)))
    out = np.empty(int(first[-1]), dtype=np.int64)
    if len(out):
        _addresses(ids.astype(np.int32), tables.raw(), out)
    return out.view(np.uint64), first


def observed(order: NDArray[np.int32], confirmed: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int32]:
    """`order` without the parts [confirmed[k], at[k])."""
    begins = np.concatenate((np.zeros(1, np.int64), at))
    return np.concatenate([order[a:b] for a, b in zip(begins, [*confirmed, len(order)], strict=True)])


def moved(where: NDArray[np.int64], confirmed: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where indexes of an order are in the part that `observed` leaves of it."""
    k = np.searchsorted(confirmed, where, side="right")
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(at - confirmed)))
    inside = np.where(k > 0, np.maximum(at[k - 1] - where, 0), 0) if len(at) else 0
    return np.asarray(where - before[k] + inside, np.int64)


def inside(where: NDArray[np.int64], confirmed: NDArray[np.int64], at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which indexes lie in the parts [confirmed[k], at[k])."""
    k = np.searchsorted(confirmed, where, side="right")
    return np.asarray((k > 0) & (where < at[k - 1]), np.bool_) if len(at) else np.zeros(len(where), np.bool_)


@kernel
def _varint(out, at, value):  # type: ignore[no-untyped-def]
    while value >= 0x80:
        out[at] = value & 0x7F | 0x80
        at += 1
        value >>= 7
    out[at] = value
    return at + 1


@kernel
def _pack(order, follows, out):  # type: ignore[no-untyped-def]
    at = 0
    key = 0
    right = 0
    for x in order:
        value = 2 * np.int64(x) if x >= 0 else -2 * np.int64(x) + 1
        if follows[key] == value:
            right += 1
        else:
            at = _varint(out, _varint(out, at, right), value)
            follows[key] = value
            right = 0
        key = value if x >= 0 else key | 1
    return _varint(out, at, right)


@kernel
def _unpack(data, follows, order):  # type: ignore[no-untyped-def]
    """Returns how many numbers `order` got, or −1: the bytes are no packed order of that length."""
    at, n, key = 0, 0, np.int64(0)
    while True:
        for part in range(2):
            value, shift = np.int64(0), 0
            while True:
                if at >= len(data) or shift > 35:
                    return n if part == 1 and at >= len(data) and shift == 0 else -1
                byte = np.int64(data[at])
                at += 1
                value |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            for _ in range(value if part == 0 else 1):
                if part == 1:
                    follows[key] = value
                told = follows[key]
                if told < 0 or n == len(order) or (told & 1 == 0 and told + 1 >= len(follows)):
                    return -1
                order[n] = -(told >> 1) if told & 1 else told >> 1
                n += 1
                key = np.int64(key | 1) if told & 1 else told


def pack(order: NDArray[np.int32]) -> NDArray[np.uint8]:
    """`order` as bytes. The successor of each id is taken to be the same as the last time: how often in a row it was;
    then, as variable-length numbers, the one that came instead."""
    out = np.empty(10 * len(order) + 8, np.uint8)
    highest = int(order.max()) if len(order) else 0
    return out[: _pack(order, np.full(2 * max(highest, 0) + 2, -1, np.int64), out)].copy()


def unpack(data: NDArray[np.uint8], length: int, paths_known: int) -> NDArray[np.int32]:
    """The order of `length` numbers that `pack` made `data` of; its ids are below `paths_known`. Raises ValueError."""
    order = np.empty(length, np.int32)
    if int(_unpack(data, np.full(2 * paths_known + 2, -1, np.int64), order)) != length:
        raise ValueError(f"{len(data)} bytes are no packed order of {length} numbers")
    return order
