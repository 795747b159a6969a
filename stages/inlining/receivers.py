"""Which method a virtual call leads to, where a compiler has inlined those of several receivers, or of one.

The machine code compares the receiver's class and branches: each way out of such a *guard* leads to the body of one
method, or to a call, or to another guard. So a method is called as often as a guard is left that way. Which method's it
is, is told by what is described as that method's on this way alone, before it meets the others; of the methods of which
nothing is left, by elimination. Ways that end in a trap are none. Where the compiler has made one piece of several
bodies, and only then chooses, no way tells.
"""


# mypy: disable-error-code="assignment"

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.inlining.class_measures import NOT_TAKEN, TAKEN
from stages.inlining.machine_code import (
    B_FALL,
    B_FIRST,
    B_LAST,
    B_TAKEN,
    I_KIND,
    I_OFF,
    I_PC,
    I_SIZE,
    I_WEAK,
    opcode_at,
)
from stages.pt import x86

LOST, NAMELESS = -1, -2
"""In place of a way: the class is not measured; of that choice, a way leads to a method that is not among its own."""
INLINED = 2
"""Of so many receivers C2 inlines the methods at most (Compile::call_generator)."""
MOST_WAYS = 128
_NO_NAME, _CALL, _GUARD, _SEVERAL = np.int64(-1), np.int64(-2), np.int64(-3), np.int64(-4)  # where a way leads

# columns of a choice: the place that calls, the bci of the call, whether one method alone is described as called there
H_FRAME, H_BCI, H_ALONE, HC = range(4)


@inner
def dead_blocks(insn, block, blocks):  # type: ignore[no-untyped-def]
    """(blocks,) From which ones nothing leads on in this code."""
    dead = np.zeros(blocks, np.bool_)
    changed = True
    while changed:
        changed = False
        for b in range(blocks - 1, -1, -1):
            kind = insn[block[b, B_LAST], I_KIND]
            fall, taken = block[b, B_FALL], block[b, B_TAKEN]
            on = (fall >= 0 and not dead[fall]) or (taken >= 0 and not dead[taken])
            if not dead[b] and not on and kind != x86.RET and kind != x86.JUMP_IND:
                dead[b] = changed = True
    return dead


@inner
def _is_of(insn, i, frame_at, bci, place, choice):  # type: ignore[no-untyped-def]
    """Whether the instruction is described as the call itself."""
    d = insn[i, I_PC]
    if d >= len(frame_at) - 1 or frame_at[d] == frame_at[d + 1]:
        return False
    return place[frame_at[d]] == choice[H_FRAME] and bci[frame_at[d]] == choice[H_BCI]


@inner
def _class_compared(code, insn, first, last):  # type: ignore[no-untyped-def]
    """The class that the branch at the end of a block depends on: the imm32 that the receiver's is compared with; −1:
    there is none."""
    for i in range(last - 1, first - 1, -1):
        if insn[i, I_WEAK] == 0:
            at, _ = opcode_at(code, insn[i, I_OFF])
            if code[at] != 0x3D and (code[at] != 0x81 or code[at + 1] >> 3 & 7 != 7):
                break
            of = np.int64(0)
            for k in range(4):
                of |= np.int64(code[insn[i, I_OFF] + insn[i, I_SIZE] - 4 + k]) << 8 * k
            return of
    return np.int64(-1)


@inner
def _way_of_class(code, insn, last):  # type: ignore[no-untyped-def]
    """Which way out of a comparison's block it is, if it is that class: 1 (TAKEN) or 0; −1: another condition."""
    at = insn[last, I_OFF]
    condition = code[at + 1] if code[at] == 0x0F else code[at]
    if condition & 0xE == 4:  # JE, JNE
        return np.int64(1 - (condition & 1))
    return np.int64(-1)


@inner
def is_choice(choice, code, insn, n, guards, frame_at, bci, place):  # type: ignore[no-untyped-def]
    """Whether a call may lead to several methods in this code: there are guards, several methods are described as
    called there, or a value is chosen where the call is (CMOVcc)."""
    found = guards > 0 or choice[H_ALONE] == 0
    for i in range(n):
        at, _ = opcode_at(code, insn[i, I_OFF])
        moves = code[at] == 0x0F and code[at + 1] >> 4 == 4
        found = found or (moves and _is_of(insn, i, frame_at, bci, place, choice))
    return found


@inner
def find_guards(choice, code, insn, block, blocks, dead, frame_at, bci, place, guard):  # type: ignore[no-untyped-def]
    """Sets `guard` (blocks,); how many."""
    count = 0
    for b in range(blocks):
        last, fall, taken = block[b, B_LAST], block[b, B_FALL], block[b, B_TAKEN]
        guard[b] = insn[last, I_KIND] == x86.COND and fall >= 0 and taken >= 0 and not dead[fall] and not dead[taken]
        guard[b] = guard[b] and _is_of(insn, last, frame_at, bci, place, choice)
        if guard[b] and choice[H_ALONE]:
            guard[b] = _class_compared(code, insn, block[b, B_FIRST], last) >= 0
        count += guard[b]
    return count


