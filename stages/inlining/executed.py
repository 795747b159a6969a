"""How many bytecodes an nmethod's code stands for.

The bytecode of each method that is inlined is cut into *stretches*, which run from their first bytecode to their last
(`jvm.bytecode.counts.stretches`). A stretch is a place of the inline tree, as a call is: what the bytecode runs equally
often is a class (stages.inlining.call_classes), measured in the machine code as calls are
(stages.inlining.class_measures), and counts all of its bytecodes each time. So a bytecode of which the compiler has
left nothing is counted with its stretch, one that it has moved or doubled is counted once, and a vectorised or unrolled
loop as many times as it has rounds.

A method that is inlined without a description, and has neither jumps nor loops, is counted with its call.

Not counted is what runs as often as nothing that is left: a stretch behind a condition that became a conditional move,
a loop that was written out or is gone, and other methods inlined without a description. Counted, and perhaps not run,
is what stands behind a trap or an exception in the same method.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.classes import Classes

I64 = NDArray[np.int64]


class Stretches(NamedTuple):
    at: I64  # (places + 1,) where those of each place begin
    place: I64  # (n,)
    bci: I64  # (n,) of the first bytecode, ascending by place
    bytecodes: I64  # (n,)


class Ran(NamedTuple):
    """The evidence of an nmethod's code for the bytecodes that it stands for."""

    offset: I64  # (k,) instructions
    way: I64  # (k,) EXECUTED, TAKEN, NOT_TAKEN
    bytecodes: I64  # (k,) each time
    place: I64  # (k,) of the method of which of the inline tree's places


_NONE = np.zeros(0, np.int64)
NOTHING = Ran(_NONE, _NONE, _NONE, _NONE)


def stretches(classes: Classes, methods: list[int], places: int, most: int) -> Stretches:
    """Of the first of the `places`, whose methods are known by the agent's ids; of none, if they are more than
    `most`."""
    rows, count = [np.zeros((0, 2), np.int32)], np.zeros(places, np.int64)
    for place, method in enumerate(methods):
        found = classes.stretches(method)
        if found is not None:
            rows.append(found)
            count[place] = len(found)
    if count.sum() > most:
        rows, count = rows[:1], np.zeros_like(count)
    of = np.concatenate(rows).astype(np.int64)
    return Stretches(np.append(0, np.cumsum(count)), np.repeat(np.arange(places), count), of[:, 0], of[:, 1])


def ran(measured: I64, class_of: I64, s: Stretches, places: int, whole: list[int]) -> Ran:
    """`measured`: (n, 4) offset, way, times, class; `class_of`: that of each of the `places`, then of each stretch;
    `whole`: bytecodes of the last places' methods, of which nothing is described."""
    hidden = np.arange(places - len(whole), places)
    place, each_has = np.append(s.place, hidden), np.append(s.bytecodes, np.array(whole, np.int64))
    key = np.column_stack((np.append(class_of[places:], class_of[hidden]), place))[each_has > 0]
    keys, where = np.unique(key, axis=0, return_inverse=True)
    bytecodes = np.bincount(where.reshape(-1), each_has[each_has > 0], len(keys)).astype(np.int64)
    first, behind = (np.searchsorted(keys[:, 0], measured[:, 3], side) for side in ("left", "right"))
    size = (behind - first).astype(np.int64)
    take = np.repeat(first - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))
    each = np.repeat(measured, size, axis=0)
    return Ran(each[:, 0], each[:, 1], each[:, 2] * bytecodes[take], keys[take, 1])
