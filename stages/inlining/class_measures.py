"""Where a class of inlined calls (stages.inlining.call_classes) is counted: as instructions, or ways of a branch.

It runs where the first evidence of it comes since it was last *open*: where its caller is entered, where a round of a
machine loop begins that is a loop of its caller's bytecode (stages.inlining.loop_rounds), and behind a conditional
branch that is described as a bytecode of its caller before the call. Where ways with and without evidence meet ahead
of more of it, the way in is counted.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.inlining.call_classes import C_END, C_FRAME, C_HI, C_KEY, C_KIND, C_LO, C_MIN, C_OWN, ROUND, bytecode_loop
from stages.inlining.loop_rounds import opens as class_opens
from stages.inlining.machine_code import (
    B_FALL,
    B_LAST,
    B_LOOP,
    B_TAKEN,
    I_KIND,
    I_OFF,
    I_PC,
    I_WEAK,
    L_HEAD,
    L_HI,
    L_LO,
    L_OWNER,
    L_ROUNDS,
    L_TEST,
    L_UP,
)
from stages.pt import x86

EXECUTED, TAKEN, NOT_TAKEN = 0, 1, 2  # the ways of an instruction that are counted
ROUNDS = 16  # of finding where ways meet; the rest is counted where it stands


@inner
def find_evidence(  # type: ignore[no-untyped-def]
    insn, n, block_of, frame_at, bci, place, cls, classes, class_of, shown, unrolls, up_bci, stretch_at, evidence, idle
):  # fmt: skip
    """The first instruction of each block that is described as one of a class's calls. Where none is anywhere, or the
    compiler keeps the order of the bytecode (C1), also the code that stands in the bytecode right behind one of
    them. Of a class of stretches, one of those (`stretch_at`: where those of each place begin) that is described."""
    found = np.zeros(classes, np.bool_)
    for p in range(len(class_of)):
        found[class_of[p]] |= shown[p]
    first, after = np.full(len(class_of), -1, np.int64), np.full(classes, -1, np.int64)
    for c in range(1, classes):
        if (not found[c] or not unrolls) and not cls[c, C_OWN]:
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
            lo, hi = stretch_at[place[f]], stretch_at[place[f] + 1]
            while lo < hi and bci[f] >= 0:  # the last one that begins at or before it
                middle = (lo + hi) // 2
                if up_bci[middle] <= bci[f]:
                    lo = middle + 1
                else:
                    hi = middle
            lo -= 1
            if lo >= stretch_at[place[f]] and evidence[class_of[lo], b] < 0 and cls[class_of[lo], C_OWN]:
                evidence[class_of[lo], b] = i


@inner
def share_evidence(cls, classes, evidence):  # type: ignore[no-untyped-def]
    """A round that comes as far as behind a way out of its loop has come past it: evidence of the calls there is
    evidence of those before it."""
    for c in range(1, classes):
        if cls[c, C_KIND] != ROUND:
            continue
        for later in range(1, classes):
            same = cls[later, C_FRAME] == cls[c, C_FRAME] and cls[later, C_LO] == cls[c, C_LO]
            same = same and cls[later, C_HI] == cls[c, C_HI] and cls[later, C_OWN] == cls[c, C_OWN]
            if not same or cls[later, C_KIND] != ROUND or cls[later, C_KEY] <= cls[c, C_KEY]:
                continue
            for b in range(evidence.shape[1]):
                if evidence[c, b] < 0 or 0 <= evidence[later, b] < evidence[c, b]:
                    evidence[c, b] = evidence[later, b]


@inner
def _bci_in(frame_at, bci, place, d, p):  # type: ignore[no-untyped-def]
    """The bci of place `p` in description `d`; −2: it is not there."""
    if d < len(frame_at) - 1:
        for f in range(frame_at[d], frame_at[d + 1]):
            if place[f] == p:
                return np.int64(bci[f])
    return np.int64(-2)


@inner
def runs(cls, insn, n, block_of, dead, frame_at, bci, place):  # type: ignore[no-untyped-def]
    """Whether code is left that runs as often as the calls of class `cls`, and does not only lead to a trap."""
    for i in range(n):
        if insn[i, I_WEAK] or dead[block_of[i]]:
            continue
        if cls[C_MIN] <= _bci_in(frame_at, bci, place, insn[i, I_PC], cls[C_FRAME]) <= cls[C_END]:
            return True
    return False


@inner
def repeats(cls, c, up, up_bci, method_of, steps, step_at):  # type: ignore[no-untyped-def]
    """Whether the calls of class `c` may be made more than once while the nmethod runs once: there is a loop around
    them in the bytecode of their caller, or around its call."""
    frame, at = cls[c, C_FRAME], cls[c, C_MIN]
    while frame >= 0:
        lo, hi = step_at[method_of[frame], 0], step_at[method_of[frame], 1]
        if hi < lo or at < 0 or bytecode_loop(steps, lo, hi, np.int64(at))[0] >= 0:
            return True
        at = up_bci[frame]
        frame = up[frame]
    return False


@inner
def measure(  # type: ignore[no-untyped-def]
    c, cls, insn, block, blocks, order, back, pred_at, pred, body, loops, count, evidence, idle, starts, frame_at, bci,
    place, up, up_bci, method_of, steps, step_at, out, m,
):  # fmt: skip
    """Add where class `c` is measured to `out`, of which `m` rows are written; how many are, then."""
    frame, first, least = cls[c, C_FRAME], cls[c, C_LO], cls[c, C_MIN]
    opens, turns = np.zeros(count, np.bool_), np.zeros(count, np.bool_)  # where it is entered, and each round
    unrolled = np.zeros(count, np.bool_)
    written = cls[c, C_KIND] == ROUND  # out one round after the other, as far as is known
    for lp in range(count):
        opens[lp] = turns[lp] = class_opens(cls, c, loops, lp, up, up_bci)
        if loops[lp, L_OWNER] == frame and loops[lp, L_LO] == cls[c, C_LO] and loops[lp, L_HI] == cls[c, C_HI]:
            written = False
            unrolled[lp] = cls[c, C_KIND] == ROUND and loops[lp, L_ROUNDS] > 1
            for k in range(count):  # a loop around strips of it is none of its rounds
                same = loops[k, L_OWNER] == frame and loops[k, L_LO] == loops[lp, L_LO]
                if k != lp and same and body[lp, loops[k, L_HEAD]]:
                    unrolled[lp] = False
    if written:
        return -1
    again = repeats(cls, c, up, up_bci, method_of, steps, step_at)
    # 1: some way there has the class open, 2: some has not; `go`: by a block's end
    come, go = np.zeros(blocks, np.int8), np.zeros(blocks, np.int8)
    anchor = np.full(blocks, -2, np.int64)
    shown = np.zeros(blocks, np.bool_)
    inside = np.zeros(blocks, np.bool_)
    for b in range(blocks):
        last = block[b, B_LAST]
        if insn[last, I_KIND] == x86.COND and not insn[last, I_WEAK]:
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
                if again and max(first, 0) <= anchor[b] < least and here and not inside[b]:
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
