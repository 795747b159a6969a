"""The machine code of one nmethod, cut into basic blocks and natural loops, as flat arrays.

Instructions are found in the order of addresses; descriptions (jvm.code.debug_info) stand between two of them, so
where data lies among the code the next description says where instructions go on.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.pt import x86

# columns of an instruction, a block, a loop; I_WEAK: it moves values about, I_PC: which description is its
I_OFF, I_SIZE, I_KIND, I_TARGET, I_WEAK, I_PC, IC = range(7)
B_FIRST, B_LAST, B_FALL, B_TAKEN, B_LOOP, BC = range(6)
L_HEAD, L_OWNER, L_LO, L_HI, L_STEP, L_TEST, L_ROUNDS, L_UP, LC = range(9)


@inner
def _polls(code, at):  # type: ignore[no-untyped-def]
    """Whether the instruction compares the stack pointer with a word of the thread: a return polls for a safepoint."""
    return code[at] & 0xF4 == 0x40 and code[at + 1] == 0x3B and code[at + 2] >> 3 & 7 == 4


@inner
def _of_thread(code, at, size):  # type: ignore[no-untyped-def]
    """Whether the instruction has an operand in the thread, [r15 + x]. It is of the JVM, not of the bytecode: an
    allocation's, a barrier's, a poll's."""
    i, rex = opcode_at(code, at)
    if code[i] == 0x0F:
        i += 1
    if rex & 1 == 0 or i + 1 >= at + size:
        return False
    modrm = np.int64(code[i + 1])
    return modrm & 7 == 7 and 0 < modrm >> 6 < 3


@inner
def opcode_at(code, at):  # type: ignore[no-untyped-def]
    """Where the opcode stands, and the REX prefix before it, 0 if there is none."""
    rex = np.int64(code[at])
    return (at + 1, rex) if rex & 0xF0 == 0x40 else (at, np.int64(0))


@inner
def _operands(code, at, rex):  # type: ignore[no-untyped-def]
    """The ModRM byte at `at`: mod, reg and rm, registers as REX extends them (reg & 7: the opcode's extension)."""
    modrm = np.int64(code[at])
    return modrm >> 6, modrm >> 3 & 7 | (rex & 4) << 1, modrm & 7 | (rex & 1) << 3


@inner
def _weak(code, at, size):  # type: ignore[no-untyped-def]
    """Whether the instruction moves values about, as register allocation has it: such ones are described as the
    instruction behind them."""
    i = at
    while code[i] == 0x66 or code[i] == 0x2E or code[i] == 0xF2 or code[i] == 0xF3:
        i += 1
    i, rex = opcode_at(code, i)
    op = np.int64(code[i])
    if op == 0x90 or 0x50 <= op < 0x60 or 0xB8 <= op < 0xC0:
        return True
    if op == 0xC5:  # VEX moves
        i += 2
        if code[i] == 0x77:  # VZEROUPPER
            return True
        op = np.int64(code[i])
        moves = op == 0x10 or op == 0x11 or op == 0x28 or op == 0x29 or op == 0x6F or op == 0x7F
        rex = np.int64(0)
    elif op == 0x0F:
        i += 1
        op = np.int64(code[i])
        if op == 0x1F:
            return True
        moves = op == 0x10 or op == 0x11 or op == 0x28 or op == 0x29 or op == 0x6F or op == 0x7F
    else:
        moves = op == 0x89 or op == 0x8B or op == 0x88 or op == 0x8A or op == 0x87
    if i + 1 >= at + size:
        return False
    mod, reg, rm = _operands(code, i + 1, rex)
    stack = rm == 4 and (mod == 3 or np.int64(code[i + 2]) & 7 == 4)
    if moves or op == 0xC7:
        return (mod == 3 and op != 0xC7) or stack
    if op == 0x81 or op == 0x83:
        return mod == 3 and stack
    if op == 0x31 or op == 0x33:
        return mod == 3 and reg == rm
    return _polls(code, at)


