"""The functions of a process: versions of code, the interpreter as one, and what their instructions are.

A function is a version, so that a frame is recognised though its method is compiled anew. Of an nmethod the places and
bcis of its instructions are noted when one of its blocks is first taken, and what they stand for: calls that are
inlined, bytecodes (stages.inlining); of all nmethods one behind the other, for the kernels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from jvm.code.image import CodeImage
from jvm.code.version import Kind, Version
from jvm.kernels import inner, kernel
from stages.cct.slots import mixed
from stages.cct.tables import (
    FC,
    FIRST_FN,
    FN_BOTTOM,
    FN_HOLE,
    FN_INTERPRETER,
    FN_LINKED,
    FN_NMETHOD,
    FN_OUTSIDE,
    FN_PENDING,
    FN_RESOLVES,
    FN_STUB,
    FN_THAWS,
    FN_UNPACKS,
    FN_UNWINDS,
    I32,
    I64,
    IN,
    IN_BYTECODES,
    IN_PLACE,
    IN_TIMES,
    INTERPRETER,
    PC,
)
from stages.cct.tree import INTERPRETER_NAME, NAMES, UNKNOWN_CALLER
from stages.inlining.inlining import Inlining

_UNPACKS = re.compile(r"deopt|uncommon.?trap", re.I)
_UNWINDS = re.compile(r"unwind_exception|rethrow", re.I)
_THAWS = re.compile(r"cont.thaw|cont_returnBarrier", re.I)  # JDK 21, 25: stubRoutines.hpp
_RESOLVES = re.compile(r"resolve_(static|virtual|opt_virtual)_call")  # sharedRuntime.cpp, generate_stubs
_STUBS = ((_UNPACKS, FN_UNPACKS), (_UNWINDS, FN_UNWINDS), (_THAWS, FN_THAWS), (_RESOLVES, FN_RESOLVES))
_METHOD_ENTRY = "method entry point"
T = TypeVar("T", bound=np.generic)
UNKNOWN_CODE, UNKNOWN_METHOD = "[unknown code]", "[unknown method]"
WAYS = 3
MOST_INLINED = 256
"""Levels of a method's inline tree that are told apart."""
BEHIND_ALL = -2
"""In the place of a bci: behind all that is described of the nmethod."""

# A function's code: its first instruction; its entries (0: none), the first of which an invocation comes through, a
# stub's too; its rows [begin, end) of `pc`, of `at`
DC = 8
D_START, D_VERIFIED, D_ENTRY, D_OSR, D_PC, D_PC_END, D_AT, D_AT_END = range(DC)


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

    def numbers(self, names: Iterable[str | None]) -> I64:
        return np.array([self.number(name or UNKNOWN_METHOD) for name in names], np.int64)


def grown(rows: NDArray[T], size: int) -> NDArray[T]:
    """The array, or one twice as long, and so on, that begins with it and has `size` rows."""
    if size <= len(rows):
        return rows
    more = max(size, 2 * len(rows)) - len(rows)
    return np.concatenate((rows, np.zeros((more, *rows.shape[1:]), rows.dtype)))


