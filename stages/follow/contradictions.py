"""Where the trace contradicted the code: which blob, which instruction of it, how often.

A place is (cause, version of the code, address of the last instruction that the walk had reached). Its blob and
bytecode position are looked up when it is first met, because the code image forgets code that is gone. Between two
reports at most `limit` places are kept apart; further ones are summed by cause, so sums are exact however wrong the
code is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.code.sites import UNKNOWN_CODE, SiteKind
from jvm.code.version import Kind, Version
from stages.messages import Break, Contradiction

OTHER = "other"
MAX_TEXT = 200
"""Longest name told, in characters: names come from the traced program."""
_COMPILERS = {SiteKind.C1: "C1", SiteKind.C2: "C2", SiteKind.NATIVE_WRAPPER: "native"}
_TELLABLE = np.array([int(b) for b in Break])

Key = tuple[int, int, int]  # cause, version's id (0: no code), address


class Contradictions:
    """Of one process, since they were last taken."""

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._places: dict[Key, Contradiction] = {}

    def add(self, breaks: NDArray[np.void], suspect: NDArray[np.int64], image: CodeImage, tsc: int) -> None:
        """`breaks`: `stages.messages.paths.BREAK_DTYPE`, of code as at `tsc`; breaks that contradict nothing are left
        out. `suspect`: instructions that each puts in doubt."""
        told = np.isin(breaks["cause"], _TELLABLE)
        if not told.any():
            return
        pairs = np.stack((breaks["cause"].astype(np.int64), breaks["at"].astype(np.int64)), axis=1)[told]
        distinct, where = np.unique(pairs, axis=0, return_inverse=True)
        times = np.bincount(where.reshape(-1), minlength=len(distinct))
        doubt = np.zeros(len(distinct), np.int64)
        np.add.at(doubt, where.reshape(-1), suspect[told])
        for (cause, at), n, instructions in zip(distinct.tolist(), times.tolist(), doubt.tolist(), strict=True):
            self._add(cause, at & (1 << 64) - 1, n, instructions, image, tsc)

    def take(self) -> tuple[Contradiction, ...]:
        """The contradictions added since the last time, most frequent first."""
        places, self._places = self._places, {}
        return tuple(sorted(places.values(), key=lambda p: (-p.times, p.cause, p.start, p.offset)))

    def _add(self, cause: int, at: int, times: int, suspect: int, image: CodeImage, tsc: int) -> None:
        version = image.at(at, tsc)
        key = cause, version.id if version else 0, at
        if key not in self._places and len(self._places) >= self._limit:
            key = cause, -1, 0
        known = self._places.get(key)
        if known is None:
            known = _describe(Break(cause), at, version if key[1] >= 0 else None, key[1] < 0, image)
        self._places[key] = known._replace(times=known.times + times, suspect=known.suspect + suspect)


def _describe(cause: Break, at: int, version: Version | None, other: bool, image: CodeImage) -> Contradiction:
    if other:
        return Contradiction(cause, OTHER, 0, 0, "", 0)
    if version is None:
        return Contradiction(cause, UNKNOWN_CODE, 0, at, "", 0)
    code, site = version.name[:MAX_TEXT], ""
    if version.kind == Kind.NMETHOD:
        code += f" ({_COMPILERS.get(version.site_kind, 'compiled')} #{version.compile_id})"
        if version.debug is not None:
            method, bci = version.debug.frames(at - version.start)[0]
            site = image.methods.get(method, "")[:MAX_TEXT] + (f" @ {bci}" if bci >= 0 else "")
    return Contradiction(cause, code, version.start, at - version.start, site, 0)
