"""Made-up programs of compiled methods: their control flow, as `Paths`, and the tree that it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from jvm.bytecode.classes import Classes
from jvm.code.codelets import Codelets
from jvm.code.debug_info import DebugInfo
from jvm.code.sites import SiteKind
from jvm.code.version import Kind, Version
from jvm.threads import ThreadNames
from stages.messages import Paths, StreamKey
from stages.messages.paths import (
    BLOCK_DTYPE,
    BREAK,
    BREAK_DTYPE,
    FIRST_PATH,
    FRAME_DTYPE,
    LINK_DTYPE,
    OVERFLOW,
    PATH_DTYPE,
    RANGE_DTYPE,
    STEP_DTYPE,
    STOP_DTYPE,
    TAKEN_DTYPE,
    BlockEnd,
    PathKind,
)

STREAM = StreamKey("h", 42, 0, -1)
METHODS, SITES, SPACING = 4, 3, 0x1000
UNKNOWN = "[unknown caller]"
INTERPRETER = SPACING * (METHODS + 1)
METHOD_ENTRY = "method entry point (kind = zerolocals)"
Stack = tuple[tuple[str, int], ...]


class Made:
    """Stands for a code image: METHODS nmethods. Each has calls at SITES; that at the last is inlined code's."""

    def __init__(self) -> None:
        self.codelets, self.classes, self.census = Codelets(), Classes(), 0
        self.threads, self.lateness = ThreadNames(), 0
        self.methods = {m + 1: f"m{m}" for m in range(METHODS)} | {100: "inlined"}
        self.known = [self._version(m) for m in range(METHODS)]
        start = SPACING * (METHODS + 1)
        self.known.append(Version(METHODS + 1, Kind.CODELET, start, start + SPACING, METHOD_ENTRY, 0, 0))

    @staticmethod
    def _version(m: int) -> Version:
        pcs = np.array([16 * (s + 1) + 5 for s in range(SITES)], np.uint32)
        stacks = [[(m + 1, s)] if s < SITES - 1 else [(100, 7), (m + 1, s)] for s in range(SITES)]
        flat = [frame for stack in stacks for frame in stack]
        debug = DebugInfo(
            SPACING, m + 1, pcs, np.cumsum([0, *map(len, stacks)]), np.array([f for f, _ in flat], np.uint32),
            np.array([b for _, b in flat], np.int32), 1.0,
        )  # fmt: skip
        start = SPACING * (m + 1)
        return Version(
            m + 1, Kind.NMETHOD, start, start + SPACING, f"m{m}", 0, 0, method=m + 1, level=4, entry=start,
            verified_entry=start, debug=debug, site_kind=SiteKind.C2,
        )  # fmt: skip

    def versions_of(self, ips: np.ndarray[Any, Any], tscs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        number = ips.astype(np.int64) // SPACING
        return np.where((number >= 1) & (number <= METHODS + 1), number, 0)

    def version(self, number: int) -> Version | None:
        return self.known[number - 1] if number else None

    def versions(self) -> list[Version]:
        return self.known

    def first_code(self, version: Version) -> np.ndarray[Any, Any]:
        return np.full(SPACING, 0x90, np.uint8)


class Call(NamedTuple):
    """A method, and its calls: at which site, by a direct call or not."""

    method: int
    calls: tuple[tuple[int, bool, Call], ...]


def _calls(below: st.SearchStrategy[Call]) -> st.SearchStrategy[Call]:
    one = st.tuples(st.integers(0, SITES - 1), st.booleans(), below)
    return st.builds(Call, st.integers(0, METHODS - 1), st.lists(one, max_size=3).map(tuple))


PROGRAMS = st.recursive(st.builds(Call, st.integers(0, METHODS - 1), st.just(())), _calls, max_leaves=12)


class Range(NamedTuple):
    lo: int
    hi: int
    calls: bool
    stack: Stack  # of the instruction at `lo`, outermost first


class Block(NamedTuple):
    ranges: tuple[Range, ...]
    ends: BlockEnd
    start: int = SPACING  # of one without instructions
    last: int = 0  # of one that an event cut short: where it was left


def run(program: Call) -> list[Block]:
    """The blocks that are executed. A range is one instruction: the entry, that behind a call, or a call; a call
    directly behind another's return is that instruction."""
    out: list[Block] = []
    open_: list[Range] = []

    def end(kind: BlockEnd) -> None:
        out.append(Block(tuple(open_), kind))
        open_.clear()

    def execute(call: Call, above: Stack, site: int) -> None:
        base = SPACING * (call.method + 1)
        own = (*above, (f"m{call.method}", site))
        here = base
        for at, direct, callee in call.calls:
            ret = base + 16 * (at + 1) + 5
            stack = own if at < SITES - 1 else (*own, ("inlined", at))
            open_.append(Range(here, here + 1, False, _at(own, here - base)))
            end(BlockEnd.CONDITION)
            open_.append(Range(ret - 5, ret, True, stack))
            if not direct:
                end(BlockEnd.INDIRECT)
            execute(callee, stack, at if at < SITES - 1 else 7)
            here = ret
        open_.append(Range(here, here + 1, False, _at(own, here - base)))
        end(BlockEnd.CONDITION)
        open_.append(Range(base + SPACING - 1, base + SPACING, False, own))
        end(BlockEnd.RETURN)

    execute(program, (), -1)
    return out


def _at(own: Stack, offset: int) -> Stack:
    """Of an instruction of the method on top: by the first description behind it."""
    pcs = [16 * (s + 1) + 5 for s in range(SITES)]
    site = next((s for s, pc in enumerate(pcs) if pc > offset), -1)
    return (*own, ("inlined", site)) if site == SITES - 1 else own


def expected(blocks: Sequence[Block], lowest: int) -> Counter[tuple[Stack, str]]:
    """The tree's counts of blocks of which the frames from `lowest` on are known."""
    out: Counter[tuple[Stack, str]] = Counter()
    for block in blocks:
        for r in block.ranges:
            frames = r.stack[lowest:]
            stack: Stack = ((UNKNOWN, -1), (frames[0][0], -1), *frames[1:])
            out[stack, "instructions"] += 1
            if r.lo % SPACING == 0:
                out[stack[: len(stack)], "invocations"] += 1
    return out


class Dictionaries:
    """Numbers of blocks and paths, and the messages that bring them."""

    def __init__(self) -> None:
        self._block: dict[Block, int] = {}
        self._path: dict[tuple[PathKind, tuple[int, ...]], int] = {}
        self._told = (0, 0)

    def path(self, blocks: Sequence[Block]) -> int:
        return self._number(PathKind.OF_BLOCKS, tuple(self._block.setdefault(b, len(self._block)) for b in blocks))

    def window(self, paths: Sequence[int]) -> int:
        return self._number(PathKind.OF_PATHS, tuple(paths))

    def _number(self, kind: PathKind, links: tuple[int, ...]) -> int:
        return self._path.setdefault((kind, links), FIRST_PATH + len(self._path))

    def instructions(self, number: int) -> int:
        kind, links = list(self._path)[number - FIRST_PATH]
        if kind == PathKind.OF_PATHS:
            return sum(self.instructions(x) for x in links if x >= FIRST_PATH)
        blocks = list(self._block)
        return sum(len(blocks[b].ranges) for b in links)

    def message(self, tid: int, order: Sequence[int], tsc: tuple[int, int], continues: bool) -> Paths:
        blocks, paths = list(self._block), list(self._path)
        every = np.zeros(len(blocks), BLOCK_DTYPE)
        ranges: list[tuple[int, int, int, int]] = []
        lengths: list[int] = []
        for row, block in zip(every, blocks, strict=True):
            row["range"], row["length"] = len(ranges), len(lengths)
            row["start"], row["last"] = block.ranges[0].lo if block.ranges else block.start, block.last
            row["ranges"], row["instructions"] = len(block.ranges), len(block.ranges)
            row["ends"] = block.ends
            ranges += [(r.lo, r.hi, 1, r.calls) for r in block.ranges]
            lengths += [r.hi - r.lo for r in block.ranges]
        rows = np.zeros(len(paths), PATH_DTYPE)
        links: list[tuple[int, int]] = []
        for k, (kind, inside) in enumerate(paths):
            rows[k]["link"], rows[k]["links"], rows[k]["kind"] = len(links), len(inside), kind
            rows[k]["instructions"] = self.instructions(FIRST_PATH + k)
            links += [(x, 0) for x in inside]
        first_block, first_path = self._told
        range_, length = (int(every[first_block][n]) if first_block < len(every) else None for n in ("range", "length"))
        link = int(rows[first_path]["link"]) if first_path < len(rows) else None
        self._told = len(blocks), len(paths)
        breaks = np.zeros(sum(x == BREAK for x in order), BREAK_DTYPE)
        breaks["order"] = breaks["confirmed"] = [k for k, x in enumerate(order) if x == BREAK]
        breaks["cause"] = OVERFLOW
        taken = np.zeros(1, TAKEN_DTYPE)
        taken["tid"], taken["order_end"], taken["stop_end"], taken["broken_end"] = tid, len(order), 2, len(breaks)
        taken["continues"], taken["tsc"] = continues, tsc[0]
        return Paths(
            "h", 42, 1, (STREAM,), taken, np.array(order, np.int32),
            np.array([(0, tsc[0]), (len(order), tsc[1])], STOP_DTYPE), breaks, (), first_block, every[first_block:],
            np.array(ranges[range_:] if range_ is not None else [], RANGE_DTYPE),
            np.array(lengths[length:] if length is not None else [], np.uint8), np.zeros(0, np.uint64),
            np.zeros(0, STEP_DTYPE), np.zeros(0, FRAME_DTYPE), (), FIRST_PATH + first_path, rows[first_path:],
            np.array(links[link:] if link is not None else [], LINK_DTYPE),
        )  # fmt: skip