class Functions:
    """Of one process. Dropped when the tables are made anew and many are known."""

    def __init__(self, image: CodeImage, inlining: Inlining) -> None:
        self._image, self._inlining = image, inlining
        self.names = Names()
        self.rows = np.zeros((256, FC), np.int64)
        self.rows[:FIRST_FN, 0] = FN_PENDING, FN_INTERPRETER, FN_OUTSIDE, FN_HOLE, FN_BOTTOM, FN_LINKED, FN_HOLE
        self.rows[:FIRST_FN, 1] = UNKNOWN_CALLER
        self.rows[INTERPRETER, 1] = INTERPRETER_NAME
        self.count = FIRST_FN
        """How many are known, dead ones among them."""
        self.code = np.zeros((256, DC), np.int64)
        self.pc, self.pc_place, self.pc_bci = (np.zeros(1024, np.int32) for _ in range(3))
        """Of an nmethod's instructions: offsets, and behind all of them; places, bcis."""
        self.at, self.inlined = np.zeros(1024, np.int64), np.zeros((1024, IN), np.int64)
        """Calls and bytecodes for which instructions of nmethods stand: address * WAYS + way, ascending; rows of IN."""
        self._pcs = self._calls = 0
        self.place = np.zeros((1024, PC), np.int64)
        self._by_place = np.zeros(2048, np.int32)
        self._places = 1
        self._fn_of: dict[int, int] = {}  # by version
        self._version_of: dict[int, int] = {}
        self._interpreted: dict[str, int] = {}  # methods that the interpreter runs, by name
        self._final: set[int] = set()  # nmethods of which all that will be known is noted

    def at_versions(self, versions: I64) -> tuple[I64, I64]:
        """(n,) numbers of versions of code, 0: none → (n,) functions; where the interpreter enters a method, of those
        versions."""
        ids, which = np.unique(versions, return_inverse=True)
        fns, entries = np.zeros(len(ids), np.int64), []
        for k, id_ in enumerate(ids.tolist()):
            v = self._image.version(id_)
            fns[k] = self._number(v)
            if v is not None and fns[k] == INTERPRETER and _METHOD_ENTRY in v.name:
                entries.append(v.start)
            elif v is not None and v.kind == Kind.NMETHOD and v.id not in self._final:
                self.describe(v, int(fns[k]))
        return fns[which.reshape(-1)], np.array(entries, np.uint64).view(np.int64)

    def adopt_from(self, other: Functions, fns: I64) -> I64:
        """(n,) functions of `other`, which become known, → (n,) their numbers here."""
        numbers = fns.copy()
        for k, fn in enumerate(fns.tolist()):
            if fn >= FIRST_FN:
                kind, name = other.rows[fn].tolist()
                if kind == FN_INTERPRETER:
                    numbers[k] = self.interpreted(other.names.all[name])
                    continue
                numbers[k] = self._new(other._version_of[fn], kind, other.names.all[name])
                self.code[numbers[k], : D_OSR + 1] = other.code[fn, : D_OSR + 1]
        return numbers

    def interpreted(self, name: str) -> int:
        """The function of a method that the interpreter runs."""
        known = self._interpreted.get(name)
        if known is None:
            known = self._interpreted[name] = self._row(FN_INTERPRETER, name)
        return known

    def _number(self, v: Version | None) -> int:
        if v is None:
            known = self._fn_of.get(0)
            return self._new(0, FN_STUB, UNKNOWN_CODE) if known is None else known
        if v.kind in (Kind.CODELET, Kind.INTERPRETER):
            return INTERPRETER
        known = self._fn_of.get(v.id)
        if known is not None:
            return known
        if v.kind == Kind.NMETHOD:
            new = self._new(v.id, FN_NMETHOD, v.name)
            entries = v.verified_entry, v.entry, v.osr_entry
        else:
            found = (kind for name, kind in _STUBS if name.search(v.name))
            kind = next(found, FN_STUB)
            new, entries = self._new(v.id, kind, v.name), (v.start, 0, 0)
        self.code[new, : D_OSR + 1] = np.array((v.start, *entries), np.uint64).view(np.int64)
        return new

    def _new(self, version: int, kind: int, name: str) -> int:
        """The function of a version of code, which had none."""
        new = self._fn_of[version] = self._row(kind, name)
        self._version_of[new] = version
        return new

    def _row(self, kind: int, name: str) -> int:
        new = self.count
        self.rows, self.code = grown(self.rows, new + 1), grown(self.code, new + 1)
        self.rows[new] = kind, self.names.number(name)
        self.count += 1
        return new

    def describe(self, v: Version, fn: int) -> None:
        """Notes what the instructions of an nmethod are, which is function `fn`."""
        d = v.debug
        if d is None or not len(d.pc):
            return
        self._place_room(len(d.method))
        methods, which = np.unique(d.method, return_inverse=True)
        numbers = self.names.numbers(self._image.methods.get(m) for m in methods.tolist())
        begin, end = self._rows(fn, D_PC, self._pcs, len(d.pc) + 1)
        self._pcs = max(self._pcs, end)
        self.pc, self.pc_place, self.pc_bci = (grown(c, end) for c in (self.pc, self.pc_place, self.pc_bci))
        self.pc[begin : end - 1], self.pc[end - 1] = d.pc, np.iinfo(np.int32).max
        self._places = int(
            find_places(
                d.frame_at, numbers[which], d.bci, self.place, self._places, self._by_place, self.pc_place[begin:end]
            )
        )
        self.pc_place[end - 1] = 0
        self.pc_bci[begin : end - 1], self.pc_bci[end - 1] = d.inner_bcis(), BEHIND_ALL
        m, final = self._inlining.measured(v)
        self._place_room(len(m.up))
        place = np.zeros(len(m.up), np.int64)
        of = self.names.numbers(m.name)
        self._places = int(find_tree(m.up, of, m.bci, self.place, self._places, self._by_place, place))
        ran = m.ran
        of_tree = np.append(m.place, ran.place)
        offset, way = np.append(m.offset, ran.offset), np.append(m.way, ran.way)
        known = np.flatnonzero(np.array([name is not None for name in m.name], np.bool_)[of_tree])
        at = (v.start + offset[known]) * WAYS + way[known]
        order = known[np.argsort(at, kind="stable")]
        first, last = self._rows(fn, D_AT, self._calls, len(known))
        self._calls = max(self._calls, last)
        self.at, self.inlined = grown(self.at, last), grown(self.inlined, last)
        self.at[first:last] = np.sort(at)
        self.inlined[first:last, IN_PLACE] = place[of_tree[order]]
        self.inlined[first:last, IN_TIMES] = np.append(m.times, np.zeros_like(ran.bytecodes))[order]
        self.inlined[first:last, IN_BYTECODES] = np.append(np.zeros_like(m.times), ran.bytecodes)[order]
        self.code[fn, D_PC:] = begin, end, first, last
        if final:
            self._final.add(v.id)

    def _rows(self, fn: int, column: int, free: int, size: int) -> tuple[int, int]:
        """Rows for a description, [begin, end): those of the last one, which knew less, if they are as many."""
        begin, end = self.code[fn, column : column + 2].tolist()
        return (begin, begin + size) if size <= end - begin else (free, free + size)

    def _place_room(self, more: int) -> None:
        while self._places + more > len(self.place):
            self.place = grown(self.place, 2 * len(self.place))
            self._by_place = np.zeros(2 * len(self.place), np.int32)
            rehash_places(self.place, self._places, self._by_place)


