"""Other contents that may have stood where an instruction is: its bytes before and after each patch that was found
there, and calls to where the trace has shown them to go.

Only a content that decodes otherwise counts (length, kind or target): a patched constant is no variant. A content
belongs to a span of time; of those whose span lies further than `slack` from the time asked for none is offered, and
the nearer come first. Filling (two zeros, INT3, HLT) is no code (jvm.code.diff), so it is never offered.
"""

from __future__ import annotations

import numpy as np

from jvm.calls.call_sites import CALL, JMP
from jvm.kernels import inner
from stages.follow.repair.call_table import ANY, VTABLE
from stages.follow.repair.known import MAX_PATCH, WINDOW, first
from stages.pointers import below, within
from stages.pt import x86

MOST = 24  # candidates for one instruction, with its present content
ROOM = 64  # for candidates
_TOUCHING = 24  # patches of one instruction, and around it, that are looked at: the last ones
_BANG = np.array([0x89, 0x84, 0x24, 0, 0], np.uint8)
_NOP = np.array([0x0F, 0x1F, 0x44, 0, 0], np.uint8)
"""The bytes that a jump over a verified entry has replaced: the first five of the seven bytes of MOV [RSP + disp32],
EAX, the stack's check, or of SUB RSP, imm32 (MacroAssembler::verified_entry, x86), the last of which is then 0xFF or 0;
else five bytes that do not steer, as in wrappers of native methods."""
EXACT = 50  # the trace's own times are that much more exact than the code image's
MADE = 10  # a call leads to the stub that was made for it after that part of `slack` at most
FOREVER = np.int64((1 << 63) - 1)
LAST = np.int64(1 << 62)
"""The distance of the last resort: which of several methods of one name it is, the trace hardly shows."""

# Numba compiles a function once more for each plain number that it is called with; for these it does not.
_NOW, _SOON, _LATER, NEAR = (np.int64(k) for k in range(4))  # not off in time
FAR = np.int64(LAST - 1)
_READ, _INFERRED = np.int64(0), np.int64(1)
_CALL, _JMP = np.int64(CALL), np.int64(JMP)
_ANY, _UNVERIFIED = np.int64(0), np.int64(1)  # whether a call checks the receiver
_ROW = np.int64(0)
_FRESH, _FREE, _OTHERS, _SAME = (np.int64(k) for k in range(4))  # stubs of tables, by which callees led there

# columns of a variant
V_INSN, V_TARGET, V_FAR, V_INFERRED = range(4)
VA = 4


@inner
def read(buffer, at, here, size):  # type: ignore[no-untyped-def]
    """(instruction as x86.decode says, target of a direct branch): the `size` bytes at `buffer[at]`, code at `here`."""
    insn = x86.decode(buffer, at, at + size)
    what = insn >> 8 & 0xFF
    after = here + (insn & 0xFF)
    target = after
    if what == x86.JUMP or what == x86.CALL or what == x86.COND:
        target = after + x86.displacement(buffer, at + (insn & 0xFF), insn)
    opcode = np.int64(buffer[at])
    if opcode == 0xCC or opcode == 0xF4 or (opcode == 0 and size > 1 and buffer[at + 1] == 0):
        insn = insn & 0xFF | x86.BAD << 8
    return insn, target


@inner
def _candidate(found, n, far, inferred):  # type: ignore[no-untyped-def]
    """Row n of the buffer is one. Returns how many there are; the last row is never one, so it can be written."""
    found[n * VA + V_FAR], found[n * VA + V_INFERRED] = far, inferred
    return min(n + 1, ROOM - 1)


@inner
def _branch(buffer, found, n, here, opcode, to, far):  # type: ignore[no-untyped-def]
    """A candidate: a direct CALL (E8) or JMP (E9) that was not read, if it reaches."""
    distance = to - (here + 5)
    if not -(1 << 31) <= distance < 1 << 31:
        return n
    at = n * WINDOW
    for c in range(5, WINDOW):
        buffer[at + c] = buffer[c]
    buffer[at] = opcode
    for c in range(4):
        buffer[at + 1 + c] = distance >> 8 * c & 0xFF
    return _candidate(found, n, far, _INFERRED)


