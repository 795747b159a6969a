"""Which of the known variants of the code the trace fits, where it contradicts what was believed.

The walker follows one state of the code. When a packet contradicts it, `search` walks again from the last packet that
carried an address, instruction by instruction, and at each that may have been another (`stages.flow.variants`) tries
what stands there now first, then the others. Backtracking is chronological: a wrong decode shows within a few packets,
so the last choices before the contradiction are changed first. A way is taken when it has passed the contradiction and
`LOOK` packets more; if all fail, the one that came furthest, if that is at least `LEAST` packets further. What it chose
is the answer: the walker changes its code there and walks the same packets again.

So most choices cost nothing: they are made only where what was believed did not come true.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.flow import x86
from stages.flow.code import CodeWords
from stages.flow.jumps import ANYWHERE, BEHIND_CALL, fits, leads
from stages.flow.memo import bit_length
from stages.flow.raw import addresses, excluded, holder, load64, u8_at, within
from stages.flow.size import full_ip, size_of
from stages.flow.state import NONE
from stages.flow.variants import (
    FAR,
    LAST,
    NEAR,
    ROOM,
    V_FAR,
    V_INSN,
    V_LEARNT,
    V_TARGET,
    VA,
    WINDOW,
    Known,
    variants,
)

I64 = NDArray[np.int64]

LOOK = 16  # packets that a way must go on for
LEAST = 4  # and the one that came furthest
POINTS = 256  # choices that can be taken back
CHOSEN = 16  # choices of one way
ROUNDS = (
    (1, NEAR), (2, NEAR), (1, FAR), (1, LAST), (4, NEAR), (2, FAR), (2, LAST), (4, FAR), (4, LAST), (CHOSEN, FAR),
)  # fmt: skip
"""What is tried one after the other: so many choices at most, so far off in time at most; LAST: with guesses."""
STEPS = 1 << 15  # instructions of a round, from the contradiction on
WAY = 1 << 18  # and up to it, the first time
DEPTH = 64  # return addresses
_PIECE = 1 << 14  # instructions without a packet
_TRANSFERS = 128

# the state of a way
(
    W_POS, W_LAST, W_BITS, W_NEXT, W_IP, W_AT, W_HERE, W_MUST, W_DEPTH, W_OFF, W_CHOSEN, W_INSTRS,
    W_TRANSFERS, W_BEHIND, W_PSB, W_BOUND, W_TRY, W_BASE, W_SIZE,
) = range(19)  # fmt: skip

N_NONE, N_BITS, N_TIP, N_PGD, N_FUP, N_PGE, N_END = range(7)  # the packet that is looked at

# columns of a choice
C_AT, C_ADDRESS, C_LENGTH, C_LEARNT = range(4)
CH = 4


class Choice(NamedTuple):
    """From the packet at `at` on there is `code` at `address`."""

    at: int
    address: int
    code: bytes
    learnt: bool


@inner
def _next(data, end, goal, w):  # type: ignore[no-untyped-def]
    """Look at the next packet that steers: W_NEXT, W_IP (−1: suppressed), W_BITS, W_AT."""
    while True:
        pos = w[W_POS]
        w[W_AT] = pos
        size = size_of(data, pos, NONE) if pos < end else 0
        if size == 0 or pos + size > end:
            w[W_NEXT] = N_END
            return
        b = np.int64(data[pos])
        low = b & 0x1F
        w[W_POS] = pos + size
        seen = N_NONE
        if b & 1 == 0 and b > 2:
            if b >> 1 > 1:
                w[W_BITS] = b >> 1
                seen = N_BITS
        elif low == 0x0D or low == 0x11 or low == 0x01 or low == 0x1D:
            ip = np.int64(-1)
            if b >> 5:
                ip = full_ip(b, load64(data, pos + 1), w[W_LAST])
                w[W_LAST] = ip
            if low == 0x0D:
                seen = N_TIP
            elif low == 0x01:
                seen = N_PGD
            elif low == 0x11:
                seen = N_PGE
            elif w[W_PSB]:
                if ip != -1 and not w[W_OFF]:
                    w[W_MUST] = ip
            elif w[W_BOUND]:
                w[W_BOUND] = 0
            else:
                seen = N_FUP
            w[W_IP] = ip
        elif b == 0x99:
            leaf = np.int64(data[pos + 1])
            if leaf >> 5 == 0 and leaf & 3 != 1:
                seen = N_END
            elif leaf >> 5 == 1 and not w[W_PSB] and not leaf & 2:
                w[W_BOUND] = 1
        elif b == 0x02:
            e = np.int64(data[pos + 1])
            if e == 0x82:
                w[W_LAST] = 0
                w[W_PSB] = 1
            elif e == 0x23:
                w[W_PSB] = 0
            elif e == 0xF3 or e == 0x63:
                seen = N_END
            elif e == 0xA3:
                w[W_BITS] = load64(data, pos) >> 16 & 0xFFFFFFFFFFFF
                if w[W_BITS] > 1:
                    seen = N_BITS
            elif e == 0xE2 or e == 0xB3 or e & 0x9F == 0x92:
                w[W_BOUND] = 1
        if seen != N_NONE:
            w[W_NEXT] = seen
            if pos > goal:
                w[W_BEHIND] += 1
            return


@inner
def _taken(w):  # type: ignore[no-untyped-def]
    """The next TNT bit."""
    n = bit_length(w[W_BITS]) - 2
    bit = w[W_BITS] >> n & 1
    w[W_BITS] = w[W_BITS] & ((np.int64(1) << n) - 1) | np.int64(1) << n
    if n == 0:
        w[W_NEXT] = N_NONE
    return bit


@inner
def _at(w, here):  # type: ignore[no-untyped-def]
    """A packet has led to `here`. Whether it was right that it came: a PSB's address must have been passed."""
    w[W_HERE] = here
    w[W_INSTRS] = w[W_TRANSFERS] = 0
    return w[W_MUST] == 0


