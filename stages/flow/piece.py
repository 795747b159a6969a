"""One thread over one piece of its trace: what the kernel needs for that, and what it left there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.flow import kernel
from stages.flow.context import C_BEHIND, C_NODE, C_ROOT, C_SIZE
from stages.flow.graph import S_LOST, SLOTS
from stages.flow.raw import addresses
from stages.flow.state import (
    BR,
    BREAKS,
    COPIES,
    EARLY,
    KEPT,
    LE,
    LEARNT,
    X_AT,
    X_BASE,
    X_BREAKS,
    X_CAUSE,
    X_DEPTH,
    X_FUP,
    X_HOLD,
    X_LEARNT,
    X_MODE,
    X_OUT,
    X_PENDING,
    X_POS,
    X_ROOM,
    X_SIZE,
    X_SURE_OUT,
    X_SURE_POS,
    X_WHERE,
)  # fmt: skip

I64 = NDArray[np.int64]
PADDING = 32  # bytes behind the end that kernels may look at
NEVER = int(kernel.NEVER)

BREAK_DTYPE = np.dtype(
    [("order", "<i8"), ("offset", "<i8"), ("cause", "<i8"), ("at", "<i8"), ("ip", "<i8"), ("sure", "<i8"),
     ("sure_offset", "<i8")]
)  # fmt: skip
LEARNT_DTYPE = np.dtype([("returns", "<u8"), ("target", "<u8"), ("order", "<i8"), ("offset", "<i8"), ("by", "<u8")])


class Thread:
    """Where one thread is: `x` (state.X_…), its return stack, its calling context."""

    def __init__(self, root: int) -> None:
        self.x = np.zeros(X_SIZE, np.int64)
        self.ring = np.zeros(SLOTS, np.int32)
        self.context = np.zeros(C_SIZE, np.int64)
        self.begin_context(root)

    def begin_context(self, root: int) -> None:
        self.context[[C_ROOT, C_NODE, C_BEHIND]] = root, root, 0

    def lose(self) -> None:
        """There is a hole: nothing is known of where the thread is, or who called it."""
        x = self.x
        x[X_AT] = S_LOST
        x[X_PENDING] = x[X_FUP] = x[X_MODE] = x[X_DEPTH] = x[X_BASE] = 0
        self.begin_context(int(self.context[C_ROOT]))


class State(NamedTuple):
    """Of a walk over a piece, to go back to."""

    x: I64
    ring: NDArray[np.int32]
    stop_at: I64


class Buffers:
    """What pieces are worked on in, one after the other."""

    def __init__(self) -> None:
        self.data = np.zeros(1 << 16, np.uint8)
        self.order = np.empty(1 << 16, np.int32)
        self.breaks = np.empty(BREAKS * BR, np.int64)
        self.learnt = np.empty(LEARNT * LE, np.int64)
        self.kept = np.zeros(COPIES * KEPT, np.int64)


class Piece:
    """`data` with PADDING zeros behind it is copied to the buffers; positions are counted from its beginning."""

    def __init__(self, thread: Thread, buffers: Buffers, data: NDArray[np.uint8], offset: int, stops: I64) -> None:
        """`offset`: of data[0] in the stream; `stops`: ascending positions, see `kernel.run`."""
        self.thread, self.buffers, self.offset, self.size = thread, buffers, offset, len(data)
        self.stops, self.stop_at = stops, np.full(len(stops), -1, np.int64)
        if self.size + PADDING > len(buffers.data):
            buffers.data = np.zeros(self.size + PADDING, np.uint8)
        if 2 * self.size + 4096 > len(buffers.order):
            buffers.order = np.empty(2 * self.size + 4096, np.int32)
        buffers.data[: self.size] = data
        buffers.data[self.size : self.size + PADDING] = 0
        thread.x[X_POS] = 0
        thread.x[X_ROOM] = len(buffers.order)
        b = buffers
        self._io = np.zeros(kernel.IO_SIZE, np.int64)
        self._io[:7] = addresses(thread.x, thread.ring, b.order, b.breaks, b.learnt, b.kept, b.data)
        self._io[[kernel.IO_STOPS, kernel.IO_STOP_AT]] = addresses(self.stops, self.stop_at)
        self._io[kernel.IO_N_STOPS] = len(stops)
        self.begin_output()

    def settle(self) -> None:
        """There is no going back behind here: the code has been changed, or what has been found was taken away."""
        x, kept = self.thread.x, self.buffers.kept
        kept[:X_SIZE] = kept[KEPT : KEPT + X_SIZE] = x
        kept[X_SIZE:KEPT] = kept[KEPT + X_SIZE : EARLY * KEPT] = self.thread.ring

    def early(self) -> State | None:
        """Where the walk was some packets before the sure point at which a contradiction was held; None: between there
        and here it broke off, or that is not known."""
        kept = self.buffers.kept[EARLY * KEPT :]
        x = self.thread.x
        if not 0 <= kept[X_POS] < x[X_POS] or kept[X_BREAKS] != x[X_BREAKS]:
            return None
        stop_at = np.where(self.stops <= kept[X_POS], self.stop_at, -1)
        return State(kept[:X_SIZE].copy(), kept[X_SIZE:].astype(np.int32), stop_at)

    @property
    def state(self) -> State:
        return State(self.thread.x.copy(), self.thread.ring.copy(), self.stop_at.copy())

    @state.setter
    def state(self, state: State) -> None:
        self.thread.x[:], self.thread.ring[:], self.stop_at[:] = state

    def begin_output(self) -> None:
        """What has been found was taken away."""
        x = self.thread.x
        x[X_OUT] = x[X_BREAKS] = x[X_LEARNT] = x[X_SURE_OUT] = 0
        x[X_SURE_POS] = x[X_POS]
        x[X_CAUSE] = 0
        self.settle()

    def run(self, tables: I64, hold: int = NEVER, end: int = NEVER) -> int:
        """`kernel.run` up to `end`; contradictions at or behind `hold` are held."""
        self.thread.x[X_HOLD] = hold
        self._io[kernel.IO_END] = min(end, self.size)
        return int(kernel.run(tables, self._io))

    # -- where a held contradiction is

    @property
    def cause(self) -> int:
        """state.B_…"""
        return int(self.thread.x[X_CAUSE])

    @property
    def contradicted(self) -> int:
        """Position of the packet that the code contradicts, or behind it, if it has TNT bits."""
        return int(self.thread.x[X_WHERE])

    @property
    def position(self) -> int:
        """Of the walker: just behind the last packet that carried an address."""
        return int(self.thread.x[X_POS])

    # -- what has been found

    @property
    def reached(self) -> int:
        """Length of the order."""
        return int(self.thread.x[X_OUT])

    @property
    def order(self) -> NDArray[np.int32]:
        return self.buffers.order[: self.thread.x[X_OUT]].copy()

    @property
    def breaks(self) -> NDArray[np.void]:
        """BREAK_DTYPE, positions in the stream."""
        breaks: NDArray[np.void] = self.buffers.breaks[: self.thread.x[X_BREAKS] * BR].copy().view(BREAK_DTYPE)
        breaks["offset"] += self.offset
        breaks["sure_offset"] += self.offset
        return breaks

    @property
    def learnt(self) -> NDArray[np.void]:
        """LEARNT_DTYPE, positions in the stream: what resolvers did, so far."""
        learnt: NDArray[np.void] = self.buffers.learnt[: self.thread.x[X_LEARNT] * LE].copy().view(LEARNT_DTYPE)
        learnt["offset"] += self.offset
        return learnt
