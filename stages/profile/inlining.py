"""Where the calls that a compiler inlined are made, found once for each nmethod.

A description of an address (jvm.code.debug_info) says which calls the instructions before it belong to, but no
instruction is the call: the first one of an inlined body may be missing, repeated, moved away, or described as its
caller's. So calls are not looked for one by one. Those that the bytecode makes equally often are one *class*: calls
that it reaches without a condition run as often as their caller or as a round of their loop; those behind a condition
as often as that holds. Any description of any of them is evidence of all, and a call that left none is counted with
its class.

A class is measured on the way through the machine code: it runs where the first evidence of it comes since it was last
*open*. It is open where its caller is entered, where a round of a machine loop begins that is a loop of its caller's
bytecode, and behind a conditional branch that is described as a bytecode of its caller before the call. An unrolled
loop holds many rounds: how many is the step of the variable that it compares, over that of the bytecode. Where ways
with and without evidence meet ahead of more of it, what is counted is the way in, so a measure is an instruction, or
one direction of a conditional branch.

What cannot be told apart is not measured: a loop of which all rounds were written out one after the other.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.counts import JUMP, LEAVE, STEP
from jvm.code.debug_info import DebugInfo
from jvm.code.image import CodeImage
from jvm.code.sites import SiteKind
from jvm.code.version import Kind, Version
from jvm.kernels import inner, kernel
from stages.profile.machine_code import (
    B_FALL,
    B_FIRST,
    B_LAST,
    B_LOOP,
    B_TAKEN,
    BC,
    I_KIND,
    I_OFF,
    I_PC,
    I_SIZE,
    I_WEAK,
    IC,
    L_HEAD,
    L_HI,
    L_LO,
    L_OWNER,
    L_ROUNDS,
    L_STEP,
    L_TEST,
    L_UP,
    LC,
    compared,
    cut,
    depth_first,
    index_of,
    instructions,
    natural_loops,
    step_of,
)
from stages.pt import x86

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

MOST = 1 << 20  # blocks × classes of an nmethod; beyond that nothing inlined is measured
MOST_WORK = 1 << 25  # the same, of what else grows as a product
REGISTERS = 16
ALWAYS, ROUND, BEHIND = 0, 1, 2  # kinds of classes: like the caller's, a loop's, a condition's
EXECUTED, TAKEN, NOT_TAKEN = 0, 1, 2  # what is counted of an instruction

SPARE = 16  # bytes behind the code that may be looked at
ROUNDS = 16  # of finding where ways meet; what is left is counted where it stands
_FAR_AWAY = np.int64(1 << 30)

# columns of a class
C_KIND, C_FRAME, C_LO, C_HI, C_MIN, C_KEY, C_END, CC = range(8)


class Measures(NamedTuple):
    """What an nmethod's code says of the calls inlined in it."""

    offset: I64  # (n,) instructions
    way: I64  # (n,) EXECUTED, TAKEN, NOT_TAKEN
    times: I64  # (n,) calls each time
    called: tuple[str | None, ...]  # (n,) display names; None: not known yet
    unmeasured: tuple[str | None, ...]  # of methods that are inlined and cannot be counted here


_NONE = np.zeros(0, np.int64)
NOTHING = Measures(_NONE, _NONE, _NONE, (), ())


@kernel
def places(frame_at, method, bci, key):  # type: ignore[no-untyped-def]
    """Of each frame, a number for its place in the inline tree: the callers with their bcis, and the method."""
    for i in range(len(frame_at) - 1):
        above = np.uint64(0)
        for f in range(frame_at[i + 1] - 1, frame_at[i] - 1, -1):
            above = (above ^ np.uint64(method[f])) * np.uint64(0x9E3779B97F4A7C15)
            above ^= above >> np.uint64(29)
            key[f] = above
            above = (above + np.uint64(np.int64(bci[f]) + 2)) * np.uint64(0xBF58476D1CE4E5B9)
            above ^= above >> np.uint64(32)


@inner
def _bytecode_loop(steps, lo, hi, bci):  # type: ignore[no-untyped-def]
    """(first, last) bci of the innermost loop around `bci`; (−1, −1): none."""
    first, last = np.int64(-1), np.int64(-1)
    for k in range(lo, hi):
        to, at = np.int64(steps[k, 2]), np.int64(steps[k, 0])
        if steps[k, 1] == JUMP and to <= bci <= at and (first < 0 or at - to < last - first):
            first, last = to, at
    return first, last


