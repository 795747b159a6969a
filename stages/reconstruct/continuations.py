"""Where in an order of paths a thread goes into a continuation, goes on in one, and leaves it for another time.

A virtual thread runs in a continuation, on a carrier. Three places in HotSpot's own code say what becomes of it (JDK:
sharedRuntime_x86_64.cpp, `gen_continuation_enter`, `gen_continuation_yield`; stubGenerator_x86_64.cpp,
`generate_cont_thaw`, `generate_cont_preempt_stub`):

- BEGINS: the block of `Continuation.enterSpecial` behind the branch that asks whether the continuation goes on: each
  time that one is mounted;
- THAWED: the return out of the stub `cont_thaw` into its topmost frame, if it goes on;
- FREEZES: the return out of `Continuation.doYield`, or of the stub `cont_preempt`, to the caller of `enterSpecial`. (A
  yield that fails returns there too, to the frame that asked for it.)
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.code.version import Version
from jvm.kernels import inner, kernel
from stages.messages import Paths
from stages.messages.paths import LINK_DTYPE, PATH_DTYPE, BlockEnd, PathKind
from stages.paths.dictionary import Dictionary


class Mark(IntEnum):
    BEGINS = 1
    THAWED = 2
    FREEZES = 3


MARK_DTYPE = np.dtype(
    [("row", "<i8"), ("order", "<i8"), ("block", "<i4"), ("mark", "<i4"), ("since", "<i8"), ("until", "<i8")]
)
"""Row of the `Paths`; position in its order and block of the path there, as in EVENT_DTYPE; Mark; the times of the
stops before and behind it."""

ENTER, YIELD = "jdk.internal.vm.Continuation.enterSpecial", "jdk.internal.vm.Continuation.doYield"
THAW = ("[stub] cont_thaw", "[stub] Cont thaw")  # JDK 25, 21
PREEMPT = "[stub] cont_preempt"  # JDK 25
_OF_PATHS, _RETURN = int(PathKind.OF_PATHS), int(BlockEnd.RETURN)
_BEGINS, _THAWED, _FREEZES = (int(mark) for mark in Mark)
FOUND = 1 << 10


class Continuations:
    """Of one process. Blocks and paths are dropped with their generation."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self.forget()

    def forget(self) -> None:
        """A new generation: other blocks and paths."""
        self._of_block, self._of_path = np.zeros(1 << 10, np.uint8), np.zeros(1 << 10, np.uint8)
        self._blocks = self._paths = 0
        self._met = False
        self._kinds: dict[int, int] = {}  # of versions

    def marks(self, message: Paths, d: Dictionary) -> NDArray[np.void]:
        """MARK_DTYPE, by row and in order."""
        self._learn(d)
        if not self._met:
            return np.zeros(0, MARK_DTYPE)
        order = message.order if message.order.flags.writeable else message.order.copy()
        at, tsc = message.stops["order"].copy(), message.stops["tsc"].astype(np.int64)
        rows, paths, links = message.rows, d.paths.rows, d.links.rows
        found = np.zeros(FOUND, MARK_DTYPE)
        while True:
            n = int(
                _find(
                    rows["order"].copy(), rows["order_end"].copy(), rows["stop"].copy(), rows["stop_end"].copy(),
                    order, at, tsc, self._of_path, self._of_block, paths, links, found,
                )
            )  # fmt: skip
            if n <= len(found):
                return found[:n]
            found = np.zeros(n, MARK_DTYPE)

    def _learn(self, d: Dictionary) -> None:
        begin, end = self._blocks, d.blocks.size
        self._of_block, self._of_path = _grown(self._of_block, end), _grown(self._of_path, d.paths.size)
        if begin < end:
            rows = d.blocks.rows[begin:end]
            versions, where = np.unique(rows["version"], return_inverse=True)
            kinds = np.array([self._kind(int(v)) for v in versions.tolist()], np.uint8)[where]
            returns = rows["ends"] == _RETURN
            kinds[(kinds == _THAWED) & ~returns] = 0
            kinds[(kinds == _FREEZES) & ~returns] = 0
            for k in np.flatnonzero(kinds == _BEGINS).tolist():
                kinds[k] *= self._begins(rows[k])
            self._of_block[begin:end] = kinds
            self._blocks = end
            self._met = self._met or bool(kinds.any())
        if self._met:
            _flag_paths(self._paths, d.paths.size, d.paths.rows, d.links.rows, self._of_block, self._of_path)
        self._paths = d.paths.size

    def _kind(self, version: int) -> int:
        known = self._kinds.get(version)
        if known is None:
            of = self._image.version(version)
            known = self._kinds[version] = 0 if of is None else _mark_of(of)
        return known

    def _begins(self, block: np.void) -> bool:
        """Whether a block that starts in `enterSpecial` is that behind its branch."""
        of = self._image.version(int(block["version"]))
        if of is None or int(block["start"]) in (of.start, of.entry, of.verified_entry):
            return False
        return not (block["ends"] == _RETURN and of.start <= int(block["last"]) < of.end)


