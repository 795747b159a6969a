"""Where compiled code stands in the bytecode while a call that it made is under way.

A block of an nmethod has a row: the last call in it, with the scopes that debug info names for its return address,
innermost first (ScopeDesc); without a call it tells the nmethod alone. Its callee, if the interpreter is entered next,
is one of those of the innermost scope's invoke; after a deoptimisation the scopes are the frames that the interpreter
goes on in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.arena import Arena
from jvm.code.debug_info import DebugInfo
from jvm.code.image import CodeImage
from stages.messages.reports import CodeKind
from stages.paths.dictionary import spans

KINDS = (int(CodeKind.C1), int(CodeKind.C2), int(CodeKind.NATIVE_WRAPPER))
_NO_CALL = -1


class Places(NamedTuple):
    scope: NDArray[np.int32]  # the first of its scopes
    scopes: NDArray[np.int32]  # 0: not known
    called: NDArray[np.uint8]  # whether it is a call
    version: NDArray[np.int64]  # of the nmethod


class Scopes(NamedTuple):
    method: NDArray[np.int64]  # the agent's
    bci: NDArray[np.int32]


class Compiled:
    """Of one generation, until `forget`."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self.forget()

    def forget(self) -> None:
        self._row: dict[tuple[int, int], int] = {}  # by version and position among its pcs
        self._scope, self._scopes = Arena[np.int32](np.int32), Arena[np.int32](np.int32)
        self._called, self._version = Arena[np.uint8](np.uint8), Arena[np.int64](np.int64)
        self._method, self._bci = Arena[np.int64](np.int64), Arena[np.int32](np.int32)

    def view(self) -> tuple[Places, Scopes]:
        places = Places(self._scope.view(), self._scopes.view(), self._called.view(), self._version.view())
        return places, Scopes(self._method.view(), self._bci.view())

    def rows(self, blocks: NDArray[np.void], ranges: NDArray[np.void]) -> NDArray[np.int32]:
        """(n,) the row of each of (n,) blocks (BLOCK_DTYPE); −1: it is no compiled code. `ranges`: all of the
        generation."""
        rows = np.full(len(blocks), -1, np.int32)
        mine = np.flatnonzero(np.isin(blocks["kind"], KINDS))
        versions, inverse = np.unique(blocks["version"][mine], return_inverse=True)
        rows[mine] = np.array([self.place(v, _NO_CALL, None) for v in versions.tolist()], np.int32)[inverse]
        at, owner = spans(blocks["range"][mine].astype(np.int64), blocks["ranges"][mine].astype(np.int64))
        calls = np.flatnonzero(ranges["calls"][at] == 1)
        block, behind = mine[owner[calls]], ranges["hi"][at[calls]]
        last = behind - np.uint64(1)
        made_by = self._image.versions_of(last, blocks["tsc"][block].copy())
        found = np.full(len(block), -1, np.int64)
        for id_ in np.unique(made_by).tolist():
            version = self._image.version(id_)
            if version is None or version.debug is None:
                continue
            of = np.flatnonzero(made_by == id_)
            pcs, inverse = np.unique(version.debug.index(last[of] - np.uint64(version.start)), return_inverse=True)
            numbers = [self.place(id_, pc, version.debug) for pc in pcs.tolist()]
            found[of] = np.array(numbers, np.int64)[inverse]
        known = found >= 0
        rows[block[known]] = found[known]  # the last of a block
        return rows

    def place(self, version: int, pc: int, debug: DebugInfo | None) -> int:
        """The row of a call of an nmethod, by its position among the pcs."""
        row = self._row.get((version, pc))
        if row is None:
            method, bci = np.zeros(0, np.int64), np.zeros(0, np.int32)
            if debug is not None and pc < len(debug.pc):
                scopes = slice(int(debug.frame_at[pc]), int(debug.frame_at[pc + 1]))
                method, bci = debug.method[scopes].astype(np.int64), debug.bci[scopes]
            self._method.append(method)
            self._scope.append(np.array([self._bci.append(bci)], np.int32))
            self._scopes.append(np.array([len(bci)], np.int32))
            self._called.append(np.array([pc != _NO_CALL], np.uint8))
            row = self._row[version, pc] = self._version.append(np.array([version], np.int64))
        return row