@inner
def _condition(steps, lo, hi, bci, first, last):  # type: ignore[no-untyped-def]
    """The last bytecode between `first` and `bci` by which `bci` may be passed over; −1: none. In a loop (`last` ≥ 0)
    the ways out of it are none."""
    found = np.int64(-1)
    for k in range(lo, hi):
        at, to = np.int64(steps[k, 0]), np.int64(steps[k, 2])
        over = steps[k, 1] == JUMP and to > bci and (last < 0 or to <= last)
        if first <= at < bci and (over or (steps[k, 1] == LEAVE and last < 0)):
            found = max(found, at)
    return found


@inner
def _classes(up, up_bci, depth, method_of, steps, step_at, osr, cls, class_of):  # type: ignore[no-untyped-def]
    """The classes, and which one each place of the inline tree belongs to. Class 0 is that of the nmethod itself."""
    cls[0, C_KIND], cls[0, C_FRAME], cls[0, C_LO], cls[0, C_HI], cls[0, C_MIN] = ALWAYS, -1, 0, -1, _FAR_AWAY
    count = 1
    deepest = depth.max()
    for level in range(deepest + 1):
        for p in range(len(up)):
            if depth[p] != level:
                continue
            f = up[p]
            if f < 0:
                class_of[p] = 0
                continue
            b = np.int64(up_bci[p])
            lo, hi = step_at[method_of[f], 0], step_at[method_of[f], 1]
            kind, key, first, last = np.int64(ALWAYS), np.int64(-1), np.int64(-1), np.int64(-1)
            if hi < lo or b < 0:  # its bytecode is not known
                kind, key = np.int64(BEHIND), b
            else:
                first, last = _bytecode_loop(steps, lo, hi, b)
                key = _condition(steps, lo, hi, b, max(first, 0), last)
                kind = np.int64(BEHIND if key >= 0 else ROUND if first >= 0 else ALWAYS)
                if kind == ALWAYS and f >= 0 and up[f] < 0 and osr:
                    kind, key = np.int64(BEHIND), b  # it was entered in the middle
            if kind == ALWAYS:
                class_of[p] = class_of[f]
                c = class_of[f]
                continue
            c = -1
            for k in range(1, count):
                if cls[k, C_FRAME] == f and cls[k, C_KIND] == kind:
                    same = cls[k, C_LO] == first and cls[k, C_HI] == last
                    if (kind == ROUND and same) or (kind == BEHIND and cls[k, C_KEY] == key):
                        c = k
            if c < 0:
                c = count
                count += 1
                cls[c, C_KIND], cls[c, C_FRAME], cls[c, C_LO], cls[c, C_HI] = kind, f, first, last
                cls[c, C_MIN], cls[c, C_KEY] = b, key
            cls[c, C_MIN] = min(cls[c, C_MIN], b)
            class_of[p] = c
    for c in range(1, count):  # how far what stands behind the first call runs as often as that
        m, end = method_of[cls[c, C_FRAME]], cls[c, C_HI] if cls[c, C_KIND] == ROUND else _FAR_AWAY
        for k in range(step_at[m, 0], step_at[m, 1]):
            at, to = np.int64(steps[k, 0]), np.int64(steps[k, 2])
            if steps[k, 1] == JUMP and to > cls[c, C_MIN]:
                end = min(end, to - 1)
            if (steps[k, 1] == JUMP or steps[k, 1] == LEAVE) and at >= cls[c, C_MIN]:
                end = min(end, at)
        cls[c, C_END] = end
    return count


@inner
def _evidence(  # type: ignore[no-untyped-def]
    insn, n, block_of, frame_at, bci, place, cls, classes, class_of, shown, unrolls, evidence, idle
):  # fmt: skip
    """The first instruction of each block that is described as one of a class's calls. Where none is anywhere, or the
    compiler keeps the order of the bytecode (C1), also what stands in the bytecode right behind one of them."""
    found = np.zeros(classes, np.bool_)
    for p in range(len(class_of)):
        found[class_of[p]] |= shown[p]
    first, after = np.full(len(class_of), -1, np.int64), np.full(classes, -1, np.int64)
    for c in range(1, classes):
        if not found[c] or not unrolls:
            after[c] = first[cls[c, C_FRAME]]
            first[cls[c, C_FRAME]] = c
    for i in range(n):
        d, b = insn[i, I_PC], block_of[i]
        idle[b] &= insn[i, I_WEAK] != 0
        if insn[i, I_WEAK] or d >= len(frame_at) - 1:
            continue
        for f in range(frame_at[d], frame_at[d + 1]):
            c = class_of[place[f]]
            if evidence[c, b] < 0:
                evidence[c, b] = i
            c = first[place[f]]
            while c >= 0:
                if cls[c, C_MIN] <= bci[f] <= cls[c, C_END] and evidence[c, b] < 0:
                    evidence[c, b] = i
                c = after[c]