def compile_kernels() -> None:
    """On nothing."""
    none, flags = np.zeros(0, np.int64), np.zeros(1, np.uint8)
    paths, links = np.zeros(1, PATH_DTYPE), np.zeros(1, LINK_DTYPE)
    _flag_paths(0, 0, paths, links, flags, flags)
    order = np.zeros(0, np.int32)
    _find(none, none, none, none, order, none, none, flags, flags, paths, links, np.zeros(0, MARK_DTYPE))


def _mark_of(version: Version) -> int:
    if version.name == ENTER:
        return _BEGINS
    if version.name == YIELD or version.name == PREEMPT:
        return _FREEZES
    return _THAWED if version.name in THAW else 0


def _grown(array: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    if size <= len(array):
        return array
    return np.concatenate((array, np.zeros(max(size - len(array), len(array)), np.uint8)))


@kernel
def _flag_paths(begin, end, paths, links, of_block, of_path):  # type: ignore[no-untyped-def]
    """Fills `of_path` [begin, end): whether there is a mark on it. A path of paths has only older ones."""
    for x in range(begin, end):
        made = paths[x].kind == _OF_PATHS
        for k in range(paths[x].link, paths[x].link + paths[x].links):
            number = links[k].number
            if (of_path[number] if made else of_block[number]) != 0:
                of_path[x] = 1


@inner
def _on_path(x, paths, links, of_block, block, row, j, since, until, found, n):  # type: ignore[no-untyped-def]
    """The marks on a path of blocks whose first is number `block` at that position; how many there are then, and the
    number of the block behind it."""
    for k in range(paths[x].link, paths[x].link + paths[x].links):
        mark = of_block[links[k].number]
        if mark != 0:
            if n < len(found):
                found[n].row, found[n].order, found[n].block, found[n].mark = row, j, block, mark
                found[n].since, found[n].until = since, until
            n += 1
        block += 1
    return n, block


@kernel
def _find(  # type: ignore[no-untyped-def]
    begin, end, stop, stop_end, order, at, tsc, of_path, of_block, paths, links, found
):
    """Fills `found`, as far as there is room; how many there are."""
    n = np.int64(0)
    for row in range(len(begin)):
        s, last = stop[row], np.int64(0)
        for j in range(begin[row], end[row]):
            x, times = np.int64(order[j]), np.int64(1)
            if x < 0:
                times, x = -x, last
            last = x
            if of_path[x] == 0:
                continue
            while s + 1 < stop_end[row] - 1 and at[s + 1] <= j:
                s += 1
            since, until = tsc[s], tsc[min(s + 1, stop_end[row] - 1)]
            block = np.int64(0)
            for _ in range(times):
                if paths[x].kind != _OF_PATHS:
                    n, block = _on_path(x, paths, links, of_block, block, row, j, since, until, found, n)
                    continue
                for k in range(paths[x].link, paths[x].link + paths[x].links):
                    part = np.int64(links[k].number)
                    n, block = _on_path(part, paths, links, of_block, block, row, j, since, until, found, n)
    return n
