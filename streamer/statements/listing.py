"""Control flow in bytecodes, thread by thread, in the order in which it ran: a line a stretch of one method.

    12.345678  29318  I   Shop.page 0 3 6 9
    12.345680  29318  C2  Shop.escape 4 7 19 < Shop.page 9
    12.345680  29318  --  off

`I`: the interpreter, bytecode for bytecode. `C1`, `C2`: compiled code, the positions that its debug info tells, and
behind `<` the callers that it was inlined in. The time is the one at which the line's piece of trace begins, in seconds
from the first on. What is lost, or contradicted, is a line `--`; so is a virtual thread that leaves its frames
for another time, and goes on in them: "unmount 5", "mount 5".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stages.messages import Bytecodes, CodeKind, FrameEvent, Paths
from stages.messages.paths import BREAK, DISABLED, FIRST_PATH, PathKind
from stages.paths.dictionary import Dictionary

UNKNOWN = "[unknown method]"
BCIS = 64
"""Of a line; a longer stretch has several."""
_SWITCHES = {FrameEvent.MOUNT: "mount", FrameEvent.UNMOUNT: "unmount"}
_KINDS = {CodeKind.INTERPRETED: "I", CodeKind.C1: "C1", CodeKind.C2: "C2"}


class Event(NamedTuple):
    """Of `Bytecodes.events`, with the bytecodes behind it."""

    order: int
    block: int
    kind: int
    method: int
    number: int
    bcis: list[int]


class Line(NamedTuple):
    seconds: float
    tid: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:.6f}  {self.tid}  {self.kind:2}  {self.text}"


class _Stretch:
    """Bytecodes of one method behind each other, until something else comes."""

    def __init__(self) -> None:
        self.of: tuple[str, str, str] = ("", "", "")  # kind, method, callers
        self.bcis: list[int] = []

    def ended(self) -> Iterator[tuple[str, str]]:
        kind, method, callers = self.of
        if self.bcis or method:
            yield kind, f"{method} {' '.join(map(str, self.bcis))}{callers}".rstrip()
        self.bcis = []
        self.of = "", "", ""

    def add(self, of: tuple[str, str, str], bcis: list[int]) -> Iterator[tuple[str, str]]:
        for k in range(0, len(bcis), BCIS):
            if self.of != of or len(self.bcis) >= BCIS:
                yield from self.ended()
                self.of = of
            self.bcis += bcis[k : k + BCIS]


class Listing:
    """Of one process: takes `Bytecodes` and the `Paths` behind it."""

    def __init__(self, hz: float, tids: frozenset[int]) -> None:
        """`hz`: ticks a second; `tids`: only these threads, all if it is empty."""
        self._hz, self._tids = hz, tids
        self._dictionary = Dictionary()
        self._explained: Bytecodes | None = None
        self._top: dict[int, int] = {}  # by thread: the method that the interpreter was in last; kept to the end
        self._names: dict[int, str] = {}
        self._first = -1

    def take(self, message: Bytecodes | Paths) -> Iterator[Line]:
        if isinstance(message, Bytecodes):
            self._explained = message
            self._names.update(message.names)
            return
        said, self._explained = self._explained, None
        self._dictionary.take(message)
        events = _by_row(said) if said is not None and said.explains(message) else {}
        causes = dict(message.holes)
        for k, row in enumerate(message.rows):
            if self._first < 0:
                self._first = int(row["tsc"])
            tid = int(row["tid"])
            if self._tids and tid not in self._tids:
                continue
            seconds = (int(row["tsc"]) - self._first) / self._hz
            if not row["continues"]:
                yield Line(seconds, tid, "--", causes[k].cause.name.lower() if k in causes else "begins")
            stretch = _Stretch()
            for kind, text in self._row(message, row, events.get(k, []), stretch):
                yield Line(seconds, tid, kind, text)
            for kind, text in stretch.ended():
                yield Line(seconds, tid, kind, text)

    def _row(self, message: Paths, row: np.void, events: list[Event], stretch: _Stretch) -> Iterator[tuple[str, str]]:
        last, e = 0, 0
        for j in range(int(row["order"]), int(row["order_end"])):
            x = int(message.order[j])
            if x in (DISABLED, BREAK):
                yield from stretch.ended()
                yield "--", "off" if x == DISABLED else "break"
            passes = 1
            if x < 0:
                passes, x = -x, last
            if x < FIRST_PATH:
                continue
            last, blocks = x, self._blocks(x)
            for nth in range(passes * len(blocks)):
                while e < len(events) and events[e][:2] <= (j, nth):
                    yield from self._happens(int(row["tid"]), events[e], stretch)
                    e += 1
                yield from self._compiled(blocks[nth % len(blocks)], stretch)
        for event in events[e:]:
            yield from self._happens(int(row["tid"]), event, stretch)

    def _happens(self, tid: int, event: Event, stretch: _Stretch) -> Iterator[tuple[str, str]]:
        if event.kind in _SWITCHES:
            yield from stretch.ended()
            yield "--", f"{_SWITCHES[FrameEvent(event.kind)]} {event.number}"
        elif event.kind != FrameEvent.GOES_ON:
            self._top[tid] = event.method
        if event.bcis:
            yield from stretch.add(("I", self._names.get(self._top.get(tid, -1), UNKNOWN), ""), event.bcis)

    def _blocks(self, path: int) -> list[int]:
        d = self._dictionary
        row = d.paths.rows[path]
        links = d.links.rows[int(row["link"]) : int(row["link"]) + int(row["links"])]["number"].tolist()
        if row["kind"] == PathKind.OF_PATHS:
            return [block for part in links for block in self._blocks(part)]
        return [int(block) for block in links]

    def _compiled(self, block: int, stretch: _Stretch) -> Iterator[tuple[str, str]]:
        d = self._dictionary
        row = d.blocks.rows[block]
        kind = _KINDS.get(CodeKind(row["kind"]), "")
        if not kind or kind == "I":
            return
        for step in d.steps.rows[int(row["step"]) : int(row["step"]) + int(row["steps"])]:
            frames = d.frames.rows[int(step["frame"]) : int(step["frame"]) + int(step["frames"])].tolist()
            (method, bci), *callers = frames
            inlined = "".join(f" < {self._compiled_name(m)} {at}" for m, at in callers)
            if bci >= 0:
                yield from stretch.add((kind, self._compiled_name(method), inlined), [bci])

    def _compiled_name(self, method: int) -> str:
        return self._dictionary.methods.get(method, UNKNOWN)


def _by_row(said: Bytecodes) -> dict[int, list[Event]]:
    out = dict[int, list[Event]]()
    told, at = said.bcis.tolist(), 0
    for row, kind, order, block, method, number, _, bytecodes in said.events.tolist():
        bcis = told[at : at + bytecodes]
        at += bytecodes
        out.setdefault(row, []).append(Event(order, block, kind, method, number, bcis))
    return out