@inner
def _bci_in(frame_at, bci, place, d, p):  # type: ignore[no-untyped-def]
    """The bci of place `p` in description `d`; −2: it is not there."""
    if d < len(frame_at) - 1:
        for f in range(frame_at[d], frame_at[d + 1]):
            if place[f] == p:
                return np.int64(bci[f])
    return np.int64(-2)


@inner
def _owners(  # type: ignore[no-untyped-def]
    insn, block, blocks, loops, count, body, back, frame_at, bci, place, method_of, steps, step_at, code,
    unrolls,
):  # fmt: skip
    """Which loop of which place's bytecode a machine loop is, and by how much it counts what it compares."""
    for lp in range(count):
        head = loops[lp, L_HEAD]
        loops[lp, L_OWNER] = loops[lp, L_LO] = loops[lp, L_HI] = -1
        loops[lp, L_STEP] = 0
        for turn in range(3):  # the branch back, then the ways out, then how it begins
            for b in range(blocks):
                if not body[lp, b] or loops[lp, L_OWNER] >= 0:
                    continue
                last = block[b, B_LAST]
                cond = insn[last, I_KIND] == x86.COND
                goes_back = (back[b] & 1 and block[b, B_FALL] == head) or (back[b] & 2 and block[b, B_TAKEN] == head)
                fall, taken = block[b, B_FALL], block[b, B_TAKEN]
                out = (fall < 0 or not body[lp, fall]) or (taken < 0 or not body[lp, taken])
                if turn == 0 and not (cond and goes_back):
                    continue
                if turn == 1 and not (cond and out and block[b, B_LOOP] == lp):
                    continue
                if turn == 2 and b != head:
                    continue
                d = insn[last, I_PC]
                if d >= len(frame_at) - 1:
                    continue
                for f in range(frame_at[d], frame_at[d + 1]):
                    m = method_of[place[f]]
                    first, end = _bytecode_loop(steps, step_at[m, 0], step_at[m, 1], np.int64(bci[f]))
                    if first >= 0:
                        loops[lp, L_OWNER], loops[lp, L_LO], loops[lp, L_HI] = place[f], first, end
                        break
        if not unrolls:
            continue
        counts = np.zeros(REGISTERS, np.int64)  # by how much each register is counted in it
        for b in range(blocks):
            if block[b, B_LOOP] == lp:
                for i in range(block[b, B_FIRST], block[b, B_LAST] + 1):
                    register, by = step_of(code, insn[i, I_OFF], insn[i, I_SIZE])
                    if register >= 0 and counts[register] == 0:
                        counts[register] = abs(by)
        for b in range(blocks):
            last = block[b, B_LAST]
            fall, taken = block[b, B_FALL], block[b, B_TAKEN]
            out = (fall < 0 or not body[lp, fall]) or (taken < 0 or not body[lp, taken])
            if block[b, B_LOOP] != lp or insn[last, I_KIND] != x86.COND or not out:
                continue
            those = 0
            for i in range(last - 1, block[b, B_FIRST] - 1, -1):
                if those == 0:
                    those = compared(code, insn[i, I_OFF], insn[i, I_SIZE])
                register, by = step_of(code, insn[i, I_OFF], insn[i, I_SIZE])
                if register >= 0 and those >> register & 1 and by:
                    loops[lp, L_STEP], loops[lp, L_TEST] = abs(by), b
            for register in range(REGISTERS):
                if loops[lp, L_STEP] == 0 and those >> register & 1 and counts[register]:
                    loops[lp, L_STEP], loops[lp, L_TEST] = counts[register], b
    for lp in range(count):
        loops[lp, L_ROUNDS] = 1
        step, unit = loops[lp, L_STEP], np.int64(0)
        if loops[lp, L_OWNER] < 0 or step == 0:
            continue
        m = method_of[loops[lp, L_OWNER]]
        for k in range(step_at[m, 0], step_at[m, 1]):
            if steps[k, 1] == STEP and loops[lp, L_LO] <= steps[k, 0] <= loops[lp, L_HI]:
                by = abs(np.int64(steps[k, 2]))
                if by and step % by == 0 and (unit == 0 or by < unit):
                    unit = by
        if unit == 0:  # not counted by iinc: its other copies have the least
            for k in range(count):
                same = loops[k, L_OWNER] == loops[lp, L_OWNER] and loops[k, L_LO] == loops[lp, L_LO]
                if same and loops[k, L_STEP] and step % loops[k, L_STEP] == 0:
                    unit = loops[k, L_STEP] if unit == 0 else min(unit, loops[k, L_STEP])
        if unit and step // unit <= 4096:
            loops[lp, L_ROUNDS] = step // unit


