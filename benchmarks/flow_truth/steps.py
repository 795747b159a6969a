"""The truth laid along the trace: which blocks ran between two branch packets.

A *step* is the blocks from one branch's outcome to the next: what a decoder has to know by itself. The emulator says
which blocks each thread entered, and at which block and stream position a stream changed hands, a PSB stands, a fault
or a signal came (docs/emulator.md). Between those the walk below goes along packets and blocks together: every TNT bit
and every address must be the one that the next block calls for. So a step's place in the stream is not estimated but
proved, packet by packet; where truth and trace disagree it stops with an error.

A cycle without a packet (recursion by direct calls) is one step, ended by a fault or a signal. Of how often it went
round the trace says nothing, so what is asked of a decoder is the way to where it ended, first come there; the blocks
of the other rounds are counted apart.

Nothing here knows code bytes, return stacks or the decoder under test.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons
# mypy: disable-error-code="assignment"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.flow_truth import FlowTruthError
from capture.emulator.truth import Branch, Mark, Truth
from jvm.kernels import inner, kernel

I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]

# What ended a step. PGE, PSB and OVF are steps of their own: they only say where the thread is.
BIT, TIP, PGD, PGE, PSB, OVF, END = 1, 2, 3, 4, 5, 6, 7

_NEXT, _COND, _JUMP, _CALL, _IJUMP, _ICALL, _RET, _FAR = (int(b) for b in Branch)

# state of a stream's walk
(
    T_POS, T_LAST_IP, T_AT, T_TRACING, T_PSB, T_FUP, T_FUP_IP, T_MARK, T_CUT, T_BLOCKS, T_STEPS, T_RAW, T_FRESH,
    T_BITS, T_TIPS, T_ROUNDS, T_PART, T_SIZE,
) = range(18)  # fmt: skip

LONGEST_PACKET = 32

DONE, FULL, BAD_PACKET, WRONG_BIT, WRONG_ADDRESS, NO_BRANCH, WRONG_PSB, ENABLED, NO_BLOCK = range(9)
_WRONG = {
    BAD_PACKET: "a packet that the emulator does not write",
    WRONG_BIT: "a TNT bit that is not the branch that ran",
    WRONG_ADDRESS: "an address that is not where the thread went",
    NO_BRANCH: "a packet, but no branch that calls for it",
    WRONG_PSB: "a PSB+ whose address is not where the thread was",
    ENABLED: "a packet while tracing is off, or a TIP.PGE while it is on",
    NO_BLOCK: "more packets than blocks ran",
}
LONGEST = 1 << 12  # blocks in a row without a branch that needs a packet: more is a cycle, or an error
ROOM = 48 * (LONGEST + 2)  # blocks that one packet can bring


class Blocks(NamedTuple):
    """Translated blocks by number."""

    start: I64
    last: I64
    end: I64
    target: I64
    flow: U8
    rep: U8

    @classmethod
    def of(cls, truth: Truth) -> Blocks:
        rows = truth.blocks

        def wide(name: str) -> I64:
            return np.ascontiguousarray(rows[name]).view(np.int64)

        flow, rep = np.ascontiguousarray(rows["flow"]), np.ascontiguousarray(rows["rep"])
        return cls(wide("start"), wide("last"), wide("end"), wide("target"), flow, rep)


@dataclass(frozen=True, slots=True)
class Span:
    """Blocks [begin, end) of a thread, traced without a gap in the bytes [offset, stop) of a stream."""

    thread: int  # position in Truth.threads
    begin: int
    end: int
    offset: int
    stop: int
    tsc: int
    psb: NDArray[np.void]  # its marks of that kind
    cuts: NDArray[np.void]  # faults and signals


class Steps(NamedTuple):
    """(n,) steps and (m,) blocks of a piece of a stream. Blocks are what was executed of them: without the part behind
    a fault; the iterations of a string instruction are one; never empty."""

    first: I64  # (n + 1,) where each step's blocks begin
    kind: U8
    offset: I64  # in the stream: of the packet that ended it
    ip: I64  # in that packet; 0: none
    start: I64  # (m,)
    end: I64
    last: I64  # address of the last instruction

    def __len__(self) -> int:
        return len(self.kind)


class Part(NamedTuple):
    """Steps lo to hi (positions) are of this thread (position in Truth.threads)."""

    thread: int
    lo: int
    hi: int


@inner
def _first_pass(o_start, o_end, first, last, ip):  # type: ignore[no-untyped-def]
    """The first of the blocks first to last in which `ip` lies; `last`: none."""
    for k in range(first, last):
        if o_start[k] <= ip < o_end[k]:
            return k
    return last


@kernel
def _follow(data, base, limit, x, ran, span_end, marks, cuts, blocks, filter_lo, filter_hi, steps):  # type: ignore[no-untyped-def]
    """Walk the packets of `data` (which begins at stream position `base`) up to `limit`.

    `marks`: (p, 2) index and offset of PSBs; `cuts`: (q, 3) index, ip, 1 for a fault and 0 for a signal; both those of
    the span. Returns DONE, FULL (make room and call again), or what is wrong.
    """
    b_start, b_last, b_end, b_target, b_flow, b_rep = blocks
    s_first, s_kind, s_offset, s_ip, o_start, o_end, o_last = steps
    while x[T_POS] < limit:
        if x[T_STEPS] + 64 > len(s_kind) or x[T_BLOCKS] + ROOM > len(o_start):
            return FULL
        pos = x[T_POS] - base
        b = np.int64(data[pos])
        size = 1
        bits, n_bits = np.int64(0), 0
        kind = 0
        known = False
        ip = x[T_LAST_IP]
        low = b & 0x1F
        if b == 0 or b & 3 == 3:
            if b & 7 == 7:  # CYC goes on
                while data[pos + size] & 1:
                    size += 1
                size += 1
        elif b & 1 == 0 and b != 2:
            bits = b >> 1
        elif low == 0x0D or low == 0x11 or low == 0x01 or low == 0x1D:
            form = b >> 5
            known = form != 0
            width = 2 * form if form <= 3 else 0
            if form > 3:
                return BAD_PACKET
            size = 1 + width
            value = np.int64(0)
            for k in range(width):
                value |= np.int64(data[pos + 1 + k]) << 8 * k
            if form == 3:
                ip = value << 16 >> 16
            elif form == 2:
                ip = ip & ~np.int64(0xFFFFFFFF) | value
            elif form == 1:
                ip = ip & ~np.int64(0xFFFF) | value
            if known:
                x[T_LAST_IP] = ip
            kind = TIP if low == 0x0D else PGE if low == 0x11 else PGD if low == 0x01 else PSB
        elif b == 0x99:
            size = 2
        elif b == 0x19:
            size = 8
        elif b == 0x59:
            size = 2
        elif b == 0x02:
            e = np.int64(data[pos + 1])
            size = 2
            if e == 0x82:
                size = 16
                x[T_PSB] = 1
                x[T_LAST_IP] = 0
            elif e == 0x23:
                if x[T_MARK] < len(marks):
                    x[T_MARK] += 1
                x[T_PSB] = 0
            elif e == 0xF3:
                x[T_FRESH] = 1
                x[T_LAST_IP] = 0
            elif e == 0x73:
                size = 7
            elif e == 0x03:
                size = 4
            elif e == 0xA3:
                size = 8
                for k in range(6):
                    bits |= np.int64(data[pos + 2 + k]) << 8 * k
            else:
                return BAD_PACKET
        else:
            return BAD_PACKET
        if bits:
            n_bits = -1
            while bits >> (n_bits + 1):
                n_bits += 1

        for turn in range(n_bits if n_bits else 1 if kind else 0):
            event = BIT if n_bits else kind
            taken = bits >> (n_bits - 1 - turn) & 1 if n_bits else 0
            upto = np.int64(-1)  # the block before which the thread stands, where that is known
            partial = False
            if event == PSB and x[T_PSB] == 0:
                if x[T_FRESH]:  # behind an OVF
                    x[T_FRESH] = 0
                    x[T_TRACING] = 1
                    if x[T_AT] >= len(ran) or b_start[ran[x[T_AT]]] != ip:
                        return WRONG_ADDRESS
                    event = OVF
                else:
                    x[T_FUP], x[T_FUP_IP] = 1, ip
                    continue
            elif event == PSB:
                if x[T_MARK] >= len(marks) or x[T_TRACING] == 0:
                    return WRONG_PSB
                upto = marks[x[T_MARK], 0]
                if upto >= len(ran) or b_start[ran[upto]] != ip:
                    return WRONG_PSB
            elif event == PGE:
                x[T_FRESH] = 0
                if x[T_TRACING]:
                    return ENABLED
                x[T_TRACING] = 1
                if x[T_AT] >= len(ran):
                    return NO_BLOCK
                if b_start[ran[x[T_AT]]] != ip:
                    return WRONG_ADDRESS
            elif x[T_TRACING] == 0:
                return ENABLED
            elif event == PGD and x[T_FUP]:
                x[T_FUP] = 0
                upto = span_end
                if x[T_CUT] < len(cuts):
                    upto = cuts[x[T_CUT], 0]
                    partial = cuts[x[T_CUT], 2] != 0
                    if cuts[x[T_CUT], 1] != x[T_FUP_IP]:
                        return WRONG_ADDRESS
                    x[T_CUT] += 1
                elif upto >= len(ran) or b_start[ran[upto]] != x[T_FUP_IP]:
                    return WRONG_ADDRESS
                known = False
            i = x[T_AT]
            straight = x[T_PART] = 0
            while event <= PGD or event == PSB:  # block by block to the one that ends the step
                if i == upto:
                    if partial:
                        at = ran[i]
                        if x[T_FUP_IP] > b_start[at]:
                            x[T_PART] = 1
                            o_start[x[T_BLOCKS]], o_end[x[T_BLOCKS]] = b_start[at], x[T_FUP_IP]
                            o_last[x[T_BLOCKS]] = b_start[at]
                            x[T_BLOCKS] += 1
                        i += 1
                    break
                if i >= span_end or i >= len(ran):
                    return NO_BLOCK
                at = np.int64(ran[i])
                flow = np.int64(b_flow[at])
                to = np.int64(-1)  # where it went on, if that is in this trace
                if x[T_CUT] < len(cuts) and cuts[x[T_CUT], 2] == 0 and cuts[x[T_CUT], 0] == i + 1:
                    to = cuts[x[T_CUT], 1]
                elif i + 1 < len(ran):
                    to = b_start[ran[i + 1]]
                end = b_end[at]
                if flow == _NEXT and b_rep[at] and to == b_last[at]:
                    end = b_last[at]  # the next iteration is the same instruction
                if end > b_start[at]:
                    if straight < LONGEST:
                        o_start[x[T_BLOCKS]], o_end[x[T_BLOCKS]], o_last[x[T_BLOCKS]] = b_start[at], end, b_last[at]
                        x[T_BLOCKS] += 1
                    straight += 1
                i += 1
                if flow == _NEXT or flow == _JUMP or flow == _CALL:
                    goes = b_target[at] if flow != _NEXT else end
                    if filter_lo <= goes < filter_hi:
                        if i != upto and goes != to:
                            return WRONG_ADDRESS
                        continue
                    if event != PGD or upto >= 0:
                        return NO_BRANCH
                    break
                if event == BIT:
                    if flow == _RET:
                        if not taken:
                            return WRONG_BIT
                    elif flow != _COND:
                        return NO_BRANCH
                    elif to != (b_target[at] if taken else end):
                        return WRONG_BIT
                elif event == TIP:
                    if flow < _IJUMP:
                        return NO_BRANCH
                    if to != ip:
                        return WRONG_ADDRESS
                elif event == PSB or upto >= 0:
                    return NO_BRANCH
                break
            if event == PGD and upto >= 0 and straight > 1:
                begun, ran_to = x[T_BLOCKS] - min(straight, LONGEST) - x[T_PART], x[T_BLOCKS]
                k = _first_pass(o_start, o_end, begun, ran_to, x[T_FUP_IP])
                if k < ran_to:
                    if x[T_FUP_IP] > o_start[k]:
                        o_end[k], o_last[k] = x[T_FUP_IP], o_start[k]
                        k += 1
                    x[T_ROUNDS] += ran_to - k + max(straight - LONGEST, 0)
                    x[T_BLOCKS] = k
                elif straight > LONGEST:
                    return NO_BRANCH
            elif straight > LONGEST:
                return NO_BRANCH
            x[T_RAW] += i - x[T_AT]
            x[T_AT] = i
            n = x[T_STEPS]
            s_kind[n], s_offset[n], s_ip[n] = event, x[T_POS], ip if known else 0
            x[T_STEPS] = n + 1
            s_first[n + 1] = x[T_BLOCKS]
            if event == BIT:
                x[T_BITS] += 1
            elif event == TIP or event == PGD or event == PGE:
                x[T_TIPS] += 1
            if event == PGD:
                x[T_TRACING] = 0
        x[T_POS] += size
    return DONE


class StreamSteps:
    """One stream's walk. Bytes go in by `put`, in order; `steps` and `skip` take them out again."""

    def __init__(self, truth: Truth, blocks: Blocks, stream: int, filter_range: tuple[int, int]) -> None:
        """`stream`: its id."""
        self.name = str(stream)
        self._truth, self._blocks, self._filter = truth, blocks, filter_range
        self.spans = spans(truth, stream)
        self.taken = 0  # blocks, of steps
        self._next = 0  # span to begin
        self._span: Span | None = None
        self._data = np.zeros(1 << 16, np.uint8)
        self._size = 0  # bytes in it; behind them zeros, as many as a packet can have
        self._base = 0  # stream position of the first
        self.at = 0  # stream position up to which steps have been taken
        self._x = np.zeros(T_SIZE, np.int64)
        self._room(1 << 16, 2 * ROOM)

    def _room(self, steps: int, blocks: int) -> None:
        old: tuple[Any, ...] = getattr(self, "_out", ())
        sizes = steps + 1, steps, steps, steps, blocks, blocks, blocks
        new = tuple(np.zeros(n, np.uint8 if i == 1 else np.int64) for i, n in enumerate(sizes))
        for a, b in zip(old, new, strict=False):
            b[: len(a)] = a
        self._out: tuple[Any, ...] = new

    def put(self, offset: int, data: U8) -> None:
        if offset != self.end:
            raise FlowTruthError(f"stream {self.name}: bytes are missing before {offset}: was the run kept whole?")
        if self._size + len(data) + LONGEST_PACKET > len(self._data):  # make room: by what has been taken, or more
            rest = self._data[self.at - self._base : self._size].copy()
            if 2 * (len(rest) + len(data)) + LONGEST_PACKET > len(self._data):
                self._data = np.zeros(4 * (len(rest) + len(data)) + LONGEST_PACKET, np.uint8)
            self._data[: len(rest)] = rest
            self._size, self._base = len(rest), self.at
        self._data[self._size : self._size + len(data)] = data
        self._size += len(data)
        self._data[self._size : self._size + LONGEST_PACKET] = 0

    @property
    def end(self) -> int:
        return self._base + self._size

    def take(self, to: int) -> tuple[Steps, list[Part]]:
        """The steps up to stream position `to`, and whose they are. The arrays are valid until the next call. What was
        left without a packet at the end of a span is a step of kind END."""
        if to > self.end:
            raise FlowTruthError(f"stream {self.name}: bytes are missing before {to}: was the run kept whole?")
        parts: list[Part] = []
        x = self._x
        x[T_STEPS] = x[T_BLOCKS] = 0
        while self._span is not None or self._begin(to):
            span = self._span
            assert span is not None
            before = int(x[T_STEPS])
            self._follow(span, min(to, span.stop))
            if to >= span.stop:
                self._end(span)
            if x[T_STEPS] > before:
                parts.append(Part(span.thread, before, int(x[T_STEPS])))
            if to < span.stop:
                break
        self.at = to
        n, m = int(x[T_STEPS]), int(x[T_BLOCKS])
        self.taken += m
        first, kind, offset, ip, *columns = self._out
        return Steps(first[: n + 1], kind[:n], offset[:n], ip[:n], *(column[:m] for column in columns)), parts

    def _begin(self, to: int) -> bool:
        """The next span, if it begins before `to`."""
        if self._next == len(self.spans) or self.spans[self._next].offset >= to:
            return False
        span = self._span = self.spans[self._next]
        self._next += 1
        x = self._x
        x[T_POS], x[T_AT] = max(span.offset, self.at), span.begin
        x[T_TRACING] = x[T_PSB] = x[T_FUP] = x[T_MARK] = x[T_CUT] = x[T_FRESH] = 0
        self._marks = np.column_stack((span.psb["index"], span.psb["offset"])).astype(np.int64)
        fault = span.cuts["kind"] == Mark.PARTIAL
        self._cuts = np.column_stack((span.cuts["index"], span.cuts["ip"], fault)).astype(np.int64)
        return True

    def _follow(self, span: Span, limit: int) -> None:
        x = self._x
        while True:
            ran = self._truth.threads[span.thread].ran
            result = _follow(
                self._data, self._base, limit, x, ran, span.end, self._marks, self._cuts, tuple(self._blocks),
                *self._filter, self._out,
            )  # fmt: skip
            if result == DONE:
                return
            if result != FULL:
                raise FlowTruthError(
                    f"truth and trace disagree in stream {self.name} at {int(x[T_POS])}, thread "
                    f"{self._truth.threads[span.thread].tid}, block {int(x[T_AT])}: {_WRONG[result]}"
                )
            self._room(2 * len(self._out[1]), 2 * len(self._out[4]))

    def _end(self, span: Span) -> None:
        x, b = self._x, self._blocks
        self._span = None
        left = np.asarray(self._truth.threads[span.thread].ran[int(x[T_AT]) : span.end])
        x[T_RAW] += len(left)
        x[T_AT] = span.end
        left = left[b.end[left] > b.start[left]]
        if not len(left):
            return
        n, m = int(x[T_STEPS]), int(x[T_BLOCKS])
        while n + 2 > len(self._out[1]) or m + len(left) + 1 > len(self._out[4]):
            self._room(2 * len(self._out[1]), 2 * len(self._out[4]))
        first, kind, offset, ip, start, end, last = self._out
        start[m : m + len(left)], end[m : m + len(left)] = b.start[left], b.end[left]
        last[m : m + len(left)] = b.last[left]
        x[T_STEPS], x[T_BLOCKS] = n + 1, m + len(left)
        first[n + 1], kind[n], offset[n], ip[n] = m + len(left), END, span.stop, 0

    @property
    def branches(self) -> tuple[int, int]:
        """TNT bits and addresses of branches so far."""
        return int(self._x[T_BITS]), int(self._x[T_TIPS])

    @property
    def rounds(self) -> int:
        """Blocks in the rounds of cycles without a packet, but for the first, so far."""
        return int(self._x[T_ROUNDS])

    @property
    def blocks(self) -> int:
        """Blocks as the emulator counts them, so far."""
        return int(self._x[T_RAW])


