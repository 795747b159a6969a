"""Calls of which it is not known which of several stubs they lead to.

Stubs that look a method up in a table, one for each index, and adapters to the interpreter, one for each fingerprint of
argument types, give the same packets as others of their kind: the trace shows where they lead, not which of them it
was. It is known where the call has been read so, or a resolver has been seen to jump there, or another call of the same
callee has been read so (`stages.follow.repair.observed_targets`). A stub of a table that no other call was read to lead
to was made for this one. Otherwise, as long as a call leads through a stub of the inline-cache buffer, which is used
for another before it is read, it is a guess, and blocks in the stub are told as guessed (`stages.messages.paths`). As
soon as it is known the call is walked anew, in blocks that say so.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from jvm.calls.call_sites import CALL_SIZE, targets
from jvm.calls.stubs import Stub, stub_of
from jvm.code.changes import Changes
from jvm.code.image import CodeImage
from jvm.code.version import Kind
from stages.follow.repair.call_targets import Callees
from stages.follow.repair.resolved_calls import ResolvedCalls

_ALIKE = (Stub.VTABLE, Stub.ITABLE, Stub.ADAPTER)
MOST = 1 << 14  # guesses kept: the last ones


class Guesses:
    """Of one process. A guess is dropped when it is known, or the call is gone."""

    def __init__(
        self, image: CodeImage, callees: Callees, resolved: ResolvedCalls, walk_anew: Callable[[int, int], None]
    ) -> None:
        """`walk_anew`: told the address and size of a call of which it is known now where it leads."""
        self._image, self._callees, self._resolved, self._walk_anew = image, callees, resolved, walk_anew
        self._made: dict[tuple[int, int], None] = {}  # calls, and the stubs that they were taken to lead to
        self._noted = 0
        self._changes = Changes(image)
        self._starts = self._ends = np.zeros(0, np.uint64)  # of stubs that are alike, ascending
        self._inline = 0, 0

    def mark(self, blocks: NDArray[np.void], ranges: NDArray[np.void]) -> None:
        """Sets `guessed` of BLOCK_DTYPE (n,), whose RANGE_DTYPE (m,) are all of `ranges`, in order."""
        self._look()
        stub = np.searchsorted(self._starts, ranges["lo"], "right") - 1
        alike = (stub >= 0) & (ranges["lo"] < np.append(self._ends, np.uint64(0))[stub])
        first = np.cumsum(blocks["ranges"]) - blocks["ranges"]
        for r in np.flatnonzero(alike).tolist():
            block = int(np.searchsorted(first, r, "right")) - 1
            before = r - 1
            while before > first[block] and self._inline[0] <= int(ranges["lo"][before]) < self._inline[1]:
                before -= 1
            if before < first[block] or blocks["guessed"][block]:
                continue
            call, to = int(ranges["hi"][before]) - CALL_SIZE, int(ranges["lo"][r])
            if self._callees.calls(call) and not self._known(call, to):
                blocks["guessed"][block] = first[block] + blocks["ranges"][block] - r
                self._made[call, to] = None
                if len(self._made) > MOST:
                    del self._made[next(iter(self._made))]

    def settle(self) -> None:
        """The calls of guesses that are known by now are walked anew."""
        if self._noted == self._callees.noted:
            return
        self._noted = self._callees.noted
        for call, to in list(self._made):
            if not self._callees.calls(call):
                del self._made[call, to]
            elif self._known(call, to):
                del self._made[call, to]
                self._walk_anew(call, CALL_SIZE)

    def _known(self, call: int, to: int) -> bool:
        led = self._callees.leads(call, to) or to in self._resolved.targets(call) or self._read(call) == to
        return led or self._callees.free(to)

    def _read(self, call: int) -> int:
        """Where the call leads as it was read last."""
        version = self._image.at(call, self._image.complete_until)
        if version is None:
            return 0
        return int(targets(self._image.code(version), version.start, np.array([call - version.start]))[0])

    def _look(self) -> None:
        came, _, kept = self._changes.look()
        if kept is None and all(v.kind == Kind.NMETHOD for v in came):
            return
        stubs = [(v.start, v.end) for v in self._image.versions() if stub_of(v) in _ALIKE]
        inline = [(v.start, v.end) for v in self._image.versions() if stub_of(v) == Stub.INLINE_CACHE]
        self._starts, self._ends = np.array(sorted(stubs), np.uint64).reshape(-1, 2).T.copy()
        self._inline = inline[-1] if inline else (0, 0)