@inner
def _push(w, stack, address):  # type: ignore[no-untyped-def]
    if w[W_DEPTH] == DEPTH:
        for k in range(1, DEPTH):
            stack[k - 1] = stack[k]
        w[W_DEPTH] -= 1
        w[W_BASE] = max(w[W_BASE] - 1, 0)
    stack[w[W_DEPTH]] = address
    w[W_DEPTH] += 1


@inner
def _off(w):  # type: ignore[no-untyped-def]
    """A TIP.PGD ends the piece."""
    right = _at(w, np.int64(0))
    w[W_OFF] = 1
    w[W_NEXT] = N_NONE
    return right


@inner
def _inside(code, lo, hi, ip):  # type: ignore[no-untyped-def]
    """Whether an address is in the filter [lo, hi), if there is one, and in known code."""
    return not excluded(lo, ip, hi) and _blob(code, ip) >= 0


@inner
def _blob(code, ip):  # type: ignore[no-untyped-def]
    return holder(code.start, code.end, len(code.start), ip)


@inner
def _asynchronous(data, end, goal, w, code, lo, hi):  # type: ignore[no-untyped-def]
    """The FUP's address has been reached: what came of it."""
    if w[W_MUST] == w[W_HERE]:
        w[W_MUST] = 0
    _next(data, end, goal, w)
    if w[W_NEXT] == N_TIP:
        w[W_NEXT] = N_NONE
        return w[W_IP] == -1 or (_inside(code, lo, hi, w[W_IP]) and _at(w, w[W_IP]))
    if w[W_NEXT] == N_PGD:
        return _off(w)
    return w[W_NEXT] == N_END


