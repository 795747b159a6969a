"""Where the calls that a compiler inlined are made, found once for each nmethod.

A description of an address (jvm.code.debug_info) says which calls the instructions before it belong to, but no
instruction is the call: the first one of an inlined body may be missing, repeated, moved away, or described as its
caller's. So calls are not looked for one by one. Calls that the bytecode makes equally often are one *class*
(stages.inlining.call_classes): any description of any of them is evidence of all, and a call that left none is counted
with its class. A class is measured on the way through the machine code (stages.inlining.class_measures).

Code that cannot be told apart is not measured: a loop of which all rounds were written out one after the other, bodies
of several receivers' methods that are one (stages.inlining.receivers).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.class_file import Invoked
from jvm.bytecode.classes import Callee
from jvm.calls.call_sites import CALL, CALL_SIZE, targets
from jvm.code.debug_info import DebugInfo
from jvm.code.image import CodeImage
from jvm.code.sites import SiteKind
from jvm.code.version import Kind, Version
from jvm.kernels import kernel
from stages.inlining import executed
from stages.inlining.call_classes import C_KIND, CC, CHOSEN, classes_of, places
from stages.inlining.class_measures import EXECUTED, find_evidence, measure, runs, share_evidence
from stages.inlining.loop_rounds import find_owners
from stages.inlining.machine_code import (
    B_FALL,
    BC,
    IC,
    LC,
    cut,
    depth_first,
    index_of,
    instructions,
    natural_loops,
)
from stages.inlining.receivers import HC, LOST, NAMELESS, dead_blocks, find_guards, is_choice, measure_choice

Call = tuple[int, int, Callee]
"""The place that calls, the bci, the callee."""

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

MOST = 1 << 20  # blocks × classes of an nmethod; beyond that nothing inlined is measured
MOST_WORK = 1 << 25  # the same, of other products
STRETCHES = 1 << 12  # of bytecode
KEPT = 256
"""Nmethods whose measures are kept for the next one who asks."""
SPARE = 16  # bytes behind the code that may be looked at


class Measures(NamedTuple):
    """The evidence of an nmethod's code for the calls inlined in it."""

    offset: I64  # (n,) instructions
    way: I64  # (n,) EXECUTED, TAKEN, NOT_TAKEN
    times: I64  # (n,) calls each time
    called: tuple[str | None, ...]  # (n,) display names; None: not known yet
    unmeasured: tuple[str | None, ...]  # of methods that are inlined and cannot be counted here
    place: I64  # (n,) which of the inline tree's places is called
    up: I64  # (m,) of a place, the one that it is called from; −1: it is the nmethod itself
    bci: I64  # (m,) of that call
    name: tuple[str | None, ...]  # (m,) display names
    ran: executed.Ran  # bytecodes


_NONE = np.zeros(0, np.int64)
NOTHING = Measures(_NONE, _NONE, _NONE, (), (), _NONE, _NONE, _NONE, (), executed.NOTHING)


