"""The kernels' form of a code view, and what changed between two of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from jvm.codeview import CodeView

I64 = NDArray[np.int64]


class Code(NamedTuple):
    """Blobs in the order of their addresses as signed numbers; touching ones are one, so that an instruction may
    lie across them (two pages, say)."""

    start: I64
    end: I64
    data_at: I64
    code: NDArray[np.uint8]


def of(view: CodeView) -> Code:
    start = view.start.astype(np.uint64).view(np.int64)
    end = view.end.astype(np.uint64).view(np.int64)
    order = np.argsort(start, kind="stable")
    start, end, data_at = start[order], end[order], view.data_at.astype(np.int64)[order]
    code = np.ascontiguousarray(view.code, dtype=np.uint8)
    size = end - start
    if len(start) and (bool((size < 0).any()) or bool((data_at < 0).any()) or int((data_at + size).max()) > len(code)):
        raise ValueError("code view: a blob's bytes lie outside its code")
    touch = start[1:] == end[:-1]
    if bool((touch & (data_at[1:] != data_at[:-1] + size[:-1])).any()):
        code = np.concatenate([code[a : a + n] for a, n in zip(data_at.tolist(), size.tolist(), strict=True)])
        data_at = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)[:-1]))
    first = np.concatenate((np.ones(min(len(start), 1), np.bool_), ~touch))
    last = np.concatenate((~touch, np.ones(min(len(start), 1), np.bool_)))
    return Code(start[first].copy(), end[last].copy(), data_at[first].copy(), code)


@njit(cache=True, nogil=True)
def _differences(old, new, lo, hi):  # type: ignore[no-untyped-def]
    """Intervals of addresses whose byte is in `old` and in `new` is another, or none. Returns how many there are;
    only as many as fit are written."""
    n = 0
    j = 0
    for i in range(len(old.start)):
        here = old.start[i]
        end = old.end[i]
        while here < end:
            while j < len(new.start) and new.end[j] <= here:
                j += 1
            if j == len(new.start) or new.start[j] >= end:
                upto = end
                same = False
            elif new.start[j] > here:
                upto = new.start[j]
                same = False
            else:
                upto = min(end, new.end[j])
                same = True
            if not same:
                if n < len(lo):
                    lo[n] = here
                    hi[n] = upto
                n += 1
            else:
                a = old.data_at[i] + here - old.start[i]
                b = new.data_at[j] + here - new.start[j]
                open_ = False
                for k in range(upto - here):
                    if old.code[a + k] == new.code[b + k]:
                        open_ = False
                        continue
                    if not open_:
                        open_ = True
                        if n < len(lo):
                            lo[n] = here + k
                        n += 1
                    if n <= len(lo):
                        hi[n - 1] = here + k + 1
            here = upto
    return n


def differences(old: Code, new: Code) -> tuple[I64, I64]:
    """Where code of `old` is gone or other in `new`: sorted disjoint intervals [lo, hi)."""
    room = 1024
    while True:
        lo, hi = np.empty(room, np.int64), np.empty(room, np.int64)
        n = int(_differences(old, new, lo, hi))
        if n <= room:
            return lo[:n], hi[:n]
        room = n
