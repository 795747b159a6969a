"""Which Java method, at which bytecode, a machine instruction belongs to.

The compiler describes some addresses (PcDesc, scopeDesc.hpp); JVMTI hands them on as `pcs` with inline stacks. A
description is of the state *before* its pc, and belongs to the call or check that ends there, so the instructions
up to a pc are those of that pc: an address is described by the first pc greater than it. Behind the last pc (stubs,
handlers) and in code without pcs (native wrappers, method-handle linkers) only the nmethod's own method is known.
Code compiled while debug info was not asked for has few pcs (late attach): then the nearest one speaks for a long
stretch. More is not known; `detail` says how much is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.inner_methods import distinct, fine_bytes
from jvm.export.records import NmethodLoad


class Frame(NamedTuple):
    method: int  # the agent's method id, 0: unknown
    bci: int  # −1: method entry, or unknown


@dataclass(frozen=True, slots=True)
class DebugInfo:
    """The pcs of one nmethod. Addresses are offsets from its start."""

    size: int  # bytes of code
    own: int  # method id of the nmethod itself
    pc: NDArray[np.uint32]  # (n,) ascending
    frame_at: NDArray[np.int64]  # (n + 1,) frames of pc i: [frame_at[i], frame_at[i + 1]), innermost first
    method: NDArray[np.uint32]  # (m,)
    bci: NDArray[np.int32]  # (m,)
    detail: float  # share of the code up to the last pc that is described finely; 0 without pcs

    @classmethod
    def of(cls, load: NmethodLoad) -> DebugInfo:
        """From the agent's record; copies the parts it keeps."""
        pc = load.pc_offset.astype(np.uint32)
        frame_at = load.frame_at.astype(np.int64)
        method, bci = load.frames["method"].astype(np.uint32), load.frames["bci"].astype(np.int32)
        return cls.described(len(load.code), load.method, pc, frame_at, method, bci)

    @classmethod
    def described(
        cls, size: int, own: int, pc: NDArray[np.uint32], frame_at: NDArray[np.int64], method: NDArray[np.uint32],
        bci: NDArray[np.int32],
    ) -> DebugInfo:  # fmt: skip
        """By the pcs in any order."""
        fine = fine_bytes(pc)
        if fine < 0:
            order = np.argsort(pc, kind="stable")
            stacks = [np.arange(frame_at[i], frame_at[i + 1]) for i in order]
            take = np.concatenate(stacks).astype(np.int64)
            frame_at = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(s) for s in stacks]))).astype(np.int64)
            pc, method, bci = pc[order], method[take], bci[take]
            fine = fine_bytes(pc)
        return cls(size, own, pc, frame_at, method, bci, fine / int(pc[-1]) if len(pc) and pc[-1] else 0.0)

    def index(self, offsets: NDArray[np.uint64]) -> NDArray[np.int64]:
        """(n,) offsets → (n,) which pc describes each; len(pc) where none does."""
        return np.searchsorted(self.pc, offsets, side="right").astype(np.int64)

    def frames(self, offset: int) -> tuple[Frame, ...]:
        """The inline stack at `offset`, innermost first; never empty, ends in the nmethod's own method."""
        at = int(np.searchsorted(self.pc, offset, side="right"))
        if at < len(self.pc):
            lo, hi = int(self.frame_at[at]), int(self.frame_at[at + 1])
            if lo < hi:
                return tuple(Frame(int(m), int(b)) for m, b in zip(self.method[lo:hi], self.bci[lo:hi], strict=True))
        return (Frame(self.own, -1),)

    def inner_methods(self) -> NDArray[np.uint32]:
        """(n,) the innermost method at each pc."""
        return self._inner(self.method, self.own)

    def distinct_inner_methods(self) -> tuple[list[int], NDArray[np.int64]]:
        """The innermost methods, each once, ascending; and (n,) which of them is at each pc."""
        found, which = distinct(self.frame_at, self.method, self.own)
        order = np.argsort(found)
        place = np.empty(len(found), np.int64)
        place[order] = np.arange(len(found))
        return found[order].tolist(), place[which]

    def inner_bcis(self) -> NDArray[np.int32]:
        """(n,) the innermost bci at each pc."""
        return self._inner(self.bci, -1)

    def _inner(self, values: NDArray, missing: int) -> NDArray:  # type: ignore[type-arg]
        first = self.frame_at[:-1]
        known = first < self.frame_at[1:]
        out = np.full(len(self.pc), missing, values.dtype)
        out[known] = values[first[known]]
        return out

    def innermost(self, offsets: NDArray[np.uint64]) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """(n,) offsets → (n,) innermost methods, (n,) bcis."""
        at = self.index(offsets)
        methods = np.append(self.inner_methods(), np.uint32(self.own))
        bcis = np.append(self.inner_bcis(), np.int32(-1))
        return methods[at], bcis[at]
