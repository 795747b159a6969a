"""One thread over one piece of its trace: the kernel's arguments, and its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.follow.cfg.context import C_BEHIND, C_NODE, C_ROOT, C_SIZE
from stages.follow.cfg.graph import LOST_BLOCK
from stages.follow.walk import driver
from stages.follow.walk.state import (
    B_BAD_PACKET,
    B_GAVE_UP,
    B_OVERFLOW,
    BR,
    BREAKS,
    COPIES,
    EARLY,
    FIRST,
    IN,
    KEPT,
    RC,
    RESOLVED,
    SECOND,
    X_AT,
    X_BASE,
    X_BREAKS,
    X_CAUSE,
    X_CONFIRMED_OUT,
    X_CONFIRMED_POS,
    X_DEPTH,
    X_DOUBTED,
    X_FUP,
    X_LAST_IP,
    X_MODE,
    X_OUT,
    X_PENDING,
    X_POS,
    X_RESOLVED,
    X_ROOM,
    X_SIZE,
    X_TRAP,
    X_WHERE,
    keep,
    raw_walker,
)  # fmt: skip
from stages.messages import Segment
from stages.messages.paths import BREAK_DTYPE
from stages.pointers import addresses, signed
from stages.pt.return_stack import SLOTS

I64 = NDArray[np.int64]
PADDING = 32  # bytes behind the end that kernels may look at
LONGEST = 8  # bytes of a packet with TNT bits
NEVER = int(driver.NEVER)
NOWHERE = -1
Zeros = Callable[[int, type[Any]], NDArray[Any]]

_BREAK_WORDS = np.dtype(
    [(name, "<i8") for name in ("order", "offset", "cause", "at", "ip", "confirmed", "confirmed_offset")]
)
RESOLVED_DTYPE = np.dtype([("returns", "<u8"), ("target", "<u8"), ("order", "<i8"), ("offset", "<i8"), ("by", "<u8")])
_NO_BREAKS, _NOTHING_RESOLVED = np.zeros(0, BREAK_DTYPE), np.zeros(0, RESOLVED_DTYPE)


class Thread:
    """Where one thread is: `x` (state.X_…), its return stack, its calling context."""

    def __init__(self, root: int, zeros: Zeros = np.zeros) -> None:
        self.x = zeros(X_SIZE, np.int64)
        self.ring = zeros(SLOTS, np.int32)
        self.context = zeros(C_SIZE, np.int64)
        self.begin_context(root)
        self.addresses = addresses(self.x, self.ring)

    def begin_context(self, root: int) -> None:
        self.context[[C_ROOT, C_NODE, C_BEHIND]] = root, root, 0

    def lose(self) -> None:
        """There is a hole: nothing is known of where the thread is, or of its callers."""
        x = self.x
        x[X_AT] = LOST_BLOCK
        x[X_PENDING] = x[X_FUP] = x[X_MODE] = x[X_DEPTH] = x[X_BASE] = 0
        self.begin_context(int(self.context[C_ROOT]))


class State(NamedTuple):
    """Of a walk over a piece, to go back to."""

    x: I64
    ring: NDArray[np.int32]
    stop_at: I64


class Buffers:
    """The memory in which pieces are worked on, one after the other."""

    def __init__(self, size: int = 1 << 16, stops: int = 1 << 10, zeros: Zeros = np.zeros) -> None:
        """For pieces of so many bytes and time packets; they grow."""
        self._zeros = zeros
        self.breaks = zeros(BREAKS * BR, np.int64)
        self.resolved = zeros(RESOLVED * RC, np.int64)
        self.kept = zeros(COPIES * KEPT, np.int64)
        self.io = np.zeros(driver.IO_SIZE, np.int64)  # for `driver.run`: to ask numpy for an address takes long
        self._make_data(size)
        self._make_stops(stops)

    def _make_data(self, size: int) -> None:
        self.data = self._zeros(size + PADDING, np.uint8)
        self.order = self._zeros(2 * size + 4096, np.int32)
        self.io[IN.order : IN.data + 1] = addresses(self.order, self.breaks, self.resolved, self.kept, self.data)

    def _make_stops(self, n: int) -> None:
        self.stops, self.stop_at = self._zeros(n, np.int64), self._zeros(n, np.int64)
        self.ticks = self._zeros(n + 1, np.int64)
        self.times = self._zeros(n + 1, np.int64)
        self.io[[driver.IO_STOPS, driver.IO_STOP_AT]] = addresses(self.stops, self.stop_at)

    def put(self, segment: Segment) -> int:
        """The data with PADDING zeros behind it, room for the order of its paths, and its time packets; how many."""
        size, n = len(segment.data), len(segment.marks)
        if size + PADDING > len(self.data):
            self._make_data(size)
        if n > len(self.stops):
            self._make_stops(n)
        self.data[:size] = segment.data
        self.data[size : size + PADDING] = 0
        marks = segment.marks
        numbers = (signed(segment.offset), size, signed(segment.tsc), signed(segment.tsc_end))
        return int(
            _intervals(marks["tsc"], marks["offset"], *numbers, self.stops, self.stop_at, self.ticks, self.times)
        )


@kernel
def _intervals(tsc, offset, origin, size, begin, end, stops, stop_at, ticks, times):  # type: ignore[no-untyped-def]
    n = 0
    before = begin
    times[0] = begin
    for k in range(len(tsc)):
        now = np.int64(tsc[k])
        if now > 0:
            stops[n], stop_at[n] = min(max(np.int64(offset[k]) - origin, 0), size), -1
            ticks[n] = max(now - before, 0)
            before = now
            n += 1
            times[n] = now
    ticks[n] = max(end - before, 0)
    return n


@kernel
def _begin(io, output):  # type: ignore[no-untyped-def]
    w = raw_walker(io)
    x = w.x
    if output:
        x[X_OUT] = x[X_BREAKS] = x[X_RESOLVED] = x[X_CONFIRMED_OUT] = 0
        x[X_CONFIRMED_POS] = x[X_POS]
        x[X_CAUSE] = 0
    keep(w, FIRST)
    keep(w, SECOND)


class Piece:
    """The data of a segment, copied to the buffers; positions are counted from its beginning. Between its ends and its
    time packets, at `stops`, TSC ticks passed."""

    def __init__(self, thread: Thread, buffers: Buffers, segment: Segment) -> None:
        self.thread, self.buffers, self.offset, self.size = thread, buffers, segment.offset, len(segment.data)
        n = buffers.put(segment)
        self.stops, self.stop_at, self._ticks = buffers.stops[:n], buffers.stop_at[:n], buffers.ticks[: n + 1]
        self._times, self._end = buffers.times[: n + 1], segment.tsc_end
        self._charged = 0  # intervals
        self.gave_up: list[int] = []  # contradictions, by position, of which a search had to leave off
        x = thread.x
        x[X_POS] = 0
        x[X_ROOM] = len(buffers.order)
        x[X_LAST_IP] = signed(segment.last_ip)
        x[X_DOUBTED] = NOWHERE
        self._io = buffers.io
        self._io[IN.x : IN.ring + 1] = thread.addresses
        self._io[driver.IO_N_STOPS] = n
        self.begin_output()

    def settle(self) -> None:
        """There is no going back behind here: the code has been changed, or the findings were taken away."""
        _begin(self._io, False)

    def early(self) -> State | None:
        """Where the walk was some packets before the confirmed point at which a contradiction was trapped; None:
        between there and here it broke off, or that is not known."""
        kept = self.buffers.kept[EARLY * KEPT :]
        x = self.thread.x
        if not 0 <= kept[X_POS] < x[X_POS] or kept[X_BREAKS] != x[X_BREAKS]:
            return None
        return self._kept(kept)

    def doubt(self, position: int) -> None:
        """The walk is to be made anew, as far back as is kept, and to be contradicted at the jump at `position`."""
        self.state = self._kept(self.buffers.kept[FIRST * KEPT : (FIRST + 1) * KEPT])
        self.thread.x[X_DOUBTED] = position

    def believe(self) -> None:
        """No jump is doubted any more."""
        self.thread.x[X_DOUBTED] = NOWHERE

    def _kept(self, kept: I64) -> State:
        stop_at = np.where(self.stops <= kept[X_POS], self.stop_at, -1)
        return State(kept[:X_SIZE].copy(), kept[X_SIZE:].astype(np.int32), stop_at)

    @property
    def state(self) -> State:
        return State(self.thread.x.copy(), self.thread.ring.copy(), self.stop_at.copy())

    @state.setter
    def state(self, state: State) -> None:
        self.thread.x[:], self.thread.ring[:], self.stop_at[:] = state

    def begin_output(self) -> None:
        """The findings were taken away."""
        _begin(self._io, True)

    def run(self, tables: I64, trap: int = NEVER, end: int = NEVER, pause: int = NEVER) -> int:
        """`driver.run` up to `end`; contradictions at or behind `trap` are trapped; PAUSED at or behind `pause`."""
        self.thread.x[X_TRAP] = trap
        self._io[driver.IO_END] = min(end, self.size)
        self._io[driver.IO_PAUSE] = pause
        return int(driver.run(tables, self._io))

    # -- where a trapped contradiction is

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

    # -- findings

    def charge(self, whole: bool) -> tuple[I64, I64, I64]:
        """Where in the order the intervals begin and end that were walked since this was last asked, the ticks of
        each, and the times there. The last goes on in the next output if not `whole`: that is charged with all of it.
        """
        done, reached = self._charged, len(self.stops)
        if not whole:
            reached = int(np.count_nonzero(self.stop_at >= 0))
        self._charged = reached
        at, ticks = np.empty(reached - done + 2, np.int64), self._ticks[done : reached + 1].copy()
        at[0], at[1:-1], at[-1] = 0, self.stop_at[done:reached], self.thread.x[X_OUT]
        times = np.append(self._times[done : reached + 1], signed(self._end))
        if not whole:
            ticks[-1], times[-1] = 0, times[-2]
        return at, ticks, times

    @property
    def order(self) -> NDArray[np.int32]:
        return self.buffers.order[: self.thread.x[X_OUT]].copy()

    @property
    def breaks(self) -> NDArray[np.void]:
        """BREAK_DTYPE, positions in the stream."""
        n = int(self.thread.x[X_BREAKS])
        if n == 0:
            return _NO_BREAKS
        words = self.buffers.breaks[: n * BR].view(_BREAK_WORDS)
        breaks = np.zeros(n, BREAK_DTYPE)
        for name in _BREAK_WORDS.names or ():
            breaks[name] = words[name].view(np.uint64) if breaks.dtype[name] == np.uint64 else words[name]
        contradicts = ~np.isin(breaks["cause"], (B_OVERFLOW, B_BAD_PACKET))
        for contradicted in self.gave_up:  # of a packet with TNT bits the walk may break off before or behind it
            near = np.abs(words["offset"] - contradicted) <= LONGEST
            breaks["cause"][contradicts & near] = B_GAVE_UP
        breaks["offset"] += np.uint64(self.offset)
        breaks["confirmed_offset"] += np.uint64(self.offset)
        return breaks

    @property
    def resolved(self) -> NDArray[np.void]:
        """RESOLVED_DTYPE, positions in the stream: the jumps of resolvers, so far."""
        n = int(self.thread.x[X_RESOLVED])
        if n == 0:
            return _NOTHING_RESOLVED
        resolved: NDArray[np.void] = self.buffers.resolved[: n * RC].copy().view(RESOLVED_DTYPE)
        resolved["offset"] += self.offset
        return resolved