@kernel
def _analyse(  # type: ignore[no-untyped-def]
    code, base, pc, frame_at, bci, place, up, up_bci, depth, method_of, shown, choice_of, choices, steps, step_at,
    stretch_at, entries, osr, unrolls, dead_ends, most, out, class_of,
):  # fmt: skip
    """Rows (offset, way, times, class) of `out`; how many, −1: too much code. A way may be LOST, or, with a choice for
    the class, NAMELESS (stages.inlining.receivers). `choice_of`: of each place the choice that leads there, −1: none;
    `choices`: rows of HC. `stretch_at`: where the stretches of each place begin among the places, behind all calls."""
    end: int = min(int(pc[-1]), len(code) - SPARE)
    insn = np.zeros((end + 1, IC), np.int64)
    n = instructions(code, end, pc, insn)
    if n == 0:
        return -1
    block_of, block = np.zeros(n, np.int64), np.zeros((n + 1, BC), np.int64)
    blocks = cut(insn, n, base, entries, dead_ends, block_of, block)
    cls = np.zeros((len(up) + 1, CC), np.int64)
    dead, guard = dead_blocks(insn, block, blocks), np.zeros(blocks, np.bool_)
    open_ = np.zeros(len(choices), np.bool_)
    for h in range(len(choices)):
        guards = find_guards(choices[h], code, insn, block, blocks, dead, frame_at, bci, place, guard)
        open_[h] = is_choice(choices[h], code, insn, n, guards, frame_at, bci, place)
    chosen = np.array([h >= 0 and open_[h] for h in choice_of])
    classes = classes_of(
        up, up_bci, depth, method_of, steps, step_at, osr, chosen, len(stretch_at) - 1, cls, class_of
    )  # fmt: skip
    if classes * blocks > most:
        return -1
    starts = np.full(len(entries), -1, np.int64)
    for k in range(len(entries)):
        i = index_of(insn, n, entries[k])
        if i >= 0:
            starts[k] = block_of[i]
    order, back = np.zeros(blocks, np.int64), np.zeros(blocks, np.int8)
    depth_first(block, blocks, starts, order, back)
    pred_at, pred = np.zeros(blocks + 2, np.int64), np.zeros(2 * blocks + 1, np.int64)
    for b in range(blocks):
        for turn in range(2):
            to = block[b, B_FALL + turn]
            if to >= 0:
                pred_at[to + 2] += 1
    for b in range(blocks):
        pred_at[b + 2] += pred_at[b + 1]
    for b in range(blocks):
        for turn in range(2):
            to = block[b, B_FALL + turn]
            if to >= 0:
                pred[pred_at[to + 1]] = b
                pred_at[to + 1] += 1
    room = min(max(most // blocks, 1), 4096)
    loops, body = np.zeros((room, LC), np.int64), np.zeros((room, blocks), np.bool_)
    count = natural_loops(block, blocks, back, pred_at, pred, body, loops)
    if count < 0:
        return -1
    find_owners(
        insn, block, blocks, loops, count, body, back, frame_at, bci, place, method_of, steps, step_at, code, unrolls
    )
    evidence, idle = np.full((classes, blocks), -1, np.int64), np.ones(blocks, np.bool_)
    find_evidence(
        insn, n, block_of, frame_at, bci, place, cls, classes, class_of, shown, unrolls, up_bci, stretch_at, evidence,
        idle,
    )  # fmt: skip
    share_evidence(cls, classes, evidence)
    m = 0
    for h in range(len(choices)):
        those = class_of[(choice_of == h) & chosen]
        if len(those):
            m = measure_choice(
                h, choices[h], those, code, insn, block, blocks, dead, frame_at, bci, place, evidence, out, m
            )  # fmt: skip
    for c in range(1, classes):
        if cls[c, C_KIND] == CHOSEN:
            continue
        now = measure(
            c, cls, insn, block, blocks, order, back, pred_at, pred, body, loops, count, evidence[c], idle, starts,
            frame_at, bci, place, up, up_bci, method_of, steps, step_at, out, m,
        )  # fmt: skip
        if now < 0:
            if m < len(out):
                out[m, 1], out[m, 2], out[m, 3] = LOST, runs(cls[c], insn, n, block_of, dead, frame_at, bci, place), c
                m += 1
        else:
            m = now
    return m


_DEAD_ENDS = re.compile(r"uncommon.?trap|throw|exception|deopt|unwind|predicate_failed", re.I)
"""Stubs and blobs that do not return to where they were called from, by the JVM's names for them."""


@lru_cache(4096)
def _is_dead_end(name: str) -> bool:
    return _DEAD_ENDS.search(name) is not None


def called_before(code: NDArray[np.uint8], start: int, pc: NDArray[np.uint32], dead_ends: U64) -> NDArray[np.bool_]:
    """Whether before each of (n,) offsets in `code` a direct call ends that may return."""
    at = pc.astype(np.int64) - CALL_SIZE
    k = np.flatnonzero((at >= 0) & (at + CALL_SIZE <= len(code)))
    k = k[code[at[k]] == CALL]
    returns = np.zeros(len(pc), np.bool_)
    returns[k] = ~np.isin(targets(code, start, at[k]), dead_ends)
    return returns


class Inlining:
    """Of one code image: the evidence of its nmethods' code for the calls that are inlined in it."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._census = -1
        self._dead_ends = np.zeros(0, np.uint64)
        self._measured: OrderedDict[int, Measures] = OrderedDict()  # by version, the newest last

    def measured(self, v: Version) -> tuple[Measures, bool]:
        """`of`, by the code that is known now; whether it is final: all of its methods are known by name. The stages
        of a process take an nmethod apart one soon after the other, so that is done once."""
        known = self._measured.get(v.id)
        if known is not None:
            return known, True
        if self._census != self._image.census:
            self._census, self._dead_ends = self._image.census, self.dead_ends()
        m = self.of(v, self._dead_ends)
        final = None not in m.called and not v.unresolved
        if final:
            self._measured[v.id] = m
            if len(self._measured) > KEPT:
                self._measured.popitem(last=False)
        return m, final

    def dead_ends(self) -> U64:
        """Where calls go that never return, ascending."""
        blobs = {v.start for v in self._image.versions() if v.kind != Kind.NMETHOD and _is_dead_end(v.name)}
        return np.array(sorted(blobs), np.uint64)

    def of(self, v: Version, dead_ends: U64) -> Measures:
        m, nameless = self._of(v, dead_ends, [])
        others = [row for place, bci, invoked in nameless for row in self._others(m, place, bci, invoked)]
        return self._of(v, dead_ends, others)[0] if others else m

    def _others(self, m: Measures, place: int, bci: int, invoked: Invoked) -> list[Call]:
        """The methods to which a call may lead, and of which nothing is described there."""
        told = {
            name for name, up, at in zip(m.name, m.up.tolist(), m.bci.tolist(), strict=True) if (up, at) == (place, bci)
        }
        return [(place, bci, callee) for callee in self._image.classes.selected(invoked) if callee.display not in told]

    def _of(
        self, v: Version, dead_ends: U64, others: list[Call], stretches: int = STRETCHES
    ) -> tuple[Measures, list[tuple[int, int, Invoked]]]:
        """`others`: calls in methods that are inlined, of methods that are not described. And the calls that lead to
        methods that are not known. `stretches`: of an nmethod that has more, or that is too large with them, bytecodes
        are not counted."""
        d = v.debug
        if d is None or not len(d.method):
            return NOTHING, []
        key = np.zeros(len(d.method), np.uint64)
        places(d.frame_at, d.method, d.bci, key)
        _, first, place = np.unique(key, return_index=True, return_inverse=True)
        depth = (np.repeat(d.frame_at[1:] - 1, np.diff(d.frame_at)) - np.arange(len(key)))[first]
        caller = np.minimum(first + 1, len(key) - 1)
        up = np.where(depth > 0, place[caller], -1)
        up_bci = np.where(depth > 0, d.bci[caller], -1).astype(np.int64)
        name = [self._image.methods.get(method) for method in d.method[first].tolist()]
        code = np.concatenate((self._image.first_code(v), np.zeros(SPARE, np.uint8)))
        hidden = self._hidden(d, place, first, up, up_bci, called_before(code, v.start, d.pc, dead_ends))
        choices, choice_of, invoked = self._choices(v, d.method[first], up, up_bci)
        at_choice = {(int(f), int(b)): h for h, (f, b, _) in enumerate(choices.tolist())}
        of_added = [-1] * len(hidden) + [at_choice[place_, bci] for place_, bci, _ in others]
        choice_of = np.append(choice_of, np.array(of_added, np.int64))
        shown = np.arange(len(choice_of)) < len(up)
        hidden += others
        methods, method_of = np.unique(d.method[first], return_inverse=True)
        if hidden:
            over, at, called = (list(column) for column in zip(*hidden, strict=True))
            up, up_bci, name = np.append(up, over), np.append(up_bci, at), name + [callee.display for callee in called]
            depth, method_of = np.append(depth, depth[over] + 1), np.append(method_of, np.zeros(len(over), np.int64))
        calls = len(up)
        steps, step_at = self._steps(methods)
        s = executed.stretches(self._image.classes, d.method[first].tolist(), calls, stretches)
        whole = [self._image.classes.straight(callee) if stretches else 0 for _, _, callee in hidden]
        up, up_bci = np.append(up, s.place), np.append(up_bci, s.bci)
        depth, method_of = np.append(depth, depth[s.place] + 1), np.append(method_of, np.zeros_like(s.place))
        shown, choice_of = (
            np.append(shown, np.zeros(len(s.place), np.bool_)),
            np.append(choice_of, np.full(len(s.place), -1)),
        )
        rows_of = np.maximum(step_at[:, 1] - step_at[:, 0], 0)[method_of].sum()
        inlined = np.flatnonzero(up[:calls] >= 0)
        if max(int(depth.max()) * max(len(up), d.size), int(rows_of)) > MOST_WORK:
            return NOTHING._replace(unmeasured=tuple(name[p] for p in inlined.tolist())), []
        entries = np.array([v.osr_entry or v.verified_entry, v.verified_entry], np.uint64) - np.uint64(v.start)
        out, class_of = np.zeros((8 * len(up) + 8 * len(d.pc) + 64, 4), np.int64), np.zeros(len(up), np.int64)
        n = _analyse(
            code, v.start, d.pc, d.frame_at, d.bci, place, up, up_bci, depth, method_of, shown,
            choice_of, choices, steps, step_at, calls + s.at, entries.astype(np.int64), v.osr_entry != 0,
            v.site_kind == SiteKind.C2, dead_ends, MOST, out, class_of,
        )  # fmt: skip
        if n < 0 and len(s.place):
            return self._of(v, dead_ends, others, 0)
        if n < 0:
            return NOTHING._replace(unmeasured=tuple(name[p] for p in inlined.tolist())), []
        rows = out[:n]
        nameless = [(*choices[h, :2].tolist(), invoked[h]) for h in rows[rows[:, 1] == NAMELESS, 3].tolist()]
        if not v.osr_entry:
            rows = np.concatenate((rows, np.array([[v.verified_entry - v.start, EXECUTED, 1, 0]], np.int64)))
        known = rows[rows[:, 1] >= 0]
        members = inlined[np.argsort(class_of[inlined], kind="stable")]
        begin = np.searchsorted(class_of[members], np.arange(int(class_of.max(initial=0)) + 2))
        size = np.diff(begin)[known[:, 3]]
        take = np.repeat(begin[known[:, 3]] - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))
        each = np.repeat(known, size, axis=0)
        not_counted = rows[rows[:, 1] == LOST]
        run = np.isin(class_of, not_counted[not_counted[:, 2] > 0, 3])
        lost = inlined[(np.isin(class_of, not_counted[:, 3]) & (shown | (choice_of >= 0) | run))[inlined]]
        place = members[take]
        return Measures(
            each[:, 0], each[:, 1], each[:, 2], tuple(name[p] for p in place.tolist()),
            tuple(name[p] for p in lost.tolist()), place, up[:calls].astype(np.int64), up_bci[:calls], tuple(name),
            executed.ran(known, class_of, s, calls, whole),
        ), nameless  # fmt: skip

    def _choices(self, v: Version, method: NDArray[np.uint32], up: I64, up_bci: I64) -> tuple[I64, I64, list[Invoked]]:
        """The calls by which one of several methods may run: rows of HC; of each place of the inline tree (n,) which of
        them calls it, −1: none; what the bytecode calls there. `method`: of each place. C1 inlines only what it knows
        to be called."""
        rows: list[tuple[int, int, int]] = []
        choice_of, invoked = np.full(len(up), -1, np.int64), list[Invoked]()
        callees: dict[tuple[int, int], list[int]] = {}
        for place, at in enumerate(zip(up.tolist(), up_bci.tolist(), strict=True)):
            if min(at) >= 0 and v.site_kind == SiteKind.C2:
                callees.setdefault(at, []).append(place)
        for (caller, bci), those in sorted(callees.items()):
            callee = self._image.classes.virtual(int(method[caller]), bci)
            if callee is not None:
                choice_of[those] = len(rows)
                rows.append((caller, bci, len(those) == 1))
                invoked.append(callee)
        return np.array(rows, np.int64).reshape(-1, HC), choice_of, invoked

    def _hidden(
        self, d: DebugInfo, place: I64, first: I64, up: I64, up_bci: I64, calls: NDArray[np.bool_]
    ) -> list[Call]:
        """Calls that are neither made nor described as inlined, in methods that are: place, bci, callee. Only such as
        can go to one method alone. `calls`: (n,) whether a description is that of a call that is made."""
        innermost = d.frame_at[:-1][(np.diff(d.frame_at) > 0) & calls]
        told = set(zip(place[innermost].tolist(), d.bci[innermost].tolist(), strict=True))
        told.update(zip(up.tolist(), up_bci.tolist(), strict=True))
        return [
            (p, bci, called)
            for p, method in enumerate(d.method[first].tolist())
            for bci, called in self._image.classes.calls(method)
            if (p, bci) not in told
        ]

    def _steps(self, methods: NDArray[np.uint32]) -> tuple[NDArray[np.int32], I64]:
        """Of (n,) methods: their rows, one after the other, and (n, 2) from which to which; (0, −1): not known."""
        at, rows = np.empty((len(methods), 2), np.int64), [np.zeros((0, 3), np.int32)]
        n = 0
        for k, method in enumerate(methods.tolist()):
            found = self._image.classes.steps(method)
            at[k] = (n, n + len(found)) if found is not None else (0, -1)
            if found is not None:
                rows.append(found)
                n += len(found)
        return np.concatenate(rows), at