@inner
def step_of(code, at, size):  # type: ignore[no-untyped-def]
    """(register, by how much an instruction counts it); (−1, 0) if it does not."""
    i, rex = opcode_at(code, at)
    op = np.int64(code[i])
    if i + 1 >= at + size:
        return -1, 0
    mod, what, register = _operands(code, i + 1, rex)
    what &= 7
    if mod != 3:
        return -1, 0
    if op == 0xFF and what < 2:
        return register, 1 - 2 * what
    if (op == 0x83 or op == 0x81) and (what == 0 or what == 5):
        by = (np.int64(code[i + 2]) ^ 0x80) - 0x80
        if op == 0x81:
            by = 0
            for k in range(4):
                by |= np.int64(code[i + 2 + k]) << 8 * k
            by = (by ^ 0x80000000) - 0x80000000
        return register, by if what == 0 else -by
    return -1, 0


@inner
def compared(code, at, size):  # type: ignore[no-untyped-def]
    """The registers that an instruction compares, as bits."""
    i, rex = opcode_at(code, at)
    op = np.int64(code[i])
    if i + 1 >= at + size:
        return 0
    mod, reg, rm = _operands(code, i + 1, rex)
    one = 1 << rm if mod == 3 else 0
    if op == 0x39 or op == 0x3B or op == 0x85:
        return one | 1 << reg
    return one if (op == 0x81 or op == 0x83) and reg & 7 == 7 else 0


@inner
def instructions(code, end, pc, insn):  # type: ignore[no-untyped-def]
    """The instructions in the order of addresses; how many. Descriptions stand between instructions."""
    n, at, d = 0, 0, 0
    compares = False  # the instruction before is the JVM's, as a comparison with a word of the thread
    while at < end:
        while d < len(pc) and pc[d] <= at:
            d += 1
        what = x86.decode(code, at, end)
        size, kind = what & 0xFF, what >> 8 & 0xFF
        if size == 0 or (d < len(pc) and at + size > pc[d] and kind != x86.CALL):
            size, kind = 1, x86.OTHER  # data; go on where a description is
            if d < len(pc):
                size = np.int64(pc[d]) - at
            insn[n, I_WEAK] = 1
        else:
            insn[n, I_WEAK] = 1 if kind == x86.JUMP or kind == x86.RET or _weak(code, at, size) else 0
        of_thread = _of_thread(code, at, size)
        if of_thread or (kind == x86.COND and compares):
            insn[n, I_WEAK] = 1
        compares = of_thread or _polls(code, at)
        insn[n, I_OFF], insn[n, I_SIZE], insn[n, I_KIND] = at, size, kind
        insn[n, I_TARGET] = -1
        if kind == x86.JUMP or kind == x86.COND or kind == x86.CALL:
            insn[n, I_TARGET] = at + size + x86.displacement(code, at + size, what)
        insn[n, I_PC] = d
        n += 1
        at += size
    told, over = np.int64(x86.OTHER), False  # by the last instruction of a description; whether a jump lies between
    for i in range(n - 1, -1, -1):
        if i == n - 1 or insn[i, I_PC] != insn[i + 1, I_PC]:
            told, over = x86.OTHER if insn[i, I_WEAK] else insn[i, I_KIND], False
        else:
            kind = insn[i, I_KIND]
            over = over or kind == x86.JUMP or kind == x86.RET or kind == x86.JUMP_IND or kind == x86.FAR
        if over or (insn[i, I_KIND] == x86.COND and told != x86.COND):
            insn[i, I_WEAK] = 1
    return n


@inner
def index_of(insn, n, off):  # type: ignore[no-untyped-def]
    """Which instruction begins at `off`; −1: none."""
    lo, hi = 0, n
    while lo < hi:
        mid = (lo + hi) >> 1
        if insn[mid, I_OFF] < off:
            lo = mid + 1
        else:
            hi = mid
    return lo if lo < n and insn[lo, I_OFF] == off else -1


