"""The steps of each thread of a recording, numbered alike in each run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capture.live.drain import Message
from jvm.kernels import kernel
from stages.messages import Paths, Recovered
from stages.messages.paths import FIRST_PATH, PathKind, Provenance
from stages.paths.counts import WAYS
from stages.paths.dictionary import Dictionary
from streamer import config
from streamer.pipeline.topology import MIDDLE, Place, feed_chain, flush_chain, make_chain

I32 = NDArray[np.int32]
FOLLOW = MIDDLE["flow"][: MIDDLE["flow"].index("follow") + 1]
_OF_PATHS = int(PathKind.OF_PATHS)


class Numbers:
    """The same numbers for the same steps in both runs: of blocks, by their first and last address."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], int] = defaultdict(count().__next__)
        self._of = np.zeros(0, np.int32)
        self._generation = -1

    def take(self, d: Dictionary) -> None:
        if d.generation != self._generation:
            self._generation, self._of = d.generation, np.zeros(0, np.int32)
        new = d.blocks.rows[len(self._of) :]
        numbers = [self._known[key] for key in zip(new["start"].tolist(), new["last"].tolist(), strict=True)]
        self._of = np.append(self._of, np.array(numbers, np.int32))

    def __call__(self, steps: I32) -> I32:
        return (self._of[steps // WAYS] * WAYS + steps % WAYS).astype(np.int32)

    def begin(self) -> None:
        """Another run."""
        self._generation = -1


@dataclass
class Run:
    """Between two holes."""

    offset: int
    parts: list[I32] = field(default_factory=list)
    size: int = 0
    marks: list[tuple[int, int]] = field(default_factory=list)  # (tsc, steps of the run before it)


@dataclass
class Filling:
    expected: int
    steps: I32
    found: bool
    guessed: bool = False


Threads = dict[int, list[Run]]


@kernel
def expanded(order, begin, end, paths, links, out):  # type: ignore[no-untyped-def]
    """The steps of a part of an order, as far as there is room; how many there are."""
    n = 0
    last = np.int64(0)
    for j in range(begin, end):
        x = np.int64(order[j])
        times = np.int64(1)
        if x < 0:
            times = -x
        else:
            last = x
        if last < FIRST_PATH:
            continue
        for _ in range(times):
            for k in range(paths[last].link, paths[last].link + paths[last].links):
                if paths[last].kind == _OF_PATHS:
                    p = paths[links[k].number]
                    for m in range(p.link, p.link + p.links):
                        if n < len(out):
                            out[n] = links[m].number * WAYS + links[m].way
                        n += 1
                else:
                    if n < len(out):
                        out[n] = links[k].number * WAYS + links[k].way
                    n += 1
    return n


def follow(
    messages: Iterable[Message], numbers: Numbers, extra: Any = None
) -> tuple[Threads, dict[tuple[int, int], Filling]]:
    """The steps of each thread; and the fillings of `extra`, a stage behind follow, by thread and place behind."""
    chain = make_chain(FOLLOW, Place(config.load(fidelity="flow"), Path(), 0))
    if extra is not None:
        chain.append(extra)
    numbers.begin()
    threads: Threads = defaultdict(list)
    fillings: dict[tuple[int, int], Filling] = {}
    d = Dictionary()

    def take(out: object) -> None:
        if isinstance(out, Paths):
            d.take(out)
            numbers.take(d)
            _rows(out, d, numbers, threads)
        elif isinstance(out, Recovered):
            for f in out.fillings:
                steps = numbers(out.steps[f["step"] : f["step_end"]])
                key = int(f["tid"]), int(f["offset"])
                fillings[key] = Filling(int(f["expected"]), steps, bool(f["provenance"]),
                                        f["provenance"] == Provenance.GUESSED)  # fmt: skip

    for message in messages:
        for out in feed_chain(chain, message):
            take(out)
    for out in flush_chain(chain):
        take(out)
    return threads, fillings


def _rows(message: Paths, d: Dictionary, numbers: Numbers, threads: Threads) -> None:
    order = message.order.copy()
    paths, links = d.paths.rows, d.links.rows
    nothing = np.zeros(0, np.int32)
    for row in message.rows:
        runs = threads[int(row["tid"])]
        if not row["continues"] or not runs:
            runs.append(Run(int(row["offset"])))
        run = runs[-1]
        at = int(row["order"])
        for stop in message.stops[row["stop"] : row["stop_end"]]:
            upto = int(stop["order"])
            size = expanded(order, at, upto, paths, links, nothing)
            if size:
                steps = np.zeros(size, np.int32)
                expanded(order, at, upto, paths, links, steps)
                run.parts.append(numbers(steps))
                run.size += size
            run.marks.append((int(stop["tsc"]), run.size))
            at = upto