@inner
def _follow(block, dead, guard, to, reach, stack):  # type: ignore[no-untyped-def]
    """Sets `reach` (blocks,): the blocks on the ways from `to` up to guards."""
    stack[0] = to
    reach[to] = True
    top = 1
    while top > 0:
        top -= 1
        b = stack[top]
        if guard[b]:
            continue
        for turn in range(2):
            then = block[b, B_FALL + turn]
            if then >= 0 and not dead[then] and not reach[then]:
                reach[then] = True
                stack[top] = then
                top += 1


@inner
def _leads(own, guard, choice, classes, insn, block, frame_at, bci, place, evidence):  # type: ignore[no-untyped-def]
    """Where a way leads: to a class's method, or as above. `own` (blocks,): those that are on no other way."""
    found, calls, guarded = _NO_NAME, False, False
    for b in range(len(own)):
        if not own[b]:
            continue
        if guard[b]:
            guarded = True
            continue
        for c in classes:
            if evidence[c, b] >= 0:
                found = c if found == _NO_NAME or found == c else _SEVERAL
        for i in range(block[b, B_FIRST], block[b, B_LAST] + 1):
            if insn[i, I_KIND] == x86.CALL or insn[i, I_KIND] == x86.CALL_IND:
                calls = calls or _is_of(insn, i, frame_at, bci, place, choice)
    if found != _NO_NAME:
        return found
    return _CALL if calls else _GUARD if guarded else _NO_NAME


@inner
def _same_class(leads, of_class):  # type: ignore[no-untyped-def]
    """Ways that lead nowhere that is known lead to where others do of the same class. Whether none contradicts."""
    for w in range(len(leads)):
        for other in range(len(leads)):
            if of_class[w] >= 0 and of_class[w] == of_class[other] and leads[other] >= 0:
                if leads[w] >= 0 and leads[w] != leads[other]:
                    return False
                leads[w] = leads[other] if leads[w] == _NO_NAME else leads[w]
    return True


@inner
def _missing(classes, leads, at, inside):  # type: ignore[no-untyped-def]
    """The only class to which no way leads; −1: there is none, or several."""
    missing = np.int64(-1)
    for c in classes:
        told = False
        for w in range(len(leads)):
            told = told or (leads[w] == c and not inside[at[w]])
        if not told:
            missing = c if missing == -1 else np.int64(-2)
    return max(missing, np.int64(-1))


@inner
def _by_elimination(classes, other, missing):  # type: ignore[no-untyped-def]
    """Where a way leads on which nothing is described, if the other out of its guard leads to `other`."""
    if other >= 0 and len(classes) == INLINED:
        return np.int64(classes[0] + classes[1] - other)
    if (other == _CALL or other == _GUARD) and missing >= 0:
        return missing
    return classes[0] if other == _CALL and len(classes) == 1 else _NO_NAME


@inner
def measure_choice(  # type: ignore[no-untyped-def]
    h, choice, classes, code, insn, block, blocks, dead, frame_at, bci, place, evidence, out, m
):  # fmt: skip
    """Add where the methods that choice `h` leads to are called to `out`, of which `m` rows are written; how many are,
    then. `classes`: theirs."""
    guard = np.zeros(blocks, np.bool_)
    ways = 2 * find_guards(choice, code, insn, block, blocks, dead, frame_at, bci, place, guard)
    lost = ways == 0 or ways > MOST_WAYS
    ways = 0 if lost else ways
    reach, stack = np.zeros((ways, blocks), np.bool_), np.empty(blocks + 1, np.int64)
    at, leads, of_class = np.zeros(ways, np.int64), np.zeros(ways, np.int64), np.full(ways, -1, np.int64)
    n = 0
    for b in range(blocks):
        if guard[b] and not lost:
            for turn in range(2):
                _follow(block, dead, guard, block[b, B_FALL + turn], reach[n], stack)
                at[n] = b
                if turn == _way_of_class(code, insn, block[b, B_LAST]):
                    of_class[n] = _class_compared(code, insn, block[b, B_FIRST], block[b, B_LAST])
                n += 1
    meet = np.zeros(blocks, np.int64)
    for w in range(ways):
        for b in range(blocks):
            meet[b] += reach[w, b]
    inside = np.zeros(blocks, np.bool_)  # guards that are part of a body
    for w in range(ways):
        own = reach[w] & (meet == 1)
        leads[w] = _leads(own, guard, choice, classes, insn, block, frame_at, bci, place, evidence)
        lost = lost or leads[w] == _SEVERAL
        if leads[w] >= 0:
            inside |= own & guard
    lost = lost or not _same_class(leads, of_class)
    missing, nameless = _missing(classes, leads, at, inside), False
    for w in range(ways):
        if leads[w] == _NO_NAME and not inside[at[w]]:
            leads[w] = _by_elimination(classes, leads[w + 1 - 2 * (w % 2)], missing)
            nameless = nameless or leads[w] == _NO_NAME
    lost = lost or (nameless and len(classes) == INLINED)
    for c in classes:
        told = False
        for w in range(ways):
            if leads[w] == c and not inside[at[w]] and not lost and m < len(out):
                told = True
                out[m, 0], out[m, 1] = insn[block[at[w], B_LAST], I_OFF], TAKEN if w % 2 else NOT_TAKEN
                out[m, 2], out[m, 3] = 1, c
                m += 1
        if not told and m < len(out):
            out[m, 1], out[m, 3] = LOST, c
            m += 1
    if (nameless or ways == 0) and len(classes) < INLINED and m < len(out):
        out[m, 1], out[m, 3] = NAMELESS, h
        m += 1
    return m