@inner
def _sift(known, buffer, found, candidates, here, size, tsc):  # type: ignore[no-untyped-def]
    """Keep the first row, and of the others those that decode to something new. Returns how many are left. A call is as
    far off as its target."""
    n = 0
    for row in range(candidates):
        insn, target = read(buffer, row * WINDOW, here, size)
        far, inferred = found[row * VA + V_FAR], found[row * VA + V_INFERRED]
        if row and (insn & 0xFF == 0 or insn >> 8 & 0xFF == x86.BAD):
            continue
        if row and insn >> 8 & 0xFF == x86.CALL and far < LAST:
            if known.inline.n and within(known.inline.at[0], target, known.inline.at[1]):
                far = LAST  # it is the same to call the target behind it, and that is better known
            p = first(known.entry_point, target)
            if p < known.entry_point.n and known.entry_point.at[p] == target:
                far = max(far, known.opens.at[p] - tsc, tsc - known.closes.at[p])
        same = 0
        while same < n and (found[same * VA + V_INSN] != insn or found[same * VA + V_TARGET] != target):
            same += 1
        if same < n:
            if same:
                found[same * VA + V_FAR] = min(found[same * VA + V_FAR], far)
            continue
        if n <= MOST:
            for c in range(WINDOW):
                buffer[n * WINDOW + c] = buffer[row * WINDOW + c]
            found[n * VA + V_INSN], found[n * VA + V_TARGET] = insn, target
            found[n * VA + V_FAR], found[n * VA + V_INFERRED] = far, inferred
            n += 1
    return n


@inner
def _sort(buffer, found, n):  # type: ignore[no-untyped-def]
    """By distance in time, the first left alone."""
    for i in range(2, n):
        k = i
        while k > 1 and found[k * VA + V_FAR] < found[(k - 1) * VA + V_FAR]:
            for c in range(VA):
                found[k * VA + c], found[(k - 1) * VA + c] = found[(k - 1) * VA + c], found[k * VA + c]
            for c in range(WINDOW):
                kept = buffer[k * WINDOW + c]
                buffer[k * WINDOW + c] = buffer[(k - 1) * WINDOW + c]
                buffer[(k - 1) * WINDOW + c] = kept
            k -= 1


@inner
def candidates(known, here, size, tsc, slack, buffer, found):  # type: ignore[no-untyped-def]
    """All that the instruction at `here` may be. `buffer[:WINDOW]` is its present content, `size` bytes of it known.

    Fills `buffer[k * WINDOW:]` and row k of `found`; returns how many, at least one: the first is the present content;
    at most MOST. Both have ROOM rows.
    """
    n = _candidate(found, _ROW, _NOW, _READ)
    opcode = np.int64(buffer[0]) if size >= 5 else 0
    to = here + 5
    for c in range(4):
        to += np.int64(buffer[1 + c]) << 8 * c
    if buffer[4] & 0x80:
        to -= 1 << 32
    settled = False
    entered = first(known.entry, here)
    if known.refusal.n and size >= 5 and entered < known.entry.n and known.entry.at[entered] == here:
        refusal = opcode == _JMP and to == known.refusal.at[0]
        if not refusal:
            n = _branch(buffer, found, n, here, _JMP, known.refusal.at[0], _LATER)
        settled = known.refused.at[entered] < tsc - slack // EXACT  # for good
        if refusal and size >= 7 and not settled:
            seven = buffer[6] == 0xFF or buffer[6] == 0
            for c in range(WINDOW):
                five = _BANG[c % 5] if seven else _NOP[c % 5]
                buffer[n * WINDOW + c] = five if c < 5 else buffer[c]
            n = _candidate(found, n, _LATER, _INFERRED)
    if not settled:
        n = _others(known, here, size, opcode, tsc, slack, buffer, found, n)
    n = _sift(known, buffer, found, n, here, size, tsc)
    _sort(buffer, found, n)
    return n


