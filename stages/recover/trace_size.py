"""How many bytes of trace control flow takes: the measure by which the length of a filling is compared with what was
lost, because what was lost is known in bytes.

The processor's encoder is gone through step by step (SDM vol. 3C, 33.4.2): a conditional branch, and a return to the
call that the trace has seen, is a TNT bit; bits go out six to a byte, and at the latest in front of a TIP; a TIP has as
many bytes of its address as differ from the address before it. Packets of time, PSB+ and events are not in it: they are
a share of all bytes that changes slowly, and a thread's pace has it (`stages.recover.window`).
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import near
from stages.messages.paths import BlockEnd, Way
from stages.paths.dictionary import Column, Dictionary

BYTE = 6
"""The unit is a TNT bit, a sixth of a byte."""
SEEN_CALLS = 64
"""The encoder compresses the returns of so many calls at most (SDM 33.4.2.2)."""

E_COST, E_BITS, E_CALLS, E_ADDRESS, E_TIP, EC = range(6)
"""An encoder: units since its thread was first seen; bits that have not gone out; calls that it would see the return
of; the last TIP's address; whether the next step is where a TIP leads."""

ENCODED_DTYPE = np.dtype([("start", "<i8"), ("calls", "<i4"), ("end", "<i4")])
"""A block as the encoder sees it: first address, calls that return behind it, BlockEnd."""

_WAYS, _RETURN, _CONDITION = len(Way), int(BlockEnd.RETURN), int(BlockEnd.CONDITION)
_EVENT, _FILTER, _INDIRECT, _FAR = int(BlockEnd.EVENT), int(BlockEnd.FILTER), int(BlockEnd.INDIRECT), int(BlockEnd.FAR)


class EncodedBlocks:
    """The blocks of a dictionary as encoders see them. Dropped with its generation."""

    def __init__(self) -> None:
        self._column = Column(ENCODED_DTYPE)

    def take(self, d: Dictionary) -> NDArray[np.void]:
        """(blocks,) ENCODED_DTYPE, those that are new since the last call among them."""
        new = d.blocks.rows[self._column.size :]
        if len(new):
            encoded = np.zeros(len(new), ENCODED_DTYPE)
            encoded["start"], encoded["end"] = new["start"].astype(np.int64), new["ends"]
            first = int(new["range"].min())
            calls = np.concatenate(([0], np.cumsum(d.ranges.rows["calls"][first:])))
            at = new["range"] - first
            encoded["calls"] = calls[at + new["ranges"]] - calls[at]
            self._column.append(encoded)
        return self._column.rows


@near
def encode(e, blocks, step):  # type: ignore[no-untyped-def]
    """The encoder `e` (E_…) takes a step; the units of all so far."""
    way = step % _WAYS
    block = blocks[step // _WAYS]
    if e[E_TIP]:
        differs = e[E_ADDRESS] ^ block.start
        size = 3 if differs >> 16 == 0 else 5 if differs >> 32 == 0 else 7
        e[E_COST] += size * BYTE + (-e[E_BITS]) % BYTE
        e[E_BITS], e[E_TIP], e[E_ADDRESS] = 0, 0, block.start
    e[E_CALLS] = min(SEEN_CALLS, e[E_CALLS] + block.calls)
    bit = way != 0 or block.end == _CONDITION
    if not bit and block.end == _RETURN:
        if e[E_CALLS] > 0:
            e[E_CALLS] -= 1
            bit = True
        else:
            e[E_TIP] = 1
    elif not bit and (block.end == _INDIRECT or block.end == _FAR or block.end == _EVENT or block.end == _FILTER):
        e[E_TIP] = 1
    if bit:
        e[E_COST] += 1
        e[E_BITS] += 1
    return e[E_COST]