def spans(truth: Truth, stream: int) -> list[Span]:
    """What stands in a stream (by its id), in its order."""
    found: list[Span] = []
    for number, thread in enumerate(truth.threads):
        marks = thread.marks
        mine = np.flatnonzero(marks["kind"] != Mark.TIME)
        kinds = marks["kind"][mine]
        borders = mine[np.isin(kinds, (Mark.COME, Mark.GO, Mark.STOP, Mark.RESUME))]
        open_ = -1  # position of the mark at which tracing on our stream began
        offset = here = stop_at = -1
        for at in borders.tolist():
            mark = marks[at]
            kind, index = int(mark["kind"]), int(mark["index"])
            if kind == Mark.COME:
                here = int(mark["stream"])
                open_, offset = (at, int(mark["offset"])) if here == stream else (-1, -1)
            elif kind == Mark.RESUME and here == stream:
                open_, offset = at, stop_at
            elif open_ >= 0:
                found.append(_span(number, marks, open_, at, index, offset, int(mark["offset"])))
                open_ = -1
            if kind == Mark.STOP:
                stop_at = int(mark["offset"])
        if open_ >= 0:
            found.append(_span(number, marks, open_, len(marks), len(thread.ran), offset, 1 << 62))
    found = [span for span in found if span.stop > span.offset]
    return sorted(found, key=lambda span: (span.offset, span.tsc))


def _span(number: int, marks: NDArray[np.void], first: int, last: int, end: int, offset: int, stop: int) -> Span:
    inside = marks[first:last]
    if int(marks[first]["kind"]) == Mark.RESUME:  # the PSB+ with which it starts again is told before
        before = first - 1
        while int(marks[before]["kind"]) in (Mark.TIME, Mark.PSB):
            before -= 1
        inside = marks[before:last]
    psb = inside[inside["kind"] == Mark.PSB]
    cuts = inside[np.isin(inside["kind"], (Mark.PARTIAL, Mark.SIGNAL))]
    return Span(number, int(marks[first]["index"]), end, offset, stop, int(marks[first]["tsc"]), psb, cuts)