@inner
def _others(known, here, size, opcode, tsc, slack, buffer, found, n):  # type: ignore[no-untyped-def]
    """The contents read, resolved or chosen here, and the callees by the bytecode."""
    n = _patches(known, here, tsc, slack, buffer, found, n)
    if size >= 5:
        p = first(known.resolved, here)
        while p < known.resolved.n and known.resolved.at[p] == here:
            opcode_ = _JMP if known.branch.at[2 * p + 1] else _CALL
            n = _branch(buffer, found, n, here, opcode_, known.branch.at[2 * p], _LATER)
            p += 1
        p = first(known.unpatched, here)
        while p < known.unpatched.n and known.unpatched.at[p] == here:
            far = tsc - known.unpatched_until.at[p]
            if far <= slack:
                n = _branch(buffer, found, n, here, _JMP, known.unpatched_to.at[p], max(far, _LATER))
            p += 1
        p = first(known.waiting, here)
        if opcode == _JMP and p < known.waiting.n and known.waiting.at[p] == here:
            for c in range(WINDOW):
                buffer[n * WINDOW + c] = known.waiting_content.at[p * WINDOW + c]
            n = _candidate(found, n, _LATER, _INFERRED)
    p = first(known.place, here)
    while p < known.place.n and known.place.at[p] == here:
        for c in range(WINDOW):
            buffer[n * WINDOW + c] = known.content.at[p * WINDOW + c]
        n = _candidate(found, n, _SOON, _READ)
        p += 1
    if opcode == _CALL:
        n = _callees(known, here, tsc, slack, buffer, found, n)
    elif opcode == _JMP:
        p = first(known.calls.jump, here)
        if p < known.calls.jump.n and known.calls.jump.at[p] == here:
            n = _adapters(known.calls, known.calls.jump_callee.at[p], _ANY, here, opcode, buffer, found, n)
    return n


@inner
def _patches(known, here, tsc, slack, buffer, found, n):  # type: ignore[no-untyped-def]
    """The contents before and after each patch that was found here."""
    lo = first(known.address, here - MAX_PATCH if below(MAX_PATCH, here) else np.int64(0))
    hi = first(known.address, here + WINDOW - 1)
    if lo == hi:
        return n
    those = np.empty(_TOUCHING, np.int64)
    m = 0
    for p in range(lo, hi):  # the last ones, in order of time
        if not below(here, known.address.at[p] + known.size.at[p]):
            continue
        if m == _TOUCHING:
            if known.order.at[p] < known.order.at[those[0]]:
                continue
            for k in range(1, m):
                those[k - 1] = those[k]
            m -= 1
        k = m
        while k > 0 and known.order.at[those[k - 1]] > known.order.at[p]:
            those[k] = those[k - 1]
            k -= 1
        those[k] = p
        m += 1
    state = np.empty(WINDOW, np.uint8)
    for c in range(WINDOW):
        state[c] = buffer[c]
    for k in range(m - 1, -1, -1):
        _overlay(state, here, known, those[k], known.old_at.at[those[k]])
    for k in range(m + 1 if m else 0):
        if k:
            _overlay(state, here, known, those[k - 1], known.new_at.at[those[k - 1]])
        begins = known.before.at[those[k - 1]] if k else np.int64(0)
        ends = known.after.at[those[k]] if k < m else FOREVER
        far = max(begins - tsc, tsc - ends, 0)
        if far <= slack:
            for c in range(WINDOW):
                buffer[n * WINDOW + c] = state[c]
            n = _candidate(found, n, far, _READ)
    return n


