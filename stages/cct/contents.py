"""The contents of each block of a generation, for contexts: which functions, at which places of their inline trees.

Found when a path over the block is first taken, by the code as at the time at which it was walked.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jvm.code.codelets import executes
from jvm.code.image import CALL_STUB, CodeImage
from jvm.export.records import Codelet
from stages.cct.functions import BEHIND_ALL, Functions, grown, inlined_at, locate
from stages.cct.read_stacks import FROM_VM, OF_CODE, OF_INTERPRETER, ReadStacks
from stages.cct.tables import (
    B_WAYS,
    BC,
    BLOCK_HANDLER,
    BLOCK_STUB_START,
    FN_NMETHOD,
    I32,
    I64,
    IC,
    IN,
    IN_BYTECODES,
    ITEM_CALLS,
    ITEM_ENTERS,
    STUBS,
    XC,
    Blocks,
)
from stages.inlining.class_measures import EXECUTED, NOT_TAKEN, TAKEN
from stages.messages.paths import BlockEnd
from stages.paths.dictionary import Dictionary, spans
from stages.paths.refusals import refused

BLOCKS = 1024
"""In one step: in code that runs for the first time each may lie in an nmethod of its own."""


class Contents:
    """Of one process. Blocks go with the generation."""

    def __init__(self, image: CodeImage, functions: Functions, costs: I64 | None = None) -> None:
        """`costs`: (256,) by opcode. What the interpreter's bytecodes cost is counted then, in the place of them."""
        self._image, self.costs = image, costs
        self.functions = functions
        self._executed: list[tuple[int, Codelet]] = []
        self._templates = np.zeros(0, np.uint64)  # addresses of those, ascending
        self._bytecodes = np.zeros(0, np.int64)  # of each, one execution
        self.forget()

    def forget(self) -> None:
        """A new generation: other blocks."""
        self.block = np.zeros((1024, BC), np.int64)
        self._inline = np.zeros((1024, IN), np.int64)
        self._item = np.zeros((1024, IC), np.int64)
        self._blocks = self._items = self._inlined = 0
        self.most = 0
        """So many parts of a step come of one block at most."""

    def arrays(self, d: Dictionary, by_path: I32) -> Blocks:
        """As they are now: another is made where one grows."""
        paths, links = d.paths.rows.view(np.int64).reshape(-1, XC), d.links.rows.view(np.int32).reshape(-1, 2)
        f = self.functions
        return Blocks(f.rows, f.place, self._item, self._inline, self.block, paths, links, by_path)

    def describe(self, d: Dictionary) -> Iterator[None]:
        """Finds what the blocks hold that are new, in steps."""
        while self._blocks < d.blocks.size:
            self._describe(d, self._blocks, min(self._blocks + BLOCKS, d.blocks.size))
            yield

    def _describe(self, d: Dictionary, begin: int, end: int) -> None:
        self._blocks = end
        self.block = grown(self.block, end)
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
        void = refused(d, ids, (starts[:n] > 0) & (self.functions.rows[fn[:n], 0] == FN_NMETHOD))
        starts[:n][void] = 0
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
        items[:, 8], items[:, 9] = self._calls(np.where(void, np.uint64(0), addresses), EXECUTED, fn[:n], head, tail)
        count = np.bincount(owner[head], minlength=len(ids)) if len(head) else np.zeros(len(ids), np.int64)
        # A block that an event cuts short at its beginning has no instruction, but its place: one item of no weight.
        before, here = slice(n, n + len(ids)), slice(n + len(ids), None)
        none = np.flatnonzero(count == 0)
        bare = np.zeros((len(none), IC), np.int64)
        bare[:, 0], bare[:, 1], bare[:, 7] = fn[here][none], place[here][none], bci[here][none]
        bare[:, 5] = enters[here][none] * ITEM_ENTERS
        items = np.insert(items, (np.cumsum(count) - count)[none], bare, axis=0)
        count[none] = 1
        items, count = self._cut_behind_a_call(rows, items, count)
        self._item = grown(self._item, self._items + len(items))
        self._item[self._items : self._items + len(items)] = items
        b = self.block[begin:end]
        b[:, 0] = self._items + np.cumsum(count) - count
        b[:, 1] = count
        parts = items[:, 9] - items[:, 8] + (items[:, 4] > 0)
        most = count + np.bincount(np.repeat(np.arange(len(ids)), count), parts, len(ids)).astype(np.int64)
        b[:, 2] = rows["ends"]
        b[:, 3] = rows["start"].view(np.int64)
        same = fn[before] == fn[here]
        b[:, 4], b[:, 5] = np.where(same, place[before], 0), np.where(same, bci[before], -1)
        stub = np.isin(self.functions.rows[fn[here], 0], STUBS)
        b[:, 6] = (stub & (starts[here] > 0)) * BLOCK_STUB_START + (bci[here] == BEHIND_ALL) * BLOCK_HANDLER
        b[:, 5][b[:, 5] == BEHIND_ALL] = -1
        some = np.flatnonzero(np.diff(first))  # blocks with an instruction
        last = first[1:][some] - 1
        for way in (TAKEN, NOT_TAKEN):
            begin_at, end_at = self._calls(addresses[last], way, fn[last], np.arange(len(last)), np.arange(len(last)))
            column = B_WAYS + 2 * way - 2
            b[some, column], b[some, column + 1] = begin_at, end_at
            most[some] += end_at - begin_at
        self.most = max(self.most, int(most.max()))
        items = self._item[self._items : self._items + len(items)]
        items[:, 7][items[:, 7] == BEHIND_ALL] = -1
        self._items += len(items)

    def _cut_behind_a_call(self, rows: NDArray[np.void], items: I64, count: I64) -> tuple[I64, I64]:
        """The items of blocks, so many of each, with one of no weight for the callee of a direct call where an event
        came before its first instruction. (A call that leaves the filter cuts its block short too: to no code.)"""
        tail = np.cumsum(count) - 1
        cut = np.flatnonzero((rows["ends"] == BlockEnd.EVENT) & (items[tail, 5] & ITEM_CALLS != 0))
        addresses, tsc = rows["last"][cut], rows["tsc"][cut]
        known = self._image.versions_of(addresses, tsc) != 0
        cut = cut[known]
        fn, place, bci, enters, _, _ = self._locate(addresses[known], tsc[known])
        callees = np.zeros((len(cut), IC), np.int64)
        callees[:, 0], callees[:, 1], callees[:, 5], callees[:, 7] = fn, place, enters * ITEM_ENTERS, bci
        count[cut] += 1
        return np.insert(items, tail[cut] + 1, callees, axis=0), count

    def _locate(self, addresses: NDArray[np.uint64], tscs: NDArray[np.uint64]) -> tuple[I64, I64, I64, I64, I64, I64]:
        """Of (n,) addresses at (n,) times: function, place, bci, whether the function is entered there, whether an
        invocation of it begins, how many bytecodes the interpreter executes."""
        f = self.functions
        fn, method_entries = f.at_versions(self._image.versions_of(addresses, tscs))
        place, bci, enters, starts = np.zeros((4, len(addresses)), np.int64)
        locate(
            addresses.view(np.int64),
            fn,
            f.rows,
            f.code,
            f.pc,
            f.pc_place,
            f.pc_bci,
            method_entries,
            place,
            bci,
            enters,
            starts,
        )
        return fn, place, bci, enters, starts, self._executes(addresses)

    def _executes(self, addresses: NDArray[np.uint64]) -> I64:
        """(n,) how many bytecodes the interpreter executes there."""
        executed = self._image.codelets.executed
        if executed is not self._executed:
            self._executed = executed
            self._templates = np.array([ip for ip, _ in executed], np.uint64)
            self._bytecodes = np.array([executes(codelet, self.costs) for _, codelet in executed], np.int64)
        if not len(self._templates):
            return np.zeros(len(addresses), np.int64)
        at = np.minimum(np.searchsorted(self._templates, addresses), len(self._templates) - 1)
        return np.where(self._templates[at] == addresses, self._bytecodes[at], 0)

    def read(self, stacks: NDArray[np.void], fns: I64) -> ReadStacks:
        """(n,) STACK_DTYPE, and the functions of the interpreter's methods, from −1 on."""
        fn, place, bci, _, _, _ = self._locate(stacks["pc"] - np.uint64(1), stacks["tsc"].copy())
        ours = stacks["interpreted"] != 0
        fn = np.where(ours, fns[stacks["method"] + 1], fn)
        bci = np.where(ours, stacks["bci"], bci)
        bci[bci == BEHIND_ALL] = -1
        stub = self.functions.rows[fn, 1] == self.functions.names.number(CALL_STUB)
        kind = np.where(ours, OF_INTERPRETER, np.where(stub, FROM_VM, OF_CODE)).astype(np.int64)
        first = np.searchsorted(stacks["stack"], np.arange(int(stacks["stack"].max()) + 2)).astype(np.int64)
        return ReadStacks(first, kind, fn, stacks["pc"].view(np.int64).copy(), place, bci)

    def _calls(self, addresses: NDArray[np.uint64], way: int, fn: I64, head: I64, tail: I64) -> tuple[I64, I64]:
        """Notes the inlined calls and the bytecodes for which (n,) addresses stand, that way; of (m,) runs of them,
        where theirs begin and end."""
        first, last = np.zeros((2, len(addresses)), np.int64)
        count = int(inlined_at(addresses.view(np.int64), way, fn, self.functions.code, self.functions.at, first, last))
        end = self._inlined + np.concatenate(([0], np.cumsum(last - first)))
        self._inline = grown(self._inline, self._inlined + count)
        rows = self._inline[self._inlined : self._inlined + count]
        rows[:] = self.functions.inlined[spans(first, last - first)[0]]
        if self.costs is not None:  # of the interpreter alone
            rows[:, IN_BYTECODES] = 0
        self._inlined += count
        return np.asarray(end[head]), np.asarray(end[tail + 1])
