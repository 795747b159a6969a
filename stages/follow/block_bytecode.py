"""Of which code a block is, and of which bytecode: found once, from the code version it was walked in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.code.debug_info import DebugInfo
from jvm.code.image import CodeImage
from jvm.code.version import Kind
from jvm.kernels import kernel
from stages.messages.columns import joined
from stages.messages.paths import FRAME_DTYPE, STEP_DTYPE
from stages.pointers import signed

I64 = NDArray[np.int64]


class Bytecode:
    """Steps and frames of the blocks of one generation, until they are taken."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._steps: list[NDArray[np.void]] = [np.zeros(0, STEP_DTYPE)]
        self._frames: list[NDArray[np.void]] = [np.zeros(0, FRAME_DTYPE)]
        self._begun = np.zeros(2, np.int64)  # how many steps and frames there were in all

    def take(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """(n,) STEP_DTYPE, (m,) FRAME_DTYPE that were found since the last time."""
        steps, frames = joined(self._steps), joined(self._frames)
        del self._steps[1:], self._frames[1:]
        return steps, frames

    def find(
        self, blocks: NDArray[np.void], begin: int, end: int, ranges: NDArray[np.void], lengths: NDArray[np.uint8]
    ) -> None:
        """Fills the rows [begin, end) of `blocks`: BLOCK_DTYPE, whose `ranges` and `lengths` begin with the first
        one's."""
        rows, image = blocks[begin:end], self._image
        rows["version"] = image.versions_of(rows["start"].copy(), rows["tsc"].copy())
        rows["step"] = self._begun[0]
        in_order = np.argsort(rows["version"], kind="stable")
        ids, first = np.unique(rows["version"][in_order], return_index=True)
        for id_, mine in zip(ids.tolist(), np.split(in_order, first[1:]), strict=True):
            version = image.version(id_)
            if version is None:
                continue
            rows["kind"][mine] = int(version.site_kind)
            if version.kind == Kind.CODELET:
                rows["bytecode"][mine] = [image.codelets.bytecode(int(a)) for a in rows["start"][mine]]
            if version.debug is not None:
                of = int(blocks["range"][0]), int(blocks["length"][0])
                self.describe(rows, mine, ranges, lengths, of, version.start, version.debug)

    def describe(
        self, rows: NDArray[np.void], mine: I64, ranges: NDArray[np.void], lengths: NDArray[np.uint8],
        of: tuple[int, int], start: int, debug: DebugInfo,
    ) -> None:  # fmt: skip
        """Those of `rows` that begin in the nmethod at `start`; `of`: the positions at which `ranges` and `lengths`
        begin."""
        steps = np.zeros(int(rows["instructions"][mine].sum()), STEP_DTYPE)
        frames = np.zeros(len(debug.method) + len(debug.pc) + 1, FRAME_DTYPE)
        n, m = _describe(
            rows, mine, ranges, lengths, *of, signed(start), debug.pc, debug.frame_at, debug.method, debug.bci,
            debug.own, np.full(len(debug.pc) + 1, -1), steps, frames, self._begun,
        )  # fmt: skip
        self._steps.append(steps[:n].copy())
        self._frames.append(frames[:m].copy())
        self._begun += n, m


@kernel
def _describe(  # type: ignore[no-untyped-def]
    rows, mine, ranges, lengths, range_begin, length_begin, start, pcs, frame_at, method, bci, own, frame_of, steps,
    frames, begun,
):  # fmt: skip
    """The steps of the blocks `rows[mine]`, which begin in an nmethod at `start`, and their frames, each pc's once.
    `frame_of`: −1 for each pc, and for code that none describes. How many steps and frames."""
    n = m = 0
    for j in range(len(mine)):
        row = rows[mine[j]]
        row["step"] = begun[0] + n
        at = row["length"] - length_begin
        first, before = row["range"] - range_begin, -1
        for r in range(first, first + row["ranges"]):
            here = np.int64(ranges[r]["lo"]) - start
            for _ in range(ranges[r]["instructions"]):
                lo, hi = 0, len(pcs)
                if here < 0:
                    lo = hi  # outside of the nmethod (a jump into another), as behind its last pc
                while lo < hi:
                    middle = (lo + hi) >> 1
                    if pcs[middle] <= here:
                        lo = middle + 1
                    else:
                        hi = middle
                described = frame_at[lo + 1] - frame_at[lo] if lo < len(pcs) else 0
                if lo != before:
                    if frame_of[lo] < 0:
                        frame_of[lo] = m
                        for k in range(described):
                            frames[m]["method"], frames[m]["bci"] = method[frame_at[lo] + k], bci[frame_at[lo] + k]
                            m += 1
                        if described == 0:  # the method itself
                            frames[m]["method"], frames[m]["bci"] = own, -1
                            m += 1
                    steps[n]["frame"], steps[n]["frames"] = begun[1] + frame_of[lo], max(described, 1)
                    before = lo
                    n += 1
                steps[n - 1]["instructions"] += 1
                here += np.int64(lengths[at])
                at += 1
        row["steps"] = begun[0] + n - row["step"]
    return n, m