@inner
def _callees(known, here, tsc, slack, buffer, found, n):  # type: ignore[no-untyped-def]
    """The targets that a Java call at `here` may have by its bytecode."""
    calls = known.calls
    p = first(calls.site, here)
    if p == calls.site.n or calls.site.at[p] != here:
        return n
    if calls.stub.at[p]:
        n = _branch(buffer, found, n, here, _CALL, calls.stub.at[p], _SOON)
    for k in range(known.resolver.n):
        if (k == 2) == (calls.checked.at[p] != 0):
            n = _branch(buffer, found, n, here, _CALL, known.resolver.at[k], NEAR)
    callee, checked = calls.callee.at[p], calls.checked.at[p]
    if callee < 0:
        return n
    name, owner = calls.name.at[callee], calls.owner.at[callee]
    kind, declared = calls.kind.at[callee], calls.declared.at[callee]
    begin = first(calls.entry_name, name)
    end = first(calls.entry_name, name + 1)
    own = kind != ANY
    for e in range(begin, end):
        own = own or calls.holder.at[e] == owner or calls.holder.at[e] == declared
    for guess in range(2 if kind >= VTABLE or not own else 1):
        for e in range(begin, end):
            to = calls.unverified.at[e] if checked else calls.verified.at[e]
            guessed = calls.holder.at[e] != owner and calls.holder.at[e] != declared
            if to and guessed == guess and _stands(calls.since.at[e], calls.until.at[e], tsc, slack):
                n = _branch(buffer, found, n, here, _CALL, to, LAST if guess else NEAR)
    if checked:
        n = _adapters(calls, callee, _UNVERIFIED, here, _CALL, buffer, found, n)
        begin, end = first(calls.led_callee, callee), first(calls.led_callee, callee + 1)
        for q in range(begin, end):
            n = _branch(buffer, found, n, here, _CALL, calls.led.at[q], NEAR)
        if begin == end:
            n = _tables(calls, owner, kind, _FRESH, here, tsc, slack, buffer, found, n)
            for q in range(first(calls.namesake, name), first(calls.namesake, name + 1)):
                n = _branch(buffer, found, n, here, _CALL, calls.namesake_led.at[q], FAR)
            for claim in range(_FREE, _SAME + 1):
                n = _tables(calls, owner, kind, claim, here, tsc, slack, buffer, found, n)
    return n


@inner
def _tables(calls, owner, kind, claim, here, tsc, slack, buffer, found, n):  # type: ignore[no-untyped-def]
    """Stubs that look a method up in a table, of which none is known to be that of the callee. A stub that nothing has
    led to yet and that has just been made was made for a call (CompiledIC::set_to_megamorphic): as likely as not this
    call. Methods of one class have different places in its table; interfaces may inherit some from others."""
    for t in range(calls.table.n):
        table, made = calls.table.at[t], calls.table_made.at[t]
        if calls.table_kind.at[t] != kind or not _stands(made, calls.table_until.at[t], tsc, slack):
            continue
        begin, end = first(calls.claimed, table), first(calls.claimed, table + 1)
        is_ = _FREE if begin == end else _OTHERS
        for q in range(begin, end):
            if calls.claim.at[q] == owner:
                is_ = _SAME
        fresh = is_ == _FREE and -slack // EXACT <= tsc - made <= slack // MADE
        if (fresh if claim == _FRESH else is_ == claim) and not (is_ == _SAME and kind == VTABLE):
            n = _branch(buffer, found, n, here, _CALL, table, FAR if fresh else LAST)
    return n


@inner
def _stands(since, until, tsc, slack):  # type: ignore[no-untyped-def]
    return since - slack <= tsc <= until + slack


@inner
def _adapters(calls, callee, checked, here, opcode, buffer, found, n):  # type: ignore[no-untyped-def]
    """The adapters to the interpreter that are known for the arguments of `callee`."""
    key = 2 * calls.arguments.at[callee] + checked
    for p in range(first(calls.adapter_key, key), first(calls.adapter_key, key + 1)):
        n = _branch(buffer, found, n, here, opcode, calls.adapter.at[p], NEAR)
    return n


@inner
def _overlay(state, here, known, p, begin):  # type: ignore[no-untyped-def]
    """Put the bytes of patch `p`, in `known.code` from `begin` on, where they lie in the window `state` at `here`."""
    for c in range(known.size.at[p]):
        place = known.address.at[p] + c - here
        if 0 <= place < WINDOW:
            state[place] = known.code.at[begin + c]
