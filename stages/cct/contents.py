"""The contents of each block of a generation, for contexts: which functions, at which places of their inline trees.

Found when a path over the block is first taken, by the code as at the time at which it was walked. Functions are
versions of code, so that a frame is recognised though its method is compiled anew; the interpreter is one function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.code.version import Kind, Version
from jvm.kernels import inner, kernel
from stages.cct.contexts import mixed
from stages.cct.tables import (
    B_WAYS,
    BC,
    BLOCK_HANDLER,
    BLOCK_STUB_START,
    FC,
    FIRST_FN,
    FN_BOTTOM,
    FN_HOLE,
    FN_INTERPRETER,
    FN_LINKED,
    FN_NMETHOD,
    FN_OUTSIDE,
    FN_PENDING,
    FN_STUB,
    FN_UNPACKS,
    FN_UNWINDS,
    I32,
    I64,
    IC,
    IN,
    INTERPRETER,
    INTERPRETER_NAME,
    ITEM_CALLS,
    ITEM_ENTERS,
    NAMES,
    PC,
    UNKNOWN_CALLER,
    Blocks,
)
from stages.inlining.class_measures import EXECUTED, NOT_TAKEN, TAKEN
from stages.inlining.inlining import Inlining
from stages.paths.dictionary import Dictionary, spans

_UNPACKS = re.compile(r"deopt|uncommon.?trap", re.I)
_UNWINDS = re.compile(r"unwind_exception|rethrow", re.I)
_METHOD_ENTRY = "method entry point"
UNKNOWN_CODE, UNKNOWN_METHOD = "[unknown code]", "[unknown method]"
WAYS = 3
MOST_INLINED = 256
"""Levels of a method's inline tree that are told apart."""


BLOCKS = 1024
"""In one step: in code that runs for the first time each may lie in an nmethod of its own."""


def _stub_class(name: str) -> int:
    return FN_UNPACKS if _UNPACKS.search(name) else FN_UNWINDS if _UNWINDS.search(name) else FN_STUB


class Names:
    """Methods and stubs by name. Kept as long as nodes are."""

    def __init__(self) -> None:
        self.all = list(NAMES)
        self._number = {name: k for k, name in enumerate(NAMES)}

    def number(self, name: str) -> int:
        found = self._number.setdefault(name, len(self.all))
        if found == len(self.all):
            self.all.append(name)
        return found


class _Described(NamedTuple):
    """The places and bcis of an nmethod's instructions: by pc, and behind the last one. Where calls inlined in it are
    made (stages.inlining): instruction and way, place and how many at once, by (instruction, way)."""

    pc: NDArray[np.uint32]
    place: I64
    bci: I64
    at: I64  # address * WAYS + way, ascending
    inlined: I64  # (n, IN)
    whole: bool  # all methods were known by name


