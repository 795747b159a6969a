"""The places of C1's code that wait to be patched (jvm.calls.patching_stubs): what stood or stands there that has not
been read. Inferred.

Code from before the agent could tell was patched when it was told of; under -Xcomp that is most of a JVM's beginning.
And while a class is being initialised a JMP leads to the copy, mostly for less time than lies between two readings: of
these, the JMPs. Code that is told before it first runs is patched when it does, and read again a while later: of such,
the copy.
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
from stages.follow.repair.known import WINDOW, Known
from stages.pointers import signed_rows

_EVER = 1 << 62


class Unpatched:
    """Of one code image. A version's places are found once, and kept as long as the image has it."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._of: dict[int, tuple[list[tuple[int, int, int]], list[tuple[int, bytes]]]] = {}  # by version

    def add(self, known: Known) -> Known:
        """`known` with columns as the image is now."""
        versions = {v.id: v for v in self._image.versions()}
        patching = np.array([v.start for v in versions.values() if is_patching(v)], np.uint64)
        for id_ in self._of.keys() - versions.keys():
            del self._of[id_]
        for v in versions.values():
            if len(patching) and v.site_kind == SiteKind.C1 and v.id not in self._of:
                self._of[v.id] = self._found(v, patching)
        jumps = sorted(row for of, _ in self._of.values() for row in of)
        waiting = sorted(row for _, of in self._of.values() for row in of)
        place, to, until = signed_rows(jumps, 3).T.copy()
        contents = np.frombuffer(b"".join(content for _, content in waiting), np.uint8).reshape(-1, WINDOW)
        return known._replace(
            unpatched=place, unpatched_to=to, unpatched_until=until,
            waiting=np.array([at for at, _ in waiting], np.uint64).view(np.int64), waiting_content=contents,
        )  # fmt: skip

    def _found(
        self, v: Version, patching: NDArray[np.uint64]
    ) -> tuple[list[tuple[int, int, int]], list[tuple[int, bytes]]]:
        """Places of JMPs, where these lead, and until when at most; places that wait, and their content afterwards."""
        code = self._image.first_code(v)
        places = patching_stubs.places(code, v.start, patching)
        at = np.array([p.at for p in places], np.int64)
        leads = targets(code, v.start, at).tolist()
        jumps, waiting = [], []
        for p, to in zip(places, leads, strict=True):
            waits = code[p.at] == JMP and to == v.start + p.stub
            if p.asks:
                jumps.append((v.start + p.at, v.start + p.copy, _EVER if waits else v.loaded))
            if waits:
                content = p.patched(code)[:WINDOW].tobytes()
                waiting.append((v.start + p.at, content.ljust(WINDOW, b"\0")))
            else:
                jumps.append((v.start + p.at, v.start + p.stub, v.loaded))
        return jumps, waiting
