"""Fidelity `flow`: every branch followed through the code as it was at that time.

The same waiting, panes and reports as at fidelity `ip` (`stages.attribute.stage`); what is counted is what was
executed: instructions, entries of compiled methods, and time, shared by the instructions between two time marks. Where
the trace contradicts the code the walk breaks off and goes on at the next address in the trace (DESYNC, CODE_MISSING:
counted as events; the bytes were read all the same).

Where that takes longer than the trace takes to be written, load is shed (`stages.follow.shed`): pieces are counted as
at fidelity `ip`, and a thread's walk begins anew at the first address of its next piece that is followed, as after a
loss. Such bytes are decoded and `shed`; each break in a thread's walk is an event SHED. Their time is counted, by
address; instructions and invocations are of what was followed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stages.attribute.stage import Attribute, Traced
from stages.follow.follower import Follower
from stages.follow.shed import Shedder
from stages.messages import Account, Loss, PaneReport, PtConfig, Segment, StreamOpen, ThreadKey
from stages.profile.panes import ROW_DTYPE, Pane
from stages.ready.coalescing import joined, runs

QUANTUM_SECONDS = 0.02


class Reconstruct(Attribute):
    """Segment, JitBatch, Account, Tick → PaneReport, with instructions, invocations and ticks. All else passes."""

    def __init__(
        self,
        worker: int = 0,
        *,
        pane_seconds: float = 1.0,
        lateness_seconds: float = 0.5,
        now: Callable[[], int] | None = None,
        most_behind_seconds: float = 0.5,
        followable: Callable[[], bool] | None = None,
    ) -> None:
        """`followable`: before it says so (its kernels are compiled) everything is shed; None: at once.
        `now` is the clock that stamps drains, in ticks: load is shed when the stage is further behind than
        `most_behind_seconds`. None: never, because the source waits."""
        super().__init__(worker, pane_seconds=pane_seconds, lateness_seconds=lateness_seconds)
        self._followable = followable or (lambda: True)
        self._now, self._most_behind_seconds = now, most_behind_seconds
        self._shedders: dict[tuple[str, int], Shedder] = {}
        self._unfollowed: set[ThreadKey] = set()  # threads of which the last piece was shed
        self._configs: dict[tuple[str, int], tuple[PtConfig, int]] = {}
        self._followers: dict[tuple[str, int], Follower] = {}

    @property
    def sheds(self) -> bool:
        """Whether it sheds load when it is behind."""
        return self._now is not None

    def _clock(self, opened: StreamOpen) -> None:
        super()._clock(opened)
        quantum = round(QUANTUM_SECONDS * opened.clock.hz)
        key = opened.stream.host, opened.stream.pid
        self._configs.setdefault(key, (opened.config, quantum))
        if self._now is not None and key not in self._shedders:
            self._shedders[key] = Shedder(self._now, round(self._most_behind_seconds * opened.clock.hz))

    def flush_steps(self) -> Iterator[object]:
        for shedder in self._shedders.values():
            shedder.end()
        yield from super().flush_steps()

    def _forget(self, p: Traced, thread: ThreadKey) -> None:
        self._unfollowed.discard(thread)
        if p.key in self._followers:
            self._followers[p.key].flow.forget(thread)

    def _sites_of(self, p: Traced) -> Iterator[NDArray[np.int32] | NDArray[np.int64]]:
        yield from super()._sites_of(p)
        if p.key in self._followers:
            yield from self._followers[p.key].sites_used()

    def _count_all(self, p: Traced, segments: list[Segment]) -> Iterator[None]:
        # A thread that went from one CPU to another: its pieces come by stream, but are followed in order of time.
        _, quantum = self._config(p)
        for run in runs(segments, lambda s: (s.tsc // p.pane_ticks, s.tsc_end // quantum)):
            yield from self._count_run(p, run)

    def _config(self, p: Traced) -> tuple[PtConfig, int]:
        return self._configs.get(p.key, (PtConfig(), p.lateness))

    def _count_run(self, p: Traced, run: list[Segment]) -> Iterator[None]:
        self.counts["bytes"] += sum(len(s.data) for s in run)
        shedder = self._shedders.get(p.key)
        if not self._followable() or (shedder is not None and shedder.sheds(p.now)):
            for s in run:
                self._shed(p, s)
                yield None
        else:
            yield from self._follow(p, joined(run))

    def _shed(self, p: Traced, s: Segment) -> None:
        size = len(s.data)
        events = ((Loss.SHED, 1),) if s.thread not in self._unfollowed else ()
        self._unfollowed.add(s.thread)
        self.counts["shed_bytes"] += size
        self._ledger(p, s).add(Account(s.stream, s.offset, s.offset + size, size, (), (), events, size))
        self._addresses(p, s)

    def _follow(self, p: Traced, s: Segment) -> Iterator[None]:
        if s.thread in self._unfollowed:
            self._unfollowed.remove(s.thread)
            s = replace(s, continues=False)
        follower = self._followers.get(p.key)
        if follower is None:
            follower = self._followers[p.key] = Follower(p.image, *self._config(p))
        size, end = len(s.data), s.offset + len(s.data)
        pane = p.panes.setdefault(s.tsc // p.pane_ticks, Pane())
        for counted in follower.steps(s):
            if counted is None:
                yield None
                continue
            sites, where = np.unique(counted.site, return_inverse=True)
            rows = np.zeros(len(sites), ROW_DTYPE)
            rows["site"], rows["tid"] = sites, s.thread.tid
            for column in ("instructions", "invocations", "untold", "uncounted"):
                np.add.at(rows[column], where, getattr(counted, column).astype(np.uint64))
            rows["ticks"] = np.rint(np.bincount(where, counted.ticks, len(sites))).astype(np.uint64)
            pane.add(rows)
            for cause, n in counted.breaks:
                self.counts[cause.name.lower()] += n
            self._ledger(p, s).add(Account(s.stream, s.offset, s.offset, 0, (), (), counted.breaks))
        self._ledger(p, s).add(Account(s.stream, s.offset, end, size, ()))
        yield None

    def _report(self, p: Traced, upto: int) -> list[object]:
        out = super()._report(p, upto)
        follower = self._followers.get(p.key)
        reports = [k for k, message in enumerate(out) if isinstance(message, PaneReport)]
        if reports and follower is not None and (places := follower.contradictions.take()):
            last = out[reports[-1]]
            assert isinstance(last, PaneReport)
            out[reports[-1]] = replace(last, contradictions=places)
        return out

    def statistics(self) -> dict[str, int | float]:
        flow: dict[str, float] = {}
        for follower in self._followers.values():
            for name, value in follower.flow.statistics().items():
                flow[f"flow_{name}"] = flow.get(f"flow_{name}", 0.0) + value
            for name, n in follower.chooser.counts.items():
                flow[f"search_{name}"] = flow.get(f"search_{name}", 0.0) + n
        return {**super().statistics(), **flow, "kernels_ready": int(self._followable())}


make = Reconstruct