class Contents:
    """Of one process. Blocks go with the generation, all else when the tables are made anew."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self.names = Names()
        special = np.zeros((FIRST_FN, FC), np.int64)
        special[:, 0] = FN_PENDING, FN_INTERPRETER, FN_OUTSIDE, FN_HOLE, FN_BOTTOM, FN_LINKED
        special[:, 1] = UNKNOWN_CALLER
        special[INTERPRETER, 1] = INTERPRETER_NAME
        self._fns, self._fn_count = np.concatenate((special, np.zeros((250, FC), np.int64))), FIRST_FN
        self._fn_of: dict[int, int] = {}  # by version
        self._version_of: dict[int, int] = {}
        self._described: dict[int, _Described] = {}  # by version
        self._inlining = Inlining(image)
        self._dead_ends, self._census = np.zeros(0, np.uint64), -1
        self._place = np.zeros((1024, PC), np.int64)
        self._by_place = np.zeros(2048, np.int32)
        self._places = 1
        self.forget()

    def forget(self) -> None:
        """A new generation: other blocks."""
        self.block = np.zeros((1024, BC), np.int64)
        self._inline = np.zeros((1024, IN), np.int64)
        self._inlined = 0
        self._item = np.zeros((1024, IC), np.int64)
        self._blocks = self._items = self._most = 0

    @property
    def functions(self) -> int:
        """How many are known, dead ones among them."""
        return self._fn_count

    @property
    def arrays(self) -> Blocks:
        """As they are now: another is made where one grows."""
        return Blocks(self._fns, self._place, self._item, self._inline, self.block, self._most)

    def adopt_from(self, other: Contents, fns: I64) -> I64:
        """(n,) functions of `other`, which become known, → (n,) their numbers here."""
        numbers = fns.copy()
        for k, fn in enumerate(fns.tolist()):
            if fn >= FIRST_FN:
                kind, name = other._fns[fn].tolist()
                numbers[k] = self.adopt(other._version_of[fn], kind, other.names.all[name])
        return numbers

    def describe(self, d: Dictionary) -> Iterator[None]:
        """Finds what the blocks hold that are new, in steps."""
        while self._blocks < d.blocks.size:
            self._describe(d, self._blocks, min(self._blocks + BLOCKS, d.blocks.size))
            yield

    def _describe(self, d: Dictionary, begin: int, end: int) -> None:
        self._blocks = end
        while end > len(self.block):
            self.block = np.concatenate((self.block, np.zeros_like(self.block)))
        ids = np.arange(begin, end)
        rows = d.blocks.rows[begin:end]
        at, _ = spans(rows["range"].astype(np.int64), rows["ranges"].astype(np.int64))
        ranges = d.ranges.rows[at]
        addresses, first = d.addresses(ids)
        owner = np.repeat(np.arange(len(ids)), np.diff(first))
        of_range = np.repeat(np.arange(len(at)), ranges["instructions"])
        every = np.concatenate((addresses, rows["start"] - np.uint64(1), rows["start"]))
        tsc = np.concatenate((rows["tsc"][owner], rows["tsc"], rows["tsc"]))
        fn, place, bci, enters, starts, bytecodes = self._locate(every, tsc)
        n = len(addresses)
        # items: runs of one range, function and place
        cut = np.arange(n) == 0
        for each in (of_range, fn[:n], place[:n]):
            cut[1:] |= each[1:] != each[:-1]
        head = np.flatnonzero(cut)
        tail = np.append(head[1:], n) - 1 if len(head) else head
        items = np.zeros((len(head), IC), np.int64)
        calls = (ranges["calls"][of_range[tail]] != 0) & (
            np.append(of_range[head[1:]], -1) != of_range[tail] if len(head) else np.zeros(0, np.bool_)
        )
        items[:, 0], items[:, 1] = fn[head], place[head]
        if len(head):
            items[:, 2] = tail - head + 1
            items[:, 3] = np.add.reduceat(bytecodes[:n], head)
            items[:, 4] = np.add.reduceat(starts[:n], head)
        items[:, 5] = calls * ITEM_CALLS + enters[head] * ITEM_ENTERS
        items[:, 6] = np.where(calls, ranges["hi"][of_range[tail]].view(np.int64), 0)
        items[:, 7] = bci[tail]
        items[:, 8], items[:, 9] = self._calls(addresses, EXECUTED, fn[:n], head, tail)
        while self._items + len(items) > len(self._item):
            self._item = np.concatenate((self._item, np.zeros_like(self._item)))
        self._item[self._items : self._items + len(items)] = items
        count = np.bincount(owner[head], minlength=len(ids)) if len(head) else np.zeros(len(ids), np.int64)
        b = self.block[begin:end]
        b[:, 0] = self._items + np.cumsum(count) - count
        b[:, 1] = count
        most = count + np.bincount(owner[head], items[:, 9] - items[:, 8], len(ids)).astype(np.int64)
        b[:, 2] = rows["ends"]
        b[:, 3] = rows["start"].view(np.int64)
        before, here = slice(n, n + len(ids)), slice(n + len(ids), None)
        same = fn[before] == fn[here]
        b[:, 4], b[:, 5] = np.where(same, place[before], 0), np.where(same, bci[before], -1)
        stub = np.isin(self._fns[fn[here], 0], (FN_STUB, FN_UNPACKS, FN_UNWINDS))
        b[:, 6] = (stub & (starts[here] > 0)) * BLOCK_STUB_START + (bci[here] == BEHIND_ALL) * BLOCK_HANDLER
        b[:, 5][b[:, 5] == BEHIND_ALL] = -1
        some = np.flatnonzero(np.diff(first))  # blocks with an instruction
        last = first[1:][some] - 1
        for way in (TAKEN, NOT_TAKEN):
            begin_at, end_at = self._calls(addresses[last], way, fn[last], np.arange(len(last)), np.arange(len(last)))
            column = B_WAYS + 2 * way - 2
            b[some, column], b[some, column + 1] = begin_at, end_at
            most[some] += end_at - begin_at
        self._most = max(self._most, int(most.max()))
        items = self._item[self._items : self._items + len(items)]
        items[:, 7][items[:, 7] == BEHIND_ALL] = -1
        self._items += len(items)

    def _locate(self, addresses: NDArray[np.uint64], tscs: NDArray[np.uint64]) -> tuple[I64, I64, I64, I64, I64, I64]:
        """Of (n,) addresses at (n,) times: function, place, bci, whether the function is entered there, whether an
        invocation of it begins, whether the interpreter executes a bytecode."""
        n = len(addresses)
        fn, place, bci = np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(n, -1, np.int64)
        enters, starts = np.zeros(n, np.int64), np.zeros(n, np.int64)
        versions = self._image.versions_of(addresses, tscs)
        order = np.argsort(versions, kind="stable")
        ids, first = np.unique(versions[order], return_index=True)
        for id_, mine in zip(ids.tolist(), np.split(order, first[1:]), strict=True):
            v = self._image.version(id_)
            fn[mine] = self._fn(v)
            if v is None:
                continue
            here = addresses[mine]
            if v.kind == Kind.NMETHOD:
                d = self._description(v)
                pc = np.searchsorted(d.pc, here - np.uint64(v.start), "right")
                place[mine], bci[mine] = d.place[pc], d.bci[pc]
                starts[mine] = here == np.uint64(v.verified_entry)
                entries = [e for e in (v.entry, v.verified_entry, v.osr_entry) if e]
                enters[mine] = np.isin(here, np.array(entries, np.uint64))
            elif v.kind in (Kind.CODELET, Kind.INTERPRETER):
                if _METHOD_ENTRY in v.name:
                    starts[mine] = enters[mine] = here == np.uint64(v.start)
            else:
                starts[mine] = here == np.uint64(v.start)
        executed = np.array([ip for ip, _ in self._image.codelets.executed], np.uint64)
        return fn, place, bci, enters, starts, np.isin(addresses, executed).astype(np.int64)

    def _calls(self, addresses: NDArray[np.uint64], way: int, fn: I64, head: I64, tail: I64) -> tuple[I64, I64]:
        """Notes the calls that are inlined at (n,) addresses, that way; of (m,) runs of addresses, where theirs begin
        and end."""
        count, at = np.zeros(len(addresses) + 1, np.int64), np.zeros(len(addresses), np.int64)
        tables, size = [np.zeros((0, IN), np.int64)], 0
        order = np.argsort(fn, kind="stable")
        fns, first, sizes = np.unique(fn[order], return_index=True, return_counts=True)
        for f, begin_at, size_of in zip(fns.tolist(), first.tolist(), sizes.tolist(), strict=True):
            mine = order[begin_at : begin_at + size_of]
            version = self._image.version(self._version_of.get(f, 0))
            if version is None or version.kind != Kind.NMETHOD:
                continue
            d = self._description(version)
            if not len(d.at):
                continue
            key = addresses[mine].astype(np.int64) * WAYS + way
            lo = np.searchsorted(d.at, key, "left")
            count[mine + 1], at[mine] = np.searchsorted(d.at, key, "right") - lo, size + lo
            tables.append(d.inlined)
            size += len(d.inlined)
        begin, end = self._inlined, self._inlined + np.cumsum(count)
        while end[-1] > len(self._inline):
            self._inline = np.concatenate((self._inline, np.zeros_like(self._inline)))
        self._inlined = int(end[-1])
        self._inline[begin : self._inlined] = np.concatenate(tables)[spans(at, count[1:])[0]]
        return end[head], end[tail + 1]

    def _fn(self, v: Version | None) -> int:
        if v is not None and v.kind in (Kind.CODELET, Kind.INTERPRETER):
            return INTERPRETER
        known = self._fn_of.get(0 if v is None else v.id)
        if known is not None:
            return known
        if v is None:
            return self.adopt(0, FN_STUB, UNKNOWN_CODE)
        if v.kind == Kind.NMETHOD:
            return self.adopt(v.id, FN_NMETHOD, v.name)
        return self.adopt(v.id, _stub_class(v.name), v.name)

    def adopt(self, version: int, kind: int, name: str) -> int:
        """The function of a version of code, which had none."""
        new = self._fn_of[version] = self._fn_count
        if new == len(self._fns):
            self._fns = np.concatenate((self._fns, np.zeros_like(self._fns)))
        self._fns[new] = kind, self.names.number(name)
        self._version_of[new] = version
        self._fn_count += 1
        return new

    def _description(self, v: Version) -> _Described:
        known = self._described.get(v.id)
        if known is not None and known.whole:
            return known
        d = v.debug
        if d is None or not len(d.pc):
            known = _NOT_DESCRIBED
        else:
            self._place_room(len(d.method))
            methods, which = np.unique(d.method, return_inverse=True)
            name = self._image.methods.get
            numbers = np.array([self.names.number(name(m) or UNKNOWN_METHOD) for m in methods.tolist()], np.int64)
            places = np.zeros(len(d.pc) + 1, np.int64)
            self._places = int(
                find_places(d.frame_at, numbers[which], d.bci, self._place, self._places, self._by_place, places)
            )
            bci = np.append(d.inner_bcis().astype(np.int64), BEHIND_ALL)
            known = _Described(d.pc, places, bci, *self._inlined_calls(v))
        self._described[v.id] = known
        return known

    def _place_room(self, more: int) -> None:
        while self._places + more > len(self._place):
            self._place = np.concatenate((self._place, np.zeros_like(self._place)))
            self._by_place = np.zeros(2 * len(self._place), np.int32)
            rehash_places(self._place, self._places, self._by_place)

    def _inlined_calls(self, v: Version) -> tuple[I64, I64, bool]:
        """`at`, `inlined`, `whole` of its description."""
        if self._census != self._image.census:
            self._census, self._dead_ends = self._image.census, self._inlining.dead_ends()
        m = self._inlining.of(v, self._dead_ends)
        self._place_room(len(m.up))
        place = {-1: 0}
        for p in np.unique(m.place).tolist():
            way: list[int] = []
            while p not in place and m.up[p] >= 0 and len(way) < MOST_INLINED:
                way.append(p)
                p = int(m.up[p])
            at = place.get(p, 0)
            for q in reversed(way):
                number = self.names.number(m.name[q] or UNKNOWN_METHOD)
                at, self._places = find_place(at, number, m.bci[q], self._place, self._places, self._by_place)
                place[q] = at
        known = np.flatnonzero([name is not None for name in m.called])
        key = (v.start + m.offset[known]) * WAYS + m.way[known]
        calls = np.zeros((len(known), IN), np.int64)
        calls[:, 0] = [place.get(p, 0) for p in m.place[known].tolist()]
        calls[:, 1] = m.times[known]
        order = np.argsort(key, kind="stable")
        return key[order], calls[order], len(known) == len(m.called) and not v.unresolved


_NOT_DESCRIBED = _Described(
    np.zeros(0, np.uint32), np.zeros(1, np.int64), np.full(1, -1, np.int64), np.zeros(0, np.int64),
    np.zeros((0, IN), np.int64), True,
)  # fmt: skip
BEHIND_ALL = -2
"""In the place of a bci: behind all that is described of the nmethod."""


@kernel
def rehash_places(place: I64, count: int, by_place: I32) -> None:
    mask = len(by_place) - 1
    for p in range(1, count):
        i = mixed(place[p, 0], place[p, 1], place[p, 2]) & mask
        while by_place[i] != 0:
            i = (i + 1) & mask
        by_place[i] = p


@inner
def _found(up, method, bci, place, count, by_place):  # type: ignore[no-untyped-def]
    """The place, made if there was none; how many places there are then."""
    mask = len(by_place) - 1
    i = mixed(up, method, bci) & mask
    while by_place[i] != 0:
        q = np.int64(by_place[i])
        if place[q, 0] == up and place[q, 1] == method and place[q, 2] == bci:
            return q, count
        i = (i + 1) & mask
    place[count, 0], place[count, 1], place[count, 2] = up, method, bci
    by_place[i] = count
    return np.int64(count), count + 1


@kernel
def find_place(up, method, bci, place, count, by_place):  # type: ignore[no-untyped-def]
    """As `_found`."""
    return _found(up, method, bci, place, count, by_place)


@kernel
def find_places(frame_at, method, bci, place, count, by_place, out):  # type: ignore[no-untyped-def]
    """The place of each pc's innermost frame; how many places there are then."""
    for pc in range(len(frame_at) - 1):
        p = np.int64(0)
        for f in range(frame_at[pc + 1] - 2, max(frame_at[pc], frame_at[pc + 1] - 2 - MOST_INLINED) - 1, -1):
            p, count = _found(p, np.int64(method[f]), np.int64(bci[f + 1]), place, count, by_place)
        out[pc] = p
    return count