@inner
def _step(data, end, goal, w, stack, insn, target, code, lo, hi, led, known):  # type: ignore[no-untyped-def]
    """Execute one instruction, of which it is known where it has `led` (stages.flow.jumps). False: the trace says
    otherwise."""
    what = insn >> 8 & 0xFF
    here = w[W_HERE]
    after = here + (insn & 0xFF)
    w[W_INSTRS] += 1
    if insn & 0xFF == 0 or what == x86.BAD or w[W_INSTRS] > _PIECE:
        return False
    if what == x86.OTHER:
        w[W_HERE] = after
        return True
    if what == x86.JUMP or what == x86.CALL:
        w[W_TRANSFERS] += 1
        if what == x86.CALL and target != after:
            _push(w, stack, after)
        w[W_HERE] = target
        return w[W_TRANSFERS] <= _TRANSFERS and target != here  # a stub's JMP that is not bound yet leads to itself
    seen = w[W_NEXT]
    if what == x86.COND:
        if seen == N_BITS:
            bit = _taken(w)
            return _at(w, target if bit else after)
        out = excluded(lo, target, hi) or excluded(lo, after, hi)
        return seen == N_PGD and out and _off(w)
    if what == x86.CALL_IND:
        _push(w, stack, after)
    if what == x86.RET and seen != N_PGD:  # out of the filter: to a call that was not seen
        popped = np.int64(0)
        if w[W_DEPTH] > 0:
            w[W_DEPTH] -= 1
            popped = stack[w[W_DEPTH]]
        if seen == N_BITS:
            return _taken(w) == 1 and popped != 0 and _at(w, popped)
    if seen == N_TIP:
        w[W_NEXT] = N_NONE
        right = w[W_IP] != -1 and _inside(code, lo, hi, w[W_IP])
        right &= fits(led, w[W_IP], known.interpreter[0], known.interpreter[1], known.doors, len(known.doors))
        return right and _at(w, w[W_IP])
    if seen == N_PGD:
        if what == x86.RET and w[W_DEPTH] > w[W_BASE]:
            return False
        inside = w[W_IP] != -1 and lo != hi and within(lo, w[W_IP], hi)
        return not inside and what != x86.JUMP_IND and _off(w)  # the JVM's jumps stay in its code, its calls do not
    return False


@inner
def _copy(to, of):  # type: ignore[no-untyped-def]
    """`to[:] = of`, which brings with it what says in words that the shapes differ: seconds of compiling."""
    for k in range(len(of)):
        to[k] = of[k]


