"""A reader of `Paths`: each row's control flow as blocks, one after the other. It knows the message's description
(`stages.messages.paths`) and nothing of how it was made."""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons
# mypy: disable-error-code="assignment"

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.messages import Break, Paths
from stages.messages.paths import BREAK, DISABLED, OVERFLOW, BlockEnd, PathKind
from stages.paths.dictionary import Dictionary

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
SWITCHED_OFF, BROKE_OFF = -1, -2
"""Among block numbers: tracing stopped here; the block behind it does not follow from the one before."""
WHOLE = np.int32(-1)
_OF_PATHS = int(PathKind.OF_PATHS)
_CONDITION = int(BlockEnd.CONDITION)


class Code(NamedTuple):
    """The blocks that are known, columns by number: their first addresses, BlockEnd, their rows of the ranges."""

    start: I64
    ends: I32
    range: I32
    ranges: I32
    lo: I64
    hi: I64


class Taken(NamedTuple):
    """A row's control flow."""

    blocks: I64  # (n,) numbers, or SWITCHED_OFF, BROKE_OFF
    doubtful: I32  # (n,) so many of its ranges, the last ones, were handed on as doubtful; WHOLE: the block
    break_offset: I64  # of each BROKE_OFF: position in the stream
    break_cause: I64


def cause_name(cause: int) -> str:
    return "overflow" if cause == OVERFLOW else Break(cause).name.lower()


class Reader:
    """Of one process."""

    def __init__(self) -> None:
        self.dictionary = Dictionary()
        self._guessed: dict[int, NDArray[np.uint8]] = {}  # by thread: whether its last block left a guess open

    def rows(self, message: Paths) -> Iterator[tuple[np.void, Taken]]:
        """Raises DictionaryError."""
        d = self.dictionary
        d.take(message)
        order, breaks = message.order.copy(), message.breaks  # kernels are compiled for arrays that can be written
        paths, links = d.paths.rows, d.links.rows
        tables = paths["link"], paths["links"], paths["kind"], links["number"], d.blocks.rows
        for row in message.rows:
            mine = breaks[row["broken"] : row["broken_end"]]
            part = order[row["order"] : row["order_end"]]
            confirmed, behind = mine["confirmed"] - row["order"], mine["order"] - row["order"]
            guessed = self._guessed.setdefault(int(row["tid"]), np.zeros(1, np.uint8))
            guessed &= np.uint8(row["continues"] != 0)
            n = int(_write_out(part, confirmed, behind, *tables, guessed, np.zeros(0, np.int64), np.zeros(0, np.int32)))
            blocks, doubtful = np.zeros(n, np.int64), np.zeros(n, np.int32)
            if n:
                _write_out(part, confirmed, behind, *tables, guessed, blocks, doubtful)
            yield row, Taken(blocks, doubtful, mine["offset"].astype(np.int64), mine["cause"].astype(np.int64))

    @property
    def code(self) -> Code:
        """As of the message that was read last."""
        blocks, ranges = self.dictionary.blocks.rows, self.dictionary.ranges.rows
        lo, hi = ranges["lo"].view(np.int64), ranges["hi"].view(np.int64)
        return Code(blocks["start"].view(np.int64), blocks["ends"], blocks["range"], blocks["ranges"], lo, hi)


@kernel
def _write_out(order, confirmed, behind, link, links, kind, number, rows, guessed, out, doubtful):  # type: ignore[no-untyped-def]
    """The blocks of `order`, of which the parts [confirmed, behind) are suspect; how many. An empty `out`: only
    that. `guessed` (1,): whether the block before is doubtful with those behind it."""
    n = np.int64(0)
    k = 0
    path = np.int64(0)
    for e in range(len(order)):
        while k < len(behind) and e >= behind[k]:
            k += 1
        suspect = k < len(behind) and e >= confirmed[k]
        x = np.int64(order[e])
        times = np.int64(1)
        if x < 0:
            times = -x
        else:
            path = x
        if x == DISABLED or x == BREAK:
            if len(out):
                out[n] = SWITCHED_OFF if x == DISABLED else BROKE_OFF
                guessed[0] = 0
            n += 1
            continue
        for _ in range(times):
            for p in range(link[path], link[path] + links[path]):
                inside, parts = np.int64(p), np.int64(p) + 1
                if kind[path] == _OF_PATHS:
                    part = np.int64(number[p])
                    inside, parts = link[part], link[part] + links[part]
                for b in range(inside, parts):
                    if len(out):
                        row = rows[number[b]]
                        out[n] = number[b]
                        doubtful[n] = WHOLE if suspect or guessed[0] else row["guessed"]
                        guessed[0] = row["ends"] == _CONDITION and (guessed[0] or row["guessed"])
                    n += 1
    return n