@inner
def _below(up, p, over):  # type: ignore[no-untyped-def]
    """Whether place `p` is `over` or was inlined in it."""
    while p >= 0:
        if p == over:
            return True
        p = up[p]
    return False


@inner
def _opens(cls, c, loops, lp, up, up_bci):  # type: ignore[no-untyped-def]
    """Whether class `c` is open where a round of machine loop `lp` begins."""
    owner = loops[lp, L_OWNER]
    frame = cls[c, C_FRAME]
    if owner < 0 or not _below(up, frame, owner):
        return False
    at = cls[c, C_MIN]
    while frame != owner:
        at = up_bci[frame]
        frame = up[frame]
    return loops[lp, L_LO] <= at <= loops[lp, L_HI]


@inner
def _measure(  # type: ignore[no-untyped-def]
    c, cls, insn, block, blocks, order, back, pred_at, pred, body, loops, count, evidence, idle, starts, frame_at, bci,
    place, up, up_bci, out, m,
):  # fmt: skip
    """Add where class `c` is measured to `out`, of which `m` rows are written; how many are, then."""
    frame, first, least = cls[c, C_FRAME], cls[c, C_LO], cls[c, C_MIN]
    opens, turns = np.zeros(count, np.bool_), np.zeros(count, np.bool_)  # where it is entered, and each round
    unrolled = np.zeros(count, np.bool_)
    written = cls[c, C_KIND] == ROUND  # out one round after the other, as far as is known
    for lp in range(count):
        opens[lp] = turns[lp] = _opens(cls, c, loops, lp, up, up_bci)
        if loops[lp, L_OWNER] == frame and loops[lp, L_LO] == cls[c, C_LO] and loops[lp, L_HI] == cls[c, C_HI]:
            written = False
            unrolled[lp] = cls[c, C_KIND] == ROUND and loops[lp, L_ROUNDS] > 1
            for k in range(count):  # a loop around strips of it is none of its rounds
                same = loops[k, L_OWNER] == frame and loops[k, L_LO] == loops[lp, L_LO]
                if k != lp and same and body[lp, loops[k, L_HEAD]]:
                    unrolled[lp] = False
    if written:
        return -1
    # 1: some way there has the class open, 2: some has not; what a block's end says of both
    come, go = np.zeros(blocks, np.int8), np.zeros(blocks, np.int8)
    anchor = np.full(blocks, -2, np.int64)
    shown = np.zeros(blocks, np.bool_)
    inside = np.zeros(blocks, np.bool_)
    for b in range(blocks):
        last = block[b, B_LAST]
        if insn[last, I_KIND] == x86.COND:
            anchor[b] = _bci_in(frame_at, bci, place, insn[last, I_PC], frame)
        lp = block[b, B_LOOP]
        if lp >= 0 and max(first, 0) <= anchor[b] < least:
            turns[lp] = False  # a branch says so
        while lp >= 0:
            inside[b] |= unrolled[lp]
            lp = loops[lp, L_UP]
    for b in range(blocks):
        shown[b] = evidence[b] >= 0 and not inside[b]
        before = max(first, 0) <= anchor[b] < least
        if not shown[b] or not before:
            continue
        ahead, behind = 0, 0  # was it moved ahead of the condition?
        lp = block[b, B_LOOP]
        head = lp >= 0 and loops[lp, L_HEAD] == b
        for s in starts:
            ahead += s == b
        for k in range(pred_at[b], pred_at[b + 1]):
            p = pred[k]
            if (not head or body[lp, p]) and anchor[p] >= 0:
                if anchor[p] < anchor[b]:
                    ahead += 1
                else:
                    behind += 1
        shown[b] = ahead == 0 or behind > 0
    settled = np.zeros(blocks, np.bool_)
    need = np.zeros(blocks, np.bool_)
    for _ in range(ROUNDS):
        come[:] = 0
        go[:] = 0
        for s in starts:
            if s >= 0:
                come[s] = 1
        for b in range(blocks):
            if pred_at[b] == pred_at[b + 1] and come[b] == 0:
                # an exception's handler, a switch's case, or nothing but padding
                come[b] = 0 if idle[b] else 2 if evidence[b] >= 0 else 1
        changed = True
        while changed:
            changed = False
            for k in range(blocks):
                b = order[k]
                was_come, was_go = come[b], go[b]
                lp = block[b, B_LOOP]
                head = lp >= 0 and loops[lp, L_HEAD] == b and opens[lp]
                for j in range(pred_at[b], pred_at[b + 1]):
                    p = pred[j]
                    if head and go[p] and (turns[lp] or not body[lp, p]):
                        come[b] |= 1
                    else:
                        come[b] |= go[p]
                here = come[b]
                if settled[b] or inside[b]:
                    here = 2 if here else 0
                if shown[b] and here:
                    here = 2
                if max(first, 0) <= anchor[b] < least and here and not inside[b]:
                    here = 1
                go[b] |= here
                changed |= come[b] != was_come or go[b] != was_go
        need[:] = False
        changed = True
        while changed:
            changed = False
            for k in range(blocks - 1, -1, -1):
                b = order[k]
                if need[b] or settled[b] or come[b] != 3:
                    continue
                if shown[b]:
                    need[b] = changed = True
                elif not max(first, 0) <= anchor[b] < least and not inside[b]:
                    for turn in range(2):
                        to = block[b, B_FALL + turn]
                        if to >= 0 and need[to]:
                            need[b] = changed = True
        more = False
        for b in range(blocks):
            if need[b]:
                settled[b] = more = True
        if not more:
            break
    for b in range(blocks):
        if settled[b]:
            for k in range(pred_at[b], pred_at[b + 1]):
                p = pred[k]
                if go[p] == 1 and m < len(out):
                    last = block[p, B_LAST]
                    out[m, 0], out[m, 1], out[m, 2], out[m, 3] = insn[last, I_OFF], EXECUTED, 1, c
                    if insn[last, I_KIND] == x86.COND:
                        out[m, 1] = TAKEN if block[p, B_TAKEN] == b else NOT_TAKEN
                    m += 1
        elif shown[b] and come[b] & 1 and m < len(out):
            out[m, 0], out[m, 1], out[m, 2], out[m, 3] = insn[evidence[b], I_OFF], EXECUTED, 1, c
            m += 1
    for lp in range(count):
        if unrolled[lp] and m < len(out):
            out[m, 0], out[m, 1] = insn[block[loops[lp, L_TEST], B_LAST], I_OFF], EXECUTED
            out[m, 2], out[m, 3] = loops[lp, L_ROUNDS], c
            m += 1
    return m


