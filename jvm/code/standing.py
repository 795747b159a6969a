"""Which versions lie where, by the last records. Nmethods are disjoint: a newly placed one takes the place of those
that it overlaps. Stubs may nest (a buffer blob, the routines in it; the interpreter, its codelets)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from jvm.code.version import Kind, Version


class Standing:
    """Of one process: nmethods that stand or were unloaded and not yet overlapped, and stubs, which are hardly ever
    freed. Versions that end are dropped by `bury`, `place` and `forget_before`."""

    def __init__(self) -> None:
        self.nmethods: list[Version] = []  # by start
        self._starts: list[int] = []
        self._stubs: dict[tuple[int, Kind], Version] = {}
        self._keys: list[tuple[int, Kind]] = []  # sorted
        self._longest = 0  # stub, in bytes

    def nmethods_in(self, start: int, end: int) -> list[Version]:
        """The versions that overlap [start, end), by start."""
        lo, hi = self._overlapping(start, end)
        return self.nmethods[lo:hi]

    def nmethod_from(self, start: int) -> Version | None:
        i = bisect_left(self._starts, start)
        return self.nmethods[i] if i < len(self.nmethods) and self._starts[i] == start else None

    def nmethod_holding(self, address: int) -> Version | None:
        i = bisect_right(self._starts, address) - 1
        return self.nmethods[i] if i >= 0 and address < self.nmethods[i].end else None

    def stub(self, start: int, kind: Kind) -> Version | None:
        return self._stubs.get((start, kind))

    def stubs_in(self, start: int, end: int) -> list[Version]:
        """The versions that overlap [start, end), by start."""
        return [self._stubs[key] for key in self._keys_in(start, end)]

    def place(self, version: Version) -> None:
        """Nmethods that it overlaps are gone, and a stub of its kind that began there."""
        lo, hi = self._overlapping(version.start, version.end)
        nmethod = version.kind == Kind.NMETHOD
        self.nmethods[lo:hi] = [version] if nmethod else []
        self._starts[lo:hi] = [version.start] if nmethod else []
        if not nmethod:
            key = version.start, version.kind
            if key not in self._stubs:
                insort(self._keys, key)
            self._longest = max(self._longest, version.end - version.start)
            self._stubs[key] = version

    def bury(self, start: int, end: int) -> list[Version]:
        """Takes out the stubs that overlap [start, end)."""
        keys = self._keys_in(start, end)
        for key in keys:
            self._keys.remove(key)
        return [self._stubs.pop(key) for key in keys]

    def forget_before(self, tsc: int) -> None:
        """Drops nmethods that had ended by then."""
        self.nmethods = [v for v in self.nmethods if v.until > tsc]
        self._starts = [v.start for v in self.nmethods]

    def _overlapping(self, start: int, end: int) -> tuple[int, int]:
        """The range of `nmethods` that overlaps [start, end)."""
        lo = bisect_right(self._starts, start)
        if lo and self.nmethods[lo - 1].end > start:
            lo -= 1
        return lo, max(lo, bisect_left(self._starts, end))

    def _keys_in(self, start: int, end: int) -> list[tuple[int, Kind]]:
        lo = bisect_right(self._keys, (start - self._longest, Kind.CODELET))
        hi = bisect_left(self._keys, (end, Kind(1)))
        return [key for key in self._keys[lo:hi] if self._stubs[key].end > start]
