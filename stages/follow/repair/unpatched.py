"""The JMPs at places of C1's code that wait to be patched (jvm.calls.patching_stubs), where they have not been read.

Code from before the agent could tell was patched when it was told of; under -Xcomp that is most of a JVM's beginning.
And while a class is being initialised a JMP leads to the copy, mostly for less time than lies between two readings.
Inferred.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.calls import patching_stubs
from jvm.calls.call_sites import JMP, targets
from jvm.calls.stubs import is_patching
from jvm.code.image import CodeImage
from jvm.code.sites import SiteKind
from jvm.code.version import Version
from stages.pointers import signed_rows

I64 = NDArray[np.int64]

_EVER = 1 << 62


class Unpatched:
    """Of one code image. A version's places are found once, and kept as long as the image has it."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._of: dict[int, list[tuple[int, int, int]]] = {}  # by version

    def columns(self) -> tuple[I64, I64, I64]:
        """(n,) places, ascending; (n,) where a JMP there led; (n,) until when at most."""
        versions = {v.id: v for v in self._image.versions()}
        patching = np.array([v.start for v in versions.values() if is_patching(v)], np.uint64)
        for id_ in self._of.keys() - versions.keys():
            del self._of[id_]
        for v in versions.values():
            if len(patching) and v.site_kind == SiteKind.C1 and v.id not in self._of:
                self._of[v.id] = self._found(v, patching)
        rows = sorted(row for of in self._of.values() for row in of)
        place, to, until = signed_rows(rows, 3).T.copy()
        return place, to, until

    def _found(self, v: Version, patching: NDArray[np.uint64]) -> list[tuple[int, int, int]]:
        code = self._image.first_code(v)
        places = patching_stubs.places(code, v.start, patching)
        at = np.array([p.at for p in places], np.int64)
        leads = targets(code, v.start, at).tolist()
        found = []
        for p, to in zip(places, leads, strict=True):
            waits = code[p.at] == JMP and to == v.start + p.stub
            if p.copy >= 0:
                found.append((v.start + p.at, v.start + p.copy, _EVER if waits else v.loaded))
            if not waits:
                found.append((v.start + p.at, v.start + p.stub, v.loaded))
        return found
