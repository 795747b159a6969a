"""Which of the known candidates of the code the trace fits, where it contradicts the believed one.

The walker follows one state of the code. When a packet contradicts it, `search` walks again from the last packet that
carried an address, instruction by instruction, and at each that may have been another
(`stages.follow.repair.candidates`) tries the present content first, then the others. Backtracking is chronological: a
wrong decode shows within a few packets, so the last choices before the contradiction are changed first. A way is taken
when it has passed the contradiction and `LOOK` packets more; if all fail, the way that came furthest, if that is at
least `LEAST` packets further. Its choices are the answer: the walker changes its code there and walks the same packets
again.

So most choices cost nothing: they are made only where a belief did not come true.

The way up to the contradiction may be long (a loop writes bits only, no address), and how many ways there are is not
known before. So each instruction and its candidates are looked up once and remembered for all rounds; they begin where
the first one had its first choice; and all of a search together has a limit (`Effort`).
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.calls.call_sites import CALL_SIZE
from jvm.kernels import inner, kernel
from stages.follow.code.code_copy import CodeWords
from stages.follow.code.jumps import ANYWHERE, BEHIND_CALL, INTO_COMPILED, UPDATES_CALL, behind_call_out, leads, loaded
from stages.follow.repair.call_table import names_other
from stages.follow.repair.candidates import (
    FAR,
    LAST,
    NEAR,
    ROOM,
    V_FAR,
    V_INFERRED,
    V_INSN,
    V_TARGET,
    VA,
    candidates,
)
from stages.follow.repair.effort import EFFORT, LOOKED_UP, Effort
from stages.follow.repair.known import WINDOW, raw_known
from stages.follow.repair.versions import returns_to_other
from stages.follow.repair.way import (
    N_END,
    N_FUP,
    N_NONE,
    N_PGD,
    N_PGE,
    N_TIP,
    W_AT,
    W_BASE,
    W_BEHIND,
    W_BITS,
    W_CALLED,
    W_CHOSEN,
    W_DEPTH,
    W_HERE,
    W_IP,
    W_LAST,
    W_MUST,
    W_NEXT,
    W_OFF,
    W_POS,
    W_PSB,
    W_SIZE,
    W_TRY,
    WAY_SIZE,
    Ground,
    arrive,
    asynchronous,
    inside,
    leave,
    look,
    step,
)
from stages.pointers import addresses, excluded, holder, i64_at, u8_at
from stages.pt import x86

I64 = NDArray[np.int64]

LOOK = 16  # packets that a way must go on for
LEAST = 4  # and the way that came furthest
POINTS = 256  # choices that can be taken back
CHOSEN = 16  # choices of one way
ROUNDS = (
    (1, NEAR), (2, NEAR), (1, FAR), (1, LAST), (4, NEAR), (2, FAR), (2, LAST), (4, FAR), (4, LAST), (CHOSEN, FAR),
)  # fmt: skip
"""The rounds, one after the other: so many choices at most, so far off in time at most; LAST: with guesses."""
STEPS = 1 << 15  # instructions of a round, from the contradiction on
REMEMBERED = 1 << 12  # instructions

# columns of a remembered instruction
R_ADDRESS, R_INSN, R_TARGET, R_VARIANTS = range(4)
RE = 4

# columns of a choice
C_AT, C_ADDRESS, C_LENGTH, C_INFERRED = range(4)
CH = 4


class Choice(NamedTuple):
    """From the packet at `at` on there is `code` at `address`."""

    at: int
    address: int
    code: bytes
    inferred: bool


@inner
def _copy(to, of, n):  # type: ignore[no-untyped-def]
    for k in range(n):
        to[k] = of[k]


@inner
def _chosen(w, log, here):  # type: ignore[no-untyped-def]
    """Which choice of this way stands at `here`; −1: none."""
    k = w[W_CHOSEN] - 1
    while k >= 0 and log[k * CH + C_ADDRESS] != here:
        k -= 1
    return k


@kernel
def search(where, columns, end, goal, blobs, lo, hi, tsc, slack, most, farthest, remembered):  # type: ignore[no-untyped-def]
    """Walk on a way, with at most `most` choices, none farther than `farthest`; see above. Fills `log`, `log_code`;
    returns the number of choices, −1: none fits, and how many packets further it came, LOOK if far enough.

    `where`: addresses of the data, the code's blobs (their starts, ends, where the bytes of each begin, and the bytes),
    the way (WAY_SIZE,), the way as it was at the first choice, which is set if its W_POS is −1, `remembered` rows of
    RE, a power of two, that are kept between rounds, `log` (CHOSEN · CH,), `log_code` (CHOSEN · WINDOW,), `effort`
    (1,): the budget left, and the search ends when that is used up; room for `candidates`, for points, and for the best
    log and its code. `columns`: `Known.raw()`."""
    known = raw_known(columns)
    data = u8_at(where[0])
    code = CodeWords(i64_at(where[1]), i64_at(where[2]), i64_at(where[3]), u8_at(where[4]))
    w, stack, begun, memory = i64_at(where[5]), i64_at(where[5] + 8 * W_SIZE), i64_at(where[6]), i64_at(where[7])
    log, log_code, effort = i64_at(where[8]), u8_at(where[9]), i64_at(where[10])
    g = Ground(
        code.start, code.end, blobs, lo, hi, known.interpreter.at[0], known.interpreter.at[1], known.method_entries.at,
        known.method_entries.n,
    )  # fmt: skip
    mask = remembered - 1
    spent, limit = np.int64(0), effort[0]
    buffer, found, points = u8_at(where[11]), i64_at(where[12]), i64_at(where[13])
    n_points = 0
    best, best_chosen = LEAST - 1, -1
    best_log, best_code = i64_at(where[14]), u8_at(where[15])
    steps, room = 0, EFFORT
    attempt = w[W_TRY]
    while True:
        right = True
        over = steps >= room or spent >= limit
        if w[W_NEXT] == N_NONE:
            look(data, end, goal, w)
        if w[W_NEXT] == N_END or w[W_BEHIND] >= LOOK or over:
            if not over and w[W_AT] > goal:
                effort[0] -= spent
                return w[W_CHOSEN], LOOK
            right = False
        elif w[W_OFF]:
            right = w[W_NEXT] == N_PGE and w[W_IP] != -1
            if right:
                w[W_NEXT] = N_NONE
                w[W_OFF] = 0
                right = inside(g, w[W_IP])
                if w[W_DEPTH] > 0 and stack[w[W_DEPTH] - 1] == w[W_IP]:
                    w[W_DEPTH] -= 1
                elif w[W_DEPTH] > 0 and w[W_CALLED] and right:
                    b = holder(g.start, g.end, g.blobs, w[W_IP])
                    before = w[W_IP] - code.start[b]
                    right = not behind_call_out(code.code, code.data_at[b] + before, before, w[W_IP], lo, hi)
                w[W_BASE] = w[W_DEPTH]
                w[W_MUST] = 0
                right = right and arrive(w, w[W_IP])
        elif w[W_NEXT] == N_FUP and w[W_IP] == w[W_HERE]:
            w[W_NEXT] = N_NONE
            right = asynchronous(data, end, goal, w, g)
        else:
            here = w[W_HERE]
            if w[W_MUST] == here:
                w[W_MUST] = 0
            if excluded(lo, here, hi):
                right = w[W_NEXT] == N_PGD and (w[W_IP] == -1 or w[W_IP] == here) and leave(w)
                w[W_CALLED] = 1
            else:
                steps += 1
                m = (here & mask) * RE
                chosen = _chosen(w, log, here)
                led = ANYWHERE
                if attempt == 0 and chosen < 0 and memory[m + R_ADDRESS] == here:
                    spent += 1
                    insn, target, n = memory[m + R_INSN], memory[m + R_TARGET], memory[m + R_VARIANTS]
                else:
                    spent += LOOKED_UP
                    insn, target, n = np.int64(0), np.int64(0), np.int64(0)
                    b = holder(g.start, g.end, g.blobs, here)
                    right = b >= 0
                    if right:
                        size = min(WINDOW, code.end[b] - here)
                        for c in range(size):
                            buffer[c] = code.code[code.data_at[b] + here - code.start[b] + c]
                        if chosen >= 0:
                            for c in range(size):
                                buffer[c] = log_code[chosen * WINDOW + c]
                        n = candidates(known, here, size, tsc, slack, buffer, found)
                        insn, target = found[attempt * VA + V_INSN], found[attempt * VA + V_TARGET]
                        if insn >> 8 & 0xFF == x86.JUMP_IND:
                            led = leads(known.jump.at, known.jump.n // 3, here, buffer, attempt * WINDOW)
                        elif attempt == 0 and chosen < 0:
                            memory[m + R_ADDRESS], memory[m + R_INSN], memory[m + R_TARGET] = here, insn, target
                            memory[m + R_VARIANTS] = n
                if attempt + 1 < n and begun[W_POS] < 0:
                    for c in range(WAY_SIZE):
                        begun[c] = w[c]
                if attempt + 1 < n and w[W_CHOSEN] < most:
                    if n_points == POINTS:  # the oldest is not taken back any more
                        for c in range((POINTS - 1) * WAY_SIZE):
                            points[c] = points[c + WAY_SIZE]
                        n_points -= 1
                    for c in range(WAY_SIZE):
                        points[n_points * WAY_SIZE + c] = w[c]
                    points[n_points * WAY_SIZE + W_TRY] = attempt + 1
                    n_points += 1
                if attempt:
                    m = w[W_CHOSEN]
                    log[m * CH + C_AT], log[m * CH + C_ADDRESS] = w[W_AT], here
                    log[m * CH + C_LENGTH] = insn & 0xFF
                    log[m * CH + C_INFERRED] = found[attempt * VA + V_INFERRED]
                    for c in range(WINDOW):
                        log_code[m * WINDOW + c] = buffer[attempt * WINDOW + c]
                    w[W_CHOSEN] = m + 1
                    right = found[attempt * VA + V_FAR] <= farthest
                if insn >> 8 & 0xFF == x86.RET:
                    led = BEHIND_CALL
                    if w[W_NEXT] == N_TIP and w[W_DEPTH] > 0:
                        right = right and not returns_to_other(known, stack[w[W_DEPTH] - 1], w[W_IP])
                if right and insn >> 8 & 0xFF == x86.CALL_IND and w[W_NEXT] == N_PGD and w[W_IP] != -1:
                    b = holder(g.start, g.end, g.blobs, here)
                    to = loaded(code.code, code.data_at[b] + here - code.start[b], here - code.start[b])
                    right = to == 0 or to == w[W_IP]
                finds = led == UPDATES_CALL or led == INTO_COMPILED
                if right and finds and w[W_NEXT] == N_TIP and w[W_DEPTH] > 0:
                    call = stack[w[W_DEPTH] - 1] - CALL_SIZE
                    right = not names_other(known.calls, call, w[W_IP], tsc, slack)
                right = right and step(w, stack, insn, target, led, g)
        attempt = 0
        if right:
            continue
        if w[W_BEHIND] > best:
            best, best_chosen = w[W_BEHIND], w[W_CHOSEN]
            _copy(best_log, log, CHOSEN * CH)
            _copy(best_code, log_code, CHOSEN * WINDOW)
        if n_points == 0 or over:
            if best_chosen > 0:
                _copy(log, best_log, CHOSEN * CH)
                _copy(log_code, best_code, CHOSEN * WINDOW)
            effort[0] -= spent
            return best_chosen, best
        if room == EFFORT:
            steps, room = 0, STEPS
        n_points -= 1
        for c in range(WAY_SIZE):
            w[c] = points[n_points * WAY_SIZE + c]
        attempt = w[W_TRY]
        w[W_TRY] = 0


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
    columns: I64, tsc: int, slack: int, effort: Effort,
) -> Found | None:  # fmt: skip
    """The code with which the packets `data[position.pos:end]` make sense as far as behind the packet at `goal`, which
    contradicts `code` as it is. At least 32 bytes lie behind `end`. `limits`: the IP filter, equal if there is none;
    `columns`: `Known.raw()`; `tsc`: about when; `slack`: ticks. None: nothing fits, or `effort` is over."""
    best: Found | None = None
    start = np.zeros(WAY_SIZE, np.int64)
    start[W_POS], start[W_LAST], start[W_HERE] = position.pos, position.last_ip, position.here
    start[W_OFF], start[W_PSB] = position.here == 0, position.psb
    start[W_BITS] = 1
    start[W_DEPTH], start[W_BASE] = len(position.stack), position.base
    start[W_SIZE : W_SIZE + len(position.stack)] = position.stack
    w, begun = np.empty(WAY_SIZE, np.int64), np.full(WAY_SIZE, -1, np.int64)
    memory = np.zeros(REMEMBERED * RE, np.int64)
    log, log_code = np.zeros(CHOSEN * CH, np.int64), np.zeros(CHOSEN * WINDOW, np.uint8)
    room = (
        np.zeros(ROOM * WINDOW, np.uint8), np.empty(ROOM * VA, np.int64), np.empty(POINTS * WAY_SIZE, np.int64),
        np.empty_like(log), np.empty_like(log_code),
    )  # fmt: skip
    where = addresses(
        data, code.start, code.end, code.data_at, code.code, w, begun, memory, log, log_code, effort.left, *room
    )
    for most, farthest in ROUNDS:
        w[:] = begun if begun[W_POS] >= 0 else start
        log[:], log_code[:] = 0, 0
        n, reach = search(where, columns, end, goal, len(code.start), *limits, tsc, slack, most, farthest, REMEMBERED)
        if n > 0 and (best is None or reach > best.reach):
            rows = log.reshape(CHOSEN, CH)[:n].tolist()
            choices = [
                Choice(at, address % (1 << 64), log_code[k * WINDOW : k * WINDOW + length].tobytes(), bool(inferred))
                for k, (at, address, length, inferred) in enumerate(rows)
            ]
            best = Found(choices, reach)
        if (n >= 0 and reach >= LOOK) or effort.over() or begun[W_POS] < 0:  # there is nothing to choose
            break
    return best