@kernel
def _analyse(  # type: ignore[no-untyped-def]
    code, base, pc, frame_at, bci, place, up, up_bci, depth, method_of, shown, steps, step_at, entries, osr, unrolls,
    dead_ends, most, out, class_of,
):  # fmt: skip
    """Rows (offset, way, times, class) of `out`, class −1: (_, _, _) of a class that is not measured is (class, −1)."""
    end: int = min(int(pc[-1]), len(code) - SPARE)
    insn = np.zeros((end + 1, IC), np.int64)
    n = instructions(code, end, pc, insn)
    if n == 0:
        return -1
    block_of, block = np.zeros(n, np.int64), np.zeros((n + 1, BC), np.int64)
    blocks = cut(insn, n, base, entries, dead_ends, block_of, block)
    cls = np.zeros((len(up) + 1, CC), np.int64)
    classes = _classes(up, up_bci, depth, method_of, steps, step_at, osr, cls, class_of)
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
    _owners(
        insn, block, blocks, loops, count, body, back, frame_at, bci, place, method_of, steps, step_at, code, unrolls
    )
    evidence, idle = np.full((classes, blocks), -1, np.int64), np.ones(blocks, np.bool_)
    _evidence(insn, n, block_of, frame_at, bci, place, cls, classes, class_of, shown, unrolls, evidence, idle)
    m = 0
    for c in range(1, classes):
        now = _measure(
            c, cls, insn, block, blocks, order, back, pred_at, pred, body, loops, count, evidence[c], idle, starts,
            frame_at, bci, place, up, up_bci, out, m,
        )  # fmt: skip
        if now < 0:
            if m < len(out):
                out[m, 1], out[m, 3] = -1, c
                m += 1
        else:
            m = now
    return m


