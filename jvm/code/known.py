"""A process's code, as far as it is kept, and its answers to questions. `jvm.code.image` makes it of records."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.detail import Detail
from jvm.code.entry_state import EntryState
from jvm.code.lookup import Table
from jvm.code.register import Register
from jvm.code.revision_store import Uncertain
from jvm.code.revisions import Revisions
from jvm.code.sites import Sites
from jvm.code.snapshot import CodeView
from jvm.code.standing import Standing
from jvm.code.version import FOREVER, Version

READINGS = 1 << 12
"""Of all code, whose times are kept."""
LAG = 16
"""By that part of the lateness revisions begin later than their records (jvm.code.revisions)."""


class Extent(NamedTuple):
    """Of what is kept of code at some time, for a reader that looks at changes alone."""

    last: int = 0  # id of a version
    dropped: int = 0  # versions, so far
    patches: int = 0  # made, so far


class KnownCode:
    """Of one process, as far as it has been told."""

    def __init__(self, lateness: int | None, sites: Sites | None) -> None:
        self._lateness = lateness
        self.sites = sites if sites is not None else Sites()
        self.epoch = 0  # of every change
        self.census = 0  # of changes of dispatch tables, and of versions but for their bytes: one has come, ended,
        # gone, or got its name
        self._read: deque[int] = deque(maxlen=READINGS)  # times, ascending: all patches made before each have been told
        self.primed_at = FOREVER  # when all code there at the agent's beginning had been told
        self._standing = Standing()
        self._register = Register()
        self._detail = Detail()  # of the nmethods that stand
        self.entry_state = EntryState()  # which nmethods were made not entrant, and when
        self._revisions = Revisions((lateness or 0) // LAG, self.entry_state.opened)
        self._view: CodeView | None = None

    def settled(self, tsc: int) -> bool:
        """Is the JVM's beginning, with all that was told late of it, over at `tsc`?"""
        return self.lateness is not None and tsc > self.primed_at + self.lateness

    def at(self, ip: int, tsc: int) -> Version | None:
        """The innermost version that holds `ip` at `tsc`."""
        return self._register.at(ip, tsc)

    def version(self, id_: int) -> Version | None:
        """By the id that tables and views carry; None if it has been forgotten."""
        return self._register.by_id.get(id_)

    def code(self, version: Version) -> NDArray[np.uint8]:
        """Its bytes as last told; read-only by convention."""
        return self._revisions.latest(version)

    def first_code(self, version: Version) -> NDArray[np.uint8]:
        """Its bytes before calls in it were bound and it was made not entrant, as far as that is known; read-only by
        convention."""
        return self._revisions.first(version)

    def table(self) -> Table:
        """For kernels (`jvm.code.lookup.locate`): all versions known, with their times."""
        return self._register.table()

    def sites_of(self, ips: NDArray[np.uint64], tscs: NDArray[np.uint64]) -> NDArray[np.int32]:
        """(n,) addresses at (n,) times → (n,) sites; 0 (`UNKNOWN_CODE`) where nothing stood."""
        return self._register.sites_of(ips, tscs)

    def versions_of(self, ips: NDArray[np.uint64], tscs: NDArray[np.uint64]) -> NDArray[np.int64]:
        """(n,) addresses at (n,) times → (n,) numbers of versions (`version`); 0 where nothing stood."""
        return self._register.versions_of(ips, tscs)

    def sites_used(self) -> Iterable[NDArray[np.int32]]:
        """All sites that `sites_of` can give."""
        return self._register.sites_used()

    def settling(self) -> Iterator[None]:
        """Puts the patches that were told into time, which else the next question does; in steps: None between two."""
        return self._revisions.settling()

    def view(self, tsc: int | None = None) -> CodeView:
        """The code at `tsc`, or (None) the code that stands now by all that was told; disjoint, where stubs nest the
        inner one. The view of now is made once an epoch."""
        if tsc is not None:
            return self._revisions.view(tsc, self.epoch)
        if self._view is None or self._view.epoch != self.epoch:
            self._view = self._revisions.view(None, self.epoch)
        return self._view

    def next_change(self, tsc: int) -> int:
        """The first time after `tsc` at which `view` is another than at `tsc`, by all that has been told; FOREVER:
        none."""
        return self._revisions.next_change(tsc)

    def read_until(self, tsc: int) -> int:
        """The last time up to `tsc` at which all patches made before it have been told: a patch made before and not in
        a revision was over by then. 0: none."""
        read = bisect_right(self._read, tsc)
        return self._read[read - 1] if read else 0

    def uncertain(self, begin: int, end: int | None = None) -> Uncertain:
        """The patches of which it is not known whether they had been made at `begin`, or at some time up to `end`."""
        return self._revisions.uncertain(begin, begin if end is None else end)

    @property
    def lateness(self) -> int | None:
        """May be told later than all else, for a clock is; revisions that are there by then keep their times."""
        return self._lateness

    @lateness.setter
    def lateness(self, ticks: int) -> None:
        self._lateness, self._revisions.lag = ticks, ticks // LAG

    def versions(self) -> Iterable[Version]:
        """All that are kept; `patched` is as far as told."""
        self._revisions.settle()
        return self._register.by_id.values()

    def changed_since(self, then: Extent) -> tuple[list[Version], list[Version], Extent]:
        """The versions that have come since, in order; those that were patched since; and now's extent. If versions are
        gone since, it has more `dropped`."""
        patched = self._revisions.patched_since(then.patches)
        came = self._register.since(then.last)
        last = came[-1].id if came else then.last
        return came, patched, Extent(last, self._register.dropped, self._revisions.patches)

    # For who is told

    def _end(self, v: Version, tsc: int) -> None:
        """`v` stands till now."""
        v.until = max(tsc, v.since)
        if v.until != FOREVER:
            self._detail.ended(v)
        self._register.end(v)
        self._revisions.ended(v)
        self._registered()

    def _add(self, v: Version, code: memoryview) -> None:
        self._revisions.begin(v, np.frombuffer(code, np.uint8))
        self._register.add(v, self.sites.site(v.name, v.site_kind))
        self._detail.came(v)
        self._registered()

    def _registered(self) -> None:
        self.census += 1
        self._changed()

    def _changed(self) -> None:
        self.epoch += 1
