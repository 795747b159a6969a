"""Where indirect jumps of the JVM's code lead, and returns that the trace gives an address, as far as that is certain.

- Resolver stubs find out where a call is to go and jump there: their jump teaches where the call goes from then on.
- An adapter holds two: into compiled code by JMP R11, into the interpreter by JMP RCX (SharedRuntime::gen_i2c_adapter,
  gen_c2i_adapter, x86); so they lead out of the interpreter, or to one of its method entries.
- Stubs that look a method up in a table jump to its compiled code, or to its adapter (VtableStubs::create_vtable_stub,
  create_itable_stub), never into the interpreter.
- No return leads to the entry of a method: deoptimisation and exceptions, too, return behind calls, or to a stub.
- Calls of the VM load the address of its function right before (MacroAssembler::call), which is where they lead; and it
  returns to the code that has called it: behind a call out of the IP filter tracing comes back to no other.

Where one leads elsewhere the walker has been on a wrong way since some call before: it is a contradiction.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.calls.stubs import RESOLVERS, Stub, stub_of
from jvm.code.changes import Changes
from jvm.code.image import CodeImage
from jvm.code.version import Kind, Version
from jvm.kernels import inner
from stages.pointers import below, excluded, least_at, signed_rows, within
from stages.pt import x86

I64 = NDArray[np.int64]

ANYWHERE, UPDATES_CALL, INTO_COMPILED, EITHER = (np.int64(k) for k in range(4))  # kinds of the jumps in a range
INTO_INTERPRETER, BEHIND_CALL = np.int64(4), np.int64(5)  # EITHER, by JMP RCX; a return
LOADED = np.int64(6)  # a call of the address that has been loaded right before it
PASSES_ON = np.int64(7)  # none: inline-cache stubs
_KNOWN: dict[Stub | None, np.int64] = {
    **dict.fromkeys(RESOLVERS, UPDATES_CALL), **dict.fromkeys((Stub.VTABLE, Stub.ITABLE), INTO_COMPILED),
    Stub.ADAPTER: EITHER, Stub.INLINE_CACHE: PASSES_ON,
}  # fmt: skip


class Jumps(NamedTuple):
    """`ranges`: (n, 3) first address, one past the last, and the kind of the indirect jumps there; ascending, disjoint.
    `interpreter`: (2,) first address, one past the last; equal if it is not known. `entries`: (m,) entries of compiled
    methods, ascending."""

    ranges: I64
    interpreter: I64
    entries: I64


NO_JUMPS = Jumps(np.zeros((0, 3), np.int64), np.zeros(2, np.int64), np.zeros(0, np.int64))


class OfImage:
    """The jumps of the code that was there last. It is asked for as often as code comes, and there may be much: of each
    version is kept, as long as the image keeps it, what it has to do with them."""

    def __init__(self, image: CodeImage) -> None:
        self._changes = Changes(image)
        self._stubs: dict[int, tuple[int, int, int]] = {}  # by version
        self._interpreters: dict[int, tuple[int, int]] = {}
        self._entries: dict[int, tuple[int, int]] = {}
        self._jumps = NO_JUMPS

    def now(self) -> Jumps:
        came, _, kept = self._changes.look()
        for v in came:
            self._take(v)
        if kept is not None:
            for of in (self._stubs, self._interpreters, self._entries):
                for gone in of.keys() - kept:
                    of.pop(gone)
            self._jumps = Jumps(*self._ranges(), _entries(self._entries.values()))
        elif came:
            ranges = self._jumps[:2] if all(v.kind == Kind.NMETHOD for v in came) else self._ranges()
            new = _entries(self._entries[v.id] for v in came if v.id in self._entries)
            self._jumps = Jumps(*ranges, _with(self._jumps.entries, new))
        return self._jumps

    def _ranges(self) -> tuple[I64, I64]:
        ranges: list[tuple[int, int, int]] = []
        for row in sorted(self._stubs.values()):  # one of each that is told twice
            if not ranges or row[0] >= ranges[-1][1]:
                ranges.append(row)
        interpreter = next(reversed(self._interpreters.values()), (0, 0))
        return signed_rows(ranges, 3), signed_rows([interpreter], 2)[0]

    def _take(self, v: Version) -> None:
        if v.kind == Kind.NMETHOD:
            self._entries[v.id] = v.entry, v.verified_entry
        elif v.kind == Kind.INTERPRETER:
            self._interpreters[v.id] = v.start, v.end
        elif (stub := stub_of(v)) in _KNOWN:
            self._stubs[v.id] = v.start, v.end, int(_KNOWN[stub])


def _entries(pairs: Iterable[tuple[int, int]]) -> I64:
    entries = np.unique(np.array([*chain.from_iterable(pairs)], np.uint64))
    return np.trim_zeros(entries, "f").view(np.int64)


def _with(entries: I64, more: I64) -> I64:
    """Both ascend (unsigned), and so do they together."""
    at = np.searchsorted(entries.view(np.uint64), more.view(np.uint64))
    new = np.append(entries, 0)[at] != more
    return np.insert(entries, at[new], more[new])


@inner
def known(ranges, n, here):  # type: ignore[no-untyped-def]
    """The kind of indirect jumps at `here`. `ranges`: the n rows, one after the other."""
    lo, hi = 0, n
    while lo < hi:
        mid = (lo + hi) >> 1
        if below(here, ranges[3 * mid + 1]):
            hi = mid
        else:
            lo = mid + 1
    if lo == n or below(here, ranges[3 * lo]):
        return ANYWHERE
    return ranges[3 * lo + 2]


@inner
def leads(ranges, n, here, buffer, at):  # type: ignore[no-untyped-def]
    """Where the indirect jump at `here` leads, whose bytes are `buffer[at:]`: ANYWHERE, UPDATES_CALL, INTO_COMPILED or
    INTO_INTERPRETER. `ranges`: the n rows, one after the other."""
    what = known(ranges, n, here)
    if what == EITHER:
        what = INTO_INTERPRETER if buffer[at] == 0xFF and buffer[at + 1] == 0xE1 else INTO_COMPILED
    return what


@inner
def fits(what, ip, lo, hi, entries, n):  # type: ignore[no-untyped-def]
    """Whether a jump of kind `what` may lead to `ip`; the interpreter lies in [lo, hi), and there are n entries."""
    if what < INTO_COMPILED or what >= LOADED or lo == hi:
        return True
    if what == BEHIND_CALL and not within(lo, ip, hi):
        at = least_at(entries, n, ip)
        return at == n or entries[at] != ip
    return what == BEHIND_CALL or (what == INTO_INTERPRETER) == within(lo, ip, hi)


@inner
def loaded(code, at, before):  # type: ignore[no-untyped-def]
    """The address that MOV r64, imm64 has put into the register by which `code[at:]` calls; 0: that does not stand
    there. `before`: bytes of the same blob before it."""
    if before < 10 or code[at - 10] >> 1 != 0x24 or code[at - 9] >> 3 != 0x17:  # REX.W(B) B8+r
        return np.int64(0)
    call = at
    if code[at - 10] & 1:  # one of R8 to R15: REX.B
        if code[at] != 0x41:
            return np.int64(0)
        call += 1
    register = code[at - 9] & 7
    if code[call] != 0xFF or code[call + 1] != 0xD0 | register:
        return np.int64(0)
    to = np.int64(0)
    for k in range(8):
        to |= np.int64(code[at - 8 + k]) << 8 * k
    return to


@inner
def behind_call_out(code, at, before, ip, lo, hi):  # type: ignore[no-untyped-def]
    """Whether a call out of the IP filter [lo, hi) may end at `ip`: a CALL rel32 that leads out, or one by a register
    (as VM functions are called, which are far away). `code[at:]` stands at `ip`, with `before` bytes of the same blob
    before it."""
    if before >= 2 and code[at - 2] == 0xFF and code[at - 1] >> 3 == 0x1A:  # CALL r64: FF /2, mod 3 (SDM vol. 2, CALL)
        return lo != hi
    return before >= 5 and code[at - 5] == 0xE8 and excluded(lo, ip + x86.displacement(code, at, 0), hi)