@kernel
def search(where, end, goal, w, stack, code, lo, hi, known, tsc, slack, most, farthest, log, log_code):  # type: ignore[no-untyped-def]
    """Walk from the state `w`, `stack`, with at most `most` choices, none farther than `farthest`; see above. Fills
    `log`, `log_code`; returns the number of choices, −1: none fits, and how many packets further it came, LOOK if far
    enough. `where`: addresses of data and buffer."""
    data = u8_at(where[0])
    buffer = u8_at(where[1])
    row = W_SIZE + DEPTH
    points = np.empty(POINTS * row, np.int64)
    found = np.empty(ROOM * VA, np.int64)
    n_points = 0
    best, best_chosen = LEAST - 1, -1
    best_log, best_code = np.empty(CHOSEN * CH, np.int64), np.empty(CHOSEN * WINDOW, np.uint8)
    steps, room = 0, WAY
    attempt = 0
    while True:
        right = True
        if w[W_NEXT] == N_NONE:
            _next(data, end, goal, w)
        if w[W_NEXT] == N_END or w[W_BEHIND] >= LOOK or steps >= room:
            if steps < room and w[W_AT] > goal:
                return w[W_CHOSEN], LOOK
            right = False
        elif w[W_OFF]:
            right = w[W_NEXT] == N_PGE and w[W_IP] != -1
            if right:
                w[W_NEXT] = N_NONE
                w[W_OFF] = 0
                if w[W_DEPTH] > 0 and stack[w[W_DEPTH] - 1] == w[W_IP]:
                    w[W_DEPTH] -= 1
                w[W_BASE] = w[W_DEPTH]
                w[W_MUST] = 0
                right = _inside(code, lo, hi, w[W_IP]) and _at(w, w[W_IP])
        elif w[W_NEXT] == N_FUP and w[W_IP] == w[W_HERE]:
            w[W_NEXT] = N_NONE
            right = _asynchronous(data, end, goal, w, code, lo, hi)
        else:
            here = w[W_HERE]
            if w[W_MUST] == here:
                w[W_MUST] = 0
            if excluded(lo, here, hi):
                right = w[W_NEXT] == N_PGD and (w[W_IP] == -1 or w[W_IP] == here) and _off(w)
            else:
                b = _blob(code, here)
                right = b >= 0
                if right:
                    size = min(WINDOW, code.end[b] - here)
                    for c in range(size):
                        buffer[c] = code.code[code.data_at[b] + here - code.start[b] + c]
                    for k in range(w[W_CHOSEN] - 1, -1, -1):  # as this way has it
                        if log[k * CH + C_ADDRESS] == here:
                            for c in range(size):
                                buffer[c] = log_code[k * WINDOW + c]
                            break
                    n = variants(known, here, size, tsc, slack, buffer, found)
                    k = attempt
                    if attempt + 1 < n and w[W_CHOSEN] < most:
                        if n_points == POINTS:  # the oldest is not taken back any more
                            for c in range((POINTS - 1) * row):
                                points[c] = points[c + row]
                            n_points -= 1
                        w[W_TRY] = attempt + 1
                        for c in range(W_SIZE):
                            points[n_points * row + c] = w[c]
                        for c in range(DEPTH):
                            points[n_points * row + W_SIZE + c] = stack[c]
                        n_points += 1
                    if k:
                        m = w[W_CHOSEN]
                        log[m * CH + C_AT], log[m * CH + C_ADDRESS] = w[W_AT], here
                        log[m * CH + C_LENGTH] = found[k * VA + V_INSN] & 0xFF
                        log[m * CH + C_LEARNT] = found[k * VA + V_LEARNT]
                        for c in range(WINDOW):
                            log_code[m * WINDOW + c] = buffer[k * WINDOW + c]
                        w[W_CHOSEN] = m + 1
                        right = found[k * VA + V_FAR] <= farthest
                    steps += 1
                    insn, target = found[k * VA + V_INSN], found[k * VA + V_TARGET]
                    led = BEHIND_CALL if insn >> 8 & 0xFF == x86.RET else ANYWHERE
                    if insn >> 8 & 0xFF == x86.JUMP_IND:
                        led = leads(known.jump, len(known.jump) // 3, here, buffer, k * WINDOW)
                    right = right and _step(data, end, goal, w, stack, insn, target, code, lo, hi, led, known)
        attempt = 0
        if right:
            continue
        if w[W_BEHIND] > best:
            best, best_chosen = w[W_BEHIND], w[W_CHOSEN]
            _copy(best_log, log)
            _copy(best_code, log_code)
        if n_points == 0 or steps >= room:
            if best_chosen > 0:
                _copy(log, best_log)
                _copy(log_code, best_code)
            return best_chosen, best
        if room == WAY:
            steps, room = 0, STEPS
        n_points -= 1
        for c in range(W_SIZE):
            w[c] = points[n_points * row + c]
        for c in range(DEPTH):
            stack[c] = points[n_points * row + W_SIZE + c]
        attempt = w[W_TRY]


class Position(NamedTuple):
    """Where a walk stands behind the packet that ends at `pos`."""

    pos: int
    last_ip: int
    here: int  # 0: tracing is off
    psb: bool  # between PSB and PSBEND
    stack: I64  # return addresses, the youngest last; at most DEPTH
    base: int  # how many there were when tracing came in


class Found(NamedTuple):
    choices: list[Choice]  # in the order of the walk
    reach: int  # packets behind the contradiction, LOOK: far enough


def choose(
    data: NDArray[np.uint8], end: int, goal: int, position: Position, code: CodeWords, limits: tuple[int, int],
    known: Known, tsc: int, slack: int,
) -> Found | None:  # fmt: skip
    """What the code must be for the packets `data[position.pos:end]` to make sense as far as behind the packet at
    `goal`, which contradicts what is in `code`. At least 32 bytes lie behind `end`. `limits`: the IP filter, equal if
    there is none; `tsc`: about when; `slack`: ticks. None: nothing fits."""
    best: Found | None = None
    for most, farthest in ROUNDS:
        w = np.zeros(W_SIZE, np.int64)
        w[W_POS], w[W_LAST], w[W_HERE] = position.pos, position.last_ip, position.here
        w[W_OFF], w[W_PSB] = position.here == 0, position.psb
        w[W_BITS] = 1
        w[W_DEPTH], w[W_BASE] = len(position.stack), position.base
        stack = np.zeros(DEPTH, np.int64)
        stack[: len(position.stack)] = position.stack
        buffer = np.zeros(ROOM * WINDOW, np.uint8)
        log, log_code = np.zeros(CHOSEN * CH, np.int64), np.zeros(CHOSEN * WINDOW, np.uint8)
        n, reach = search(
            addresses(data, buffer), end, goal, w, stack, code, *limits, known, tsc, slack, most, farthest,
            log, log_code,
        )  # fmt: skip
        if n > 0 and (best is None or reach > best.reach):
            rows = log.reshape(CHOSEN, CH)[:n].tolist()
            choices = [
                Choice(at, address % (1 << 64), log_code[k * WINDOW : k * WINDOW + length].tobytes(), bool(learnt))
                for k, (at, address, length, learnt) in enumerate(rows)
            ]
            best = Found(choices, reach)
        if n >= 0 and reach >= LOOK:
            break
    return best