_DEAD_ENDS = re.compile(r"uncommon.?trap|throw|exception|deopt|unwind|predicate_failed", re.I)
"""Stubs and blobs that do not return to where they were called from, by what the JVM calls them."""


def called_before(code: NDArray[np.uint8], start: int, pc: NDArray[np.uint32], dead_ends: U64) -> NDArray[np.bool_]:
    """Whether before each of (n,) offsets in `code` a direct call ends that may return."""
    at = np.clip(pc.astype(np.int64) - 5, 0, len(code) - 5)
    by = code[at[:, None] + np.arange(1, 5)].copy().view("<i4")[:, 0]
    to = (start + at + 5 + by).astype(np.uint64)
    return np.asarray((code[at] == 0xE8) & (pc >= 5) & ~np.isin(to, dead_ends), np.bool_)


class Inlining:
    """Of one code image: what the code of its nmethods says of the calls that are inlined in it."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image

    def dead_ends(self) -> U64:
        """Where calls go that never return, ascending."""
        blobs = {v.start for v in self._image.versions() if v.kind != Kind.NMETHOD and _DEAD_ENDS.search(v.name)}
        return np.array(sorted(blobs), np.uint64)

    def of(self, v: Version, dead_ends: U64) -> Measures:
        d = v.debug
        if d is None or not len(d.method):
            return NOTHING
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
        shown = np.arange(len(up) + len(hidden)) < len(up)
        if not len(hidden) and not (up >= 0).any():
            return NOTHING
        methods, method_of = np.unique(d.method[first], return_inverse=True)
        if hidden:
            over, at, called = (list(column) for column in zip(*hidden, strict=True))
            up, up_bci, name = np.append(up, over), np.append(up_bci, at), name + called
            depth, method_of = np.append(depth, depth[over] + 1), np.append(method_of, np.zeros(len(over), np.int64))
        steps, step_at = self._steps(methods)
        rows_of = np.maximum(step_at[:, 1] - step_at[:, 0], 0)[method_of].sum()
        inlined = np.flatnonzero(up >= 0)
        if max(int(depth.max()) * max(len(up), d.size), int(rows_of)) > MOST_WORK:
            return NOTHING._replace(unmeasured=tuple(name[p] for p in inlined.tolist()))
        entries = np.array([v.osr_entry or v.verified_entry, v.verified_entry], np.uint64) - np.uint64(v.start)
        out, class_of = np.zeros((8 * len(up) + 8 * len(d.pc) + 64, 4), np.int64), np.zeros(len(up), np.int64)
        n = _analyse(
            code, v.start, d.pc, d.frame_at, d.bci, place, up, up_bci, depth, method_of, shown,
            steps, step_at, entries.astype(np.int64), v.osr_entry != 0, v.site_kind == SiteKind.C2, dead_ends, MOST,
            out, class_of,
        )  # fmt: skip
        if n < 0:
            return NOTHING._replace(unmeasured=tuple(name[p] for p in inlined.tolist()))
        rows = out[:n]
        if not v.osr_entry:
            rows = np.concatenate((rows, np.array([[v.verified_entry - v.start, EXECUTED, 1, 0]], np.int64)))
        known = rows[rows[:, 1] >= 0]
        members = inlined[np.argsort(class_of[inlined], kind="stable")]
        begin = np.searchsorted(class_of[members], np.arange(int(class_of.max(initial=0)) + 2))
        size = np.diff(begin)[known[:, 3]]
        take = np.repeat(begin[known[:, 3]] - (np.cumsum(size) - size), size) + np.arange(int(size.sum()))
        each = np.repeat(known, size, axis=0)
        lost = inlined[np.isin(class_of[inlined], rows[rows[:, 1] < 0, 3]) & shown[inlined]]
        called = [name[p] for p in members[take].tolist()]
        return Measures(each[:, 0], each[:, 1], each[:, 2], tuple(called), tuple(name[p] for p in lost.tolist()))

    def _hidden(
        self, d: DebugInfo, place: I64, first: I64, up: I64, up_bci: I64, calls: NDArray[np.bool_]
    ) -> list[tuple[int, int, str | None]]:
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
