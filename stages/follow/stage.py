"""Fidelity `flow`: every branch followed through the code as it was at that time.

Where the trace contradicts the code the walk breaks off and goes on at the next address in the trace (DESYNC,
CODE_MISSING: counted as events; the bytes were read all the same).

Where that takes longer than the trace takes to be written, load is shed (`stages.shed`): pieces pass, marked as
shed, to be counted by their addresses, and a thread's walk begins anew at the first address of its next piece that is
followed, as after a loss. Each break in a thread's walk is an event SHED.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stages.follow import coalescing
from stages.follow.batch import Batch
from stages.follow.follower import Follower
from stages.follow.walk.state import B_OFF_CODE, B_OVERFLOW
from stages.images import Images, Process, ProcessKey
from stages.messages import (
    Account,
    Arrival,
    Contradicted,
    EndOfStream,
    JitBatch,
    Loss,
    LossMark,
    Pieces,
    Segment,
    StreamOpen,
    ThreadEnd,
    ThreadKey,
    Watermark,
)
from stages.shed import Shedder

QUANTUM_SECONDS = 0.02
ENOUGH_SECONDS = 0.05
"""Live, so much work of ours on one message: then the stages behind have their turn with what has been followed, so
that it is known what that takes, too, before more is followed."""


class Follow:
    """Pieces → Paths, Account, Contradicted; Pieces that are shed go on. All else passes."""

    def __init__(
        self,
        images: Images | None = None,
        *,
        now: Callable[[], int] | None = None,
        most_behind_seconds: float = 0.5,
        followable: Callable[[], bool] | None = None,
    ) -> None:
        """`followable`: before it says so (its kernels are compiled) everything is shed; None: at once.
        `now` is the clock that stamps drains, in ticks: load is shed when the stage is further behind than
        `most_behind_seconds`. None: never, because the source waits."""
        self.images = images or Images(0.5)
        self.counts: Counter[str] = Counter()
        self._followable = followable or (lambda: True)
        self._now, self._most_behind_seconds = now, most_behind_seconds
        self._shedders: dict[ProcessKey, Shedder] = {}
        self._unfollowed: set[ThreadKey] = set()  # threads of which the last piece was shed; dropped with the thread
        self._followers: dict[ProcessKey, Follower] = {}
        self._batches: dict[ProcessKey, Batch] = {}
        self._ended = False  # the source has

    @property
    def sheds(self) -> bool:
        """Whether it sheds load when it is behind."""
        return self._now is not None

    def feed(self, message: object) -> list[object]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: object) -> Iterator[object]:
        """`feed` in steps of which none takes long: None between two of them, when other work may have a turn. Nothing
        else may be fed until it has come to its end."""
        match message:
            case Pieces(shed=False):
                yield from self._pieces(message)
            case Watermark():
                yield from self._contradicted(message.host, message.pid)
                yield message
                self.images.take(message)
            case JitBatch() | StreamOpen():
                yield from self.images.steps(message)
                yield message
            case ThreadEnd():
                self._unfollowed.discard(message.thread)
                if follower := self._followers.get(message.thread[:2]):
                    follower.flow.forget(message.thread)
                yield message
            case EndOfStream():
                yield from self.flush()
                yield message
            case _:
                yield message

    def flush(self) -> list[object]:
        """Nothing more comes."""
        return [out for key in self._followers for out in self._contradicted(*key)]

    def statistics(self) -> dict[str, int | float]:
        own: dict[str, float] = {f"follow_{name}": n for name, n in sorted(self.counts.items())}
        for follower in self._followers.values():
            for name, value in follower.flow.statistics().items():
                own[f"flow_{name}"] = own.get(f"flow_{name}", 0.0) + value
            for name, n in follower.repair.counts.items():
                own[f"search_{name}"] = own.get(f"search_{name}", 0.0) + n
        if self._shedders:
            worst = max(shedder.age / max(shedder.most, 1) for shedder in self._shedders.values())
            own["follow_behind_seconds"] = worst * self._most_behind_seconds
        return {**self.images.statistics(), **own, "kernels_ready": int(self._followable())}

    def introduce(self) -> list[object]:
        """A receiver has begun anew: the next message brings a new generation, with all that is used from then on."""
        for batch in self._batches.values():
            batch.renew()
        return self.images.introduce()

    def _pieces(self, pieces: Pieces) -> Iterator[object]:
        p = self.images.of(pieces.host, pieces.pid)
        if not self._followable():  # nor is a follower made: that alone compiles kernels, while nothing is told
            yield from self._unfollowable(pieces, _quantum(p))
            return
        follower, batch, quantum = self._of(p.key)
        if pieces.ended and p.key in self._shedders and not self._ended:
            self._ended = True
            self._shedders[p.key].end()
        shed: list[int] = []  # rows
        began = self._now() if self._now is not None else 0
        for s, a, b in coalescing.segments(pieces, quantum, (yield from self._changes(p, pieces, quantum))):
            self.counts["bytes"] += len(s.data)
            if self._sheds(p.key, pieces.drained):
                shed += range(a, b)
                yield self._shed(s)
                yield None
                continue
            if s.thread in self._unfollowed and s.arrival != Arrival.LATE:
                self._unfollowed.remove(s.thread)
                s = replace(s, continues=False, arrival=Arrival.IN_ORDER)
            holes = [mark for row, mark in pieces.holes if row == a] if pieces.holes else []
            rest = s
            for output in follower.steps(s):
                if output is None:
                    yield None
                    continue
                if batch.other_generation(output):
                    yield from batch.describe()
                    yield batch.take(self._newest(p.key, pieces.drained))
                batch.add(rest, output, follower.at, holes)
                holes = []
                if not output.whole:
                    rest = rest_of(rest, output.end)
                if len(output.breaks):
                    yield self._broken(s, output.breaks["cause"])
            yield Account(s.stream, s.offset, s.offset + len(s.data), len(s.data), ())
            yield None
            if batch and self._now is not None and self._now() - began >= round(ENOUGH_SECONDS * p.hz):
                yield from batch.describe()
                yield batch.take(self._newest(p.key, pieces.drained))
                began = self._now()
        if batch:
            yield from batch.describe()
            yield batch.take(self._newest(p.key, pieces.drained))
        if shed:
            shed.sort()
            yield replace(pieces, rows=pieces.rows[shed], holes=_of(pieces.holes, shed), shed=True)

    def _unfollowable(self, pieces: Pieces, quantum: int) -> Iterator[object]:
        """All of them, shed."""
        for s, _, _ in coalescing.segments(pieces, quantum, None):
            self.counts["bytes"] += len(s.data)
            yield self._shed(s)
            yield None
        if len(pieces.rows):
            yield replace(pieces, shed=True)

    def _changes(self, p: Process, pieces: Pieces, quantum: int) -> Generator[None, None, list[int] | None]:
        """The quanta that end with other code; None while load is shed: some of many small pieces are followed then."""
        if not len(pieces.rows) or (p.key in self._shedders and self._shedders[p.key].behind(pieces.drained)):
            return None
        yield from p.image.settling()
        ends_in = pieces.rows["tsc_end"] // np.uint64(quantum)
        return self._followers[p.key].changes(int(ends_in.min()), int(ends_in.max()))

    def _of(self, key: ProcessKey) -> tuple[Follower, Batch, int]:
        p = self.images.of(*key)
        quantum = _quantum(p)
        if key not in self._followers:
            follower = self._followers[key] = Follower(p.image, p.config, quantum, count_paths=False)
            self._batches[key] = Batch(key, p.image, follower.repair.guesses)
            if self._now is not None:
                self._shedders[key] = Shedder(self._now, round(self._most_behind_seconds * p.hz))
        return self._followers[key], self._batches[key], quantum

    def _sheds(self, key: ProcessKey, drained: int) -> bool:
        shedder = self._shedders.get(key)
        return shedder is not None and shedder.sheds(drained)

    def _newest(self, key: ProcessKey, drained: int) -> int:
        """The newest drain, or the end of all of them."""
        return max(drained, self._shedders[key].ended) if key in self._shedders else drained

    def _shed(self, s: Segment) -> Account:
        events = ((Loss.SHED, 1),) if s.thread not in self._unfollowed else ()
        if s.arrival != Arrival.LATE:
            self._unfollowed.add(s.thread)
        self.counts["shed_bytes"] += len(s.data)
        return Account(s.stream, s.offset, s.offset, 0, (), (), events)

    def _broken(self, s: Segment, cause: NDArray[np.int32]) -> Account:
        """How often the trace contradicted the code, or went where none is known."""
        missing, overflow = int((cause == B_OFF_CODE).sum()), int((cause == B_OVERFLOW).sum())
        counts = {Loss.CODE_MISSING: missing, Loss.DESYNC: len(cause) - missing - overflow}  # decode counts an OVF
        for loss, n in counts.items():
            self.counts[loss.name.lower()] += n
        return Account(s.stream, s.offset, s.offset, 0, (), (), tuple((loss, n) for loss, n in counts.items() if n))

    def _contradicted(self, host: str, pid: int) -> Iterator[object]:
        follower = self._followers.get((host, pid))
        if follower is not None and (places := follower.contradictions.take()):
            yield Contradicted(host, pid, places)


def rest_of(s: Segment, at: int) -> Segment:
    """The piece from stream position `at` on."""
    return replace(s, offset=at, data=s.data[at - s.offset :], continues=True)


def _quantum(p: Process) -> int:
    """Ticks."""
    return max(1, round(QUANTUM_SECONDS * p.hz)) if p.clocked else max(1, p.lateness)


def _of(holes: tuple[tuple[int, LossMark], ...], rows: list[int]) -> tuple[tuple[int, LossMark], ...]:
    """Those before `rows` (ascending), by position among these."""
    at = {row: n for n, row in enumerate(rows)}
    return tuple((at[row], mark) for row, mark in holes if row in at)