@inner
def _last_before(rows, lo, hi, key):  # type: ignore[no-untyped-def]
    """The first of the ascending rows [lo, hi) that is > `key`."""
    while lo < hi:
        mid = (lo + hi) >> 1
        if rows[mid] <= key:
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def locate(  # type: ignore[no-untyped-def]
    addresses, fn, rows, code, pc, pc_place, pc_bci, method_entries, place, bci, enters, starts
):
    """Fills the last four: of (n,) addresses, in their functions, the place, the bci (−1: none), whether the function
    is entered there, whether an invocation of it begins."""
    for k in range(len(addresses)):
        f, address = fn[k], addresses[k]
        bci[k] = -1
        if f == INTERPRETER:
            for entry in method_entries:
                if entry == address:
                    starts[k] = enters[k] = 1
            continue
        starts[k] = address != 0 and address == code[f, D_VERIFIED]
        if rows[f, 0] == FN_NMETHOD:
            enters[k] = starts[k] or (address != 0 and (address == code[f, D_ENTRY] or address == code[f, D_OSR]))
            if code[f, D_PC] < code[f, D_PC_END]:
                at = _last_before(pc, code[f, D_PC], code[f, D_PC_END] - 1, address - code[f, D_START])
                place[k], bci[k] = pc_place[at], pc_bci[at]


@kernel
def inlined_at(addresses, way, fn, code, at, begin, end):  # type: ignore[no-untyped-def]
    """Rows of the calls and bytecodes for which (n,) addresses stand, that way: [begin, end). How many they are."""
    count = np.int64(0)
    for k in range(len(addresses)):
        f, key = fn[k], addresses[k] * WAYS + way
        end[k] = _last_before(at, code[f, D_AT], code[f, D_AT_END], key)
        begin[k] = end[k]
        while begin[k] > code[f, D_AT] and at[begin[k] - 1] == key:
            begin[k] -= 1
        count += end[k] - begin[k]
    return count


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
def find_tree(up, method, bci, place, count, by_place, out):  # type: ignore[no-untyped-def]
    """Of an inline tree's (n,) nodes the place of each: `up`: of which node it is called, −1: it is the nmethod itself.
    `out`: (n,) zeros; how many places there are then. Only MOST_INLINED levels are told apart."""
    way = np.zeros(MOST_INLINED, np.int64)
    for k in range(len(up)):
        p, depth = k, 0
        while out[p] == 0 and up[p] >= 0 and depth < MOST_INLINED:
            way[depth] = p
            depth += 1
            p = up[p]
        at = np.int64(out[p])
        while depth > 0:
            depth -= 1
            p = way[depth]
            at, count = _found(at, method[p], bci[p], place, count, by_place)
            out[p] = at
    return count


@kernel
def find_places(frame_at, method, bci, place, count, by_place, out):  # type: ignore[no-untyped-def]
    """The place of each pc's innermost frame; how many places there are then."""
    for pc in range(len(frame_at) - 1):
        p = np.int64(0)
        for f in range(frame_at[pc + 1] - 2, max(frame_at[pc], frame_at[pc + 1] - 2 - MOST_INLINED) - 1, -1):
            p, count = _found(p, np.int64(method[f]), np.int64(bci[f + 1]), place, count, by_place)
        out[pc] = p
    return count
