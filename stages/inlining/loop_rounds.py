"""Machine loops as loops of the bytecode: which loop each one is, and how many rounds of that it holds.

An unrolled loop holds many rounds: how many is the step of the variable that it compares, over that of the bytecode.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.bytecode.counts import STEP
from jvm.kernels import inner
from stages.inlining.call_classes import C_FRAME, C_MIN, bytecode_loop
from stages.inlining.machine_code import (
    B_FALL,
    B_FIRST,
    B_LAST,
    B_LOOP,
    B_TAKEN,
    I_KIND,
    I_OFF,
    I_PC,
    I_SIZE,
    L_HEAD,
    L_HI,
    L_LO,
    L_OWNER,
    L_ROUNDS,
    L_STEP,
    L_TEST,
    compared,
    step_of,
)
from stages.pt import x86

REGISTERS = 16


@inner
def find_owners(  # type: ignore[no-untyped-def]
    insn, block, blocks, loops, count, body, back, frame_at, bci, place, method_of, steps, step_at, code,
    unrolls,
):  # fmt: skip
    """Which loop of which place's bytecode a machine loop is, and by how much it counts the value it compares."""
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
                    first, end = bytecode_loop(steps, step_at[m, 0], step_at[m, 1], np.int64(bci[f]))
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
def opens(cls, c, loops, lp, up, up_bci):  # type: ignore[no-untyped-def]
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