@inner
def cut(insn, n, base, entries, dead_ends, block_of, block):  # type: ignore[no-untyped-def]
    """Cut behind branches, before their targets, and behind calls that never return. How many."""
    leader = np.zeros(n + 1, np.bool_)
    leader[0] = True
    for e in entries:
        i = index_of(insn, n, e)
        if i >= 0:
            leader[i] = True
    for i in range(n):
        kind = insn[i, I_KIND]
        if kind == x86.CALL:
            k = np.searchsorted(dead_ends, np.uint64(base + insn[i, I_TARGET]))
            if k < len(dead_ends) and dead_ends[k] == np.uint64(base + insn[i, I_TARGET]):
                insn[i, I_KIND] = x86.FAR  # the way ends here
                leader[i + 1] = True
        elif kind != x86.OTHER and kind != x86.CALL_IND:
            leader[i + 1] = True
            if kind == x86.JUMP or kind == x86.COND:
                to = index_of(insn, n, insn[i, I_TARGET])
                if to >= 0:
                    leader[to] = True
    blocks = -1
    for i in range(n):
        if leader[i]:
            blocks += 1
            block[blocks, B_FIRST] = i
        block_of[i] = blocks
        block[blocks, B_LAST] = i
    blocks += 1
    for b in range(blocks):
        last = block[b, B_LAST]
        kind = insn[last, I_KIND]
        goes_on = kind == x86.OTHER or kind == x86.CALL or kind == x86.CALL_IND or kind == x86.COND
        block[b, B_FALL] = b + 1 if goes_on and b + 1 < blocks else -1
        block[b, B_TAKEN] = -1
        if kind == x86.JUMP or kind == x86.COND:
            to = index_of(insn, n, insn[last, I_TARGET])
            if to >= 0:
                block[b, B_TAKEN] = block_of[to]
    return blocks


@inner
def depth_first(block, blocks, starts, order, back):  # type: ignore[no-untyped-def]
    """Depth first from each of `starts`, then from blocks that this does not reach: reverse post-order, and whether the
    edges of a block go back to one on the way to it (bit 0: fall, bit 1: taken). Blocks that nothing leads to come
    first."""
    state = np.zeros(blocks, np.int8)
    stack = np.empty(blocks + 1, np.int64)
    turn = np.zeros(blocks, np.int8)
    at = blocks
    for k in range(len(starts) + blocks):
        root = starts[k] if k < len(starts) else k - len(starts)
        if root < 0 or state[root]:
            continue
        top = 0
        stack[0] = root
        state[root] = 1
        while top >= 0:
            b = stack[top]
            if turn[b] < 2:
                to = block[b, B_FALL + turn[b]]
                if to >= 0 and state[to] == 1:
                    back[b] |= 1 << turn[b]
                turn[b] += 1
                if to >= 0 and state[to] == 0:
                    state[to] = 1
                    top += 1
                    stack[top] = to
            else:
                state[b] = 2
                at -= 1
                order[at] = b
                top -= 1


@inner
def natural_loops(block, blocks, back, pred_at, pred, body, loops):  # type: ignore[no-untyped-def]
    """Natural loops: their headers, and `body[lp, b]`. One a header; how many. Sets each block's innermost."""
    count = 0
    stack = np.empty(blocks + 1, np.int64)
    for u in range(blocks):
        for turn in range(2):
            if not back[u] >> turn & 1:
                continue
            head = block[u, B_FALL + turn]
            lp = -1
            for k in range(count):
                if loops[k, L_HEAD] == head:
                    lp = k
            if lp < 0:
                if count == len(loops):
                    return -1
                lp = count
                count += 1
                loops[lp, L_HEAD] = head
                body[lp, head] = True
            top = 0
            if not body[lp, u]:
                body[lp, u] = True
                stack[0] = u
                top = 1
            while top > 0:
                top -= 1
                b = stack[top]
                for k in range(pred_at[b], pred_at[b + 1]):
                    p = pred[k]
                    if not body[lp, p]:
                        body[lp, p] = True
                        stack[top] = p
                        top += 1
    size = np.zeros(count, np.int64)
    for lp in range(count):
        size[lp] = body[lp].sum()
    for b in range(blocks):
        block[b, B_LOOP] = -1
        for lp in range(count):
            if body[lp, b] and (block[b, B_LOOP] < 0 or size[lp] < size[block[b, B_LOOP]]):
                block[b, B_LOOP] = lp
    for lp in range(count):
        loops[lp, L_UP] = -1
        for k in range(count):
            over = k != lp and body[k, loops[lp, L_HEAD]] and size[k] > size[lp]
            if over and (loops[lp, L_UP] < 0 or size[k] < size[loops[lp, L_UP]]):
                loops[lp, L_UP] = k
    return count
