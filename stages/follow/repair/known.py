"""All that may be tried where the trace contradicts the code, as columns that kernels can look through.

Kernels get it as bare pointers (`stages.pointers`): numba would look at each of some fifty arrays whenever Python hands
them over, and count references to them at each call within a search.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.revision_store import Uncertain
from jvm.kernels import inner
from stages.follow.repair.call_table import NO_CALLS, CallTable
from stages.pointers import addresses, addresses_anew, i64_at, least_at, u8_at

I64 = NDArray[np.int64]

WINDOW = 16  # bytes looked at: no instruction is longer than 15
MAX_PATCH = 256  # bytes: several patched instructions near each other are one run; a longer one is other code


class Known(NamedTuple):
    """Patches by address, and calls by address; `code` holds the patches' bytes. Times are TSC."""

    address: I64
    size: I64
    before: I64
    after: I64
    old_at: I64
    new_at: I64
    order: I64  # in time
    code: NDArray[np.uint8]
    resolved: I64  # branches that the trace has resolved: the address, ascending,
    branch: I64  # and (n, 2) where it may go, and (0: CALL, 1: JMP)
    entry: I64  # verified entries of nmethods, ascending,
    refused: I64  # from when on surely not entrant,
    refusal: I64  # (0 or 1,) and where the jump leads that is put there to make one so
    entry_point: I64  # entries of nmethods, both kinds, ascending,
    opens: I64  # and when one is known to stand there,
    closes: I64  # and not any more, or to be not entrant
    inline: I64  # (0 or 2,) the first and one past the last address of inline-cache stubs
    jump: I64  # (3 · n,) kinds of indirect jumps by range, and
    interpreter: I64  # (2,) where that lies: see stages.follow.code.jumps
    method_entries: I64  # entries of methods, as there
    body: I64  # where nmethods begin that stand, ascending,
    body_end: I64  # where they end,
    body_method: I64  # and which method of the JVM's it is
    resolver: I64  # where calls lead that are not bound yet: static, optimised virtual, virtual; or empty
    unpatched: I64  # places of C1's code where a JMP stood before they were told of, ascending,
    unpatched_to: I64  # where that led,
    unpatched_until: I64  # and until when at most
    calls: CallTable
    place: I64  # instructions, ascending, one row for each content
    content: NDArray[np.uint8]  # (n, WINDOW) that they had when a choice put another there
    waiting: I64  # places of C1's code where a JMP stood when they were told of, ascending,
    waiting_content: NDArray[np.uint8]  # (n, WINDOW) and what stands there once they are patched

    @classmethod
    def of(cls, patches: Uncertain, blobs: NDArray[np.int32] | None = None) -> Known:
        """`blobs`: ids of the versions whose patches count."""
        fits = patches.size <= MAX_PATCH
        if blobs is not None:
            fits &= np.isin(patches.id, blobs)
        fit = np.flatnonzero(fits)
        order = fit[np.argsort(patches.address[fit], kind="stable")].astype(np.int64)

        def column(of: NDArray[np.uint64] | NDArray[np.int64] | NDArray[np.int32]) -> I64:
            return of[order].astype(np.int64)

        none = np.zeros(0, np.int64)
        return cls(
            column(patches.address),
            column(patches.size),
            column(patches.before),
            column(patches.after),
            column(patches.old_at),
            column(patches.new_at),
            order,
            np.ascontiguousarray(patches.code),
            resolved=none,
            branch=np.zeros((0, 2), np.int64),
            entry=none,
            refused=none,
            entry_point=none,
            opens=none,
            closes=none,
            inline=none,
            refusal=none,
            jump=none,
            interpreter=np.zeros(2, np.int64),
            method_entries=none,
            body=none,
            body_end=none,
            body_method=none,
            resolver=none,
            unpatched=none,
            unpatched_to=none,
            unpatched_until=none,
            calls=NO_CALLS,
            place=none,
            content=np.zeros((0, WINDOW), np.uint8),
            waiting=none,
            waiting_content=np.zeros((0, WINDOW), np.uint8),
        )

    def raw(self, before: tuple[Known, I64] | None = None) -> I64:
        """(2 · columns,) for `raw_known`: where each column lies, those of `calls` last, and how many numbers it has.
        The columns must outlive it. `before`: columns of which many are these, and their `raw`. Raises ValueError for a
        column that is not contiguous, or of another dtype."""
        columns = self._columns()
        if not all(column.dtype == np.int64 or column.dtype == np.uint8 for column in columns):
            raise ValueError("a column is int64 or uint8")
        if before is None:
            where = addresses(*columns)
        else:
            where = addresses_anew(columns, before[0]._columns(), before[1][: len(columns)])
        return np.concatenate((where, np.array([len(column) for column in columns], np.int64)))

    def _columns(self) -> list[NDArray[Any]]:
        own: list[NDArray[Any]] = [getattr(self, name) for name in _OWN]
        return [*(column if column.ndim == 1 else column.reshape(-1) for column in own), *self.calls]


_OWN = tuple(name for name in Known._fields if name != "calls")
_COLUMNS = len(_OWN) + len(CallTable._fields)

Column = namedtuple("Column", ("at", "n"))
RawCalls = namedtuple("RawCalls", CallTable._fields)  # type: ignore[misc]
RawKnown = namedtuple("RawKnown", (*_OWN, "calls"))  # type: ignore[misc]


@inner
def _words(a, k):  # type: ignore[no-untyped-def]
    return Column(i64_at(a[k]), a[_COLUMNS + k])


@inner
def _bytes(a, k):  # type: ignore[no-untyped-def]
    return Column(u8_at(a[k]), a[_COLUMNS + k])


@inner
def raw_known(a):  # type: ignore[no-untyped-def]
    """`Known`, and its `calls`, as `Column`s of pointers, from `Known.raw()`. `branch` has two numbers a row,
    `content` and `waiting_content` have WINDOW."""
    calls = RawCalls(  # type: ignore[call-arg]
        _words(a, 31), _words(a, 32), _words(a, 33), _words(a, 34), _words(a, 35), _words(a, 36), _words(a, 37),
        _words(a, 38), _words(a, 39), _words(a, 40), _words(a, 41), _words(a, 42), _words(a, 43), _words(a, 44),
        _words(a, 45), _words(a, 46), _words(a, 47), _words(a, 48), _words(a, 49), _words(a, 50), _words(a, 51),
        _words(a, 52), _words(a, 53), _words(a, 54), _words(a, 55), _words(a, 56), _words(a, 57), _words(a, 58),
        _words(a, 59),
    )  # fmt: skip
    return RawKnown(  # type: ignore[call-arg]
        _words(a, 0), _words(a, 1), _words(a, 2), _words(a, 3), _words(a, 4), _words(a, 5), _words(a, 6),
        _bytes(a, 7), _words(a, 8), _words(a, 9), _words(a, 10), _words(a, 11), _words(a, 12), _words(a, 13),
        _words(a, 14), _words(a, 15), _words(a, 16), _words(a, 17), _words(a, 18), _words(a, 19), _words(a, 20),
        _words(a, 21), _words(a, 22), _words(a, 23), _words(a, 24), _words(a, 25), _words(a, 26), _words(a, 27),
        _bytes(a, 28), _words(a, 29), _bytes(a, 30),
        calls,
    )  # fmt: skip


@inner
def first(column, least):  # type: ignore[no-untyped-def]
    """Index of the first item ≥ `least` of an ascending column."""
    return least_at(column.at, column.n, least)
