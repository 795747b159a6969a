"""The calls of compiled code: where they are, the callee by the bytecode, and the stub each has of its own.

A Java call is a CALL rel32 whose return address is described by a bci with an invoke instruction. It may lead to a
resolver stub (not bound yet), to a compiled entry, to a stub of its own that loads the callee and jumps to the
interpreter's adapter (`MOV RBX, Method*; JMP rel32`: CompiledDirectStaticCall::emit_to_interp_stub), or, where the
receiver is looked at, to inline-cache, vtable and itable stubs. The JVM moves it between them as it likes, but the
callee's name stays.

C1 writes one such stub for each call, C2 for each call that does not look at the receiver, both in the order of the
calls (LIR_Assembler::emit_call; x86.ad, Java_Static_Call). Since JDK 20 (JDK-8280481) calls of one method that cannot
be overridden share one; those stand behind the others, in the order of addresses in the compiler's memory
(emit_shared_stubs_to_interp): rather that in which it met the methods, so that is a guess. Where the numbers differ it
is not known which call each belongs to. A call that checks the receiver never goes there
(CompiledIC::set_to_monomorphic): to the interpreter it goes through the adapter's entry that checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.class_file import Invoked
from jvm.bytecode.classes import Classes
from jvm.code.debug_info import DebugInfo
from jvm.code.sites import SiteKind

CALL, JMP = 0xE8, 0xE9  # rel32
CALL_SIZE = 5
STUB_JUMP = 10  # where in such a stub its JMP is
_STUB_SIZE = 15
INLINE_CACHE = 10  # bytes before the CALL: MOV RAX, imm64 (the cached class)
LOAD_CLASS = b"\x48\xb8"  # its first


class Call(NamedTuple):
    offset: int  # of the CALL
    callee: Invoked | None  # None: the bytecode is not known
    checked: bool  # at the receiver: it goes to entries that check it
    stub: int  # offset of the stub of its own that it may go to, −1: none known


class Calls(NamedTuple):
    calls: list[Call]  # ascending
    stubs: list[int]  # offsets, ascending: all, also if it is not known to which call each belongs
    whole: bool  # the bytecode of all methods was known


def calls(
    code: NDArray[np.uint8], start: int, debug: DebugInfo, kind: SiteKind, classes: Classes,
    java: Callable[[int], bool], shared: bool = False,
) -> Calls:  # fmt: skip
    """Of an nmethod of this kind at `start`. `java`: whether an address is where Java calls go; `shared`: calls of one
    method may share a stub."""
    at, index = sites(code, debug)
    found: list[Call] = []
    places: list[int] = []
    whole = True
    for offset, i, target in zip(at.tolist(), index.tolist(), targets(code, start, at).tolist(), strict=True):
        frame = int(debug.frame_at[i])
        if frame == int(debug.frame_at[i + 1]) or not java(target):
            continue
        method = int(debug.method[frame])
        known = classes.knows(method)
        whole &= known
        callee = classes.invoked(method, int(debug.bci[frame]))
        if callee is not None or not known:
            ic = offset - INLINE_CACHE
            checked = ic >= 0 and code[ic : ic + len(LOAD_CLASS)].tobytes() == LOAD_CLASS
            found.append(Call(offset, callee, checked, -1))
            places.append(i)
    stubs = _stubs(code, found[-1].offset + CALL_SIZE if found else len(code))
    own = [k for k, call in enumerate(found) if kind != SiteKind.C2 or not call.checked]
    number = {k: n for n, k in enumerate(own)}
    if shared:
        number = _shared(found, own, [_place(debug, i) for i in places], classes)
    if len(set(number.values())) == len(stubs):
        for k, n in number.items():
            found[k] = found[k]._replace(stub=-1 if found[k].checked else stubs[n])
    return Calls(found, stubs, whole)


def _shared(found: list[Call], own: list[int], places: list[tuple[int, ...]], classes: Classes) -> dict[int, int]:
    """Which stub each of the calls `own` has, by number. `places`: of the calls, in the order of bytecode."""
    of: dict[object, list[int]] = {}
    alone = []
    for k in own:
        callee = found[k].callee
        declared = classes.declared(callee) if callee is not None else None
        if callee is not None and declared is not None and declared.bound:
            of.setdefault((declared.holder, callee.name, callee.descriptor), []).append(k)
        else:
            alone.append(k)
    groups = [[k] for k in alone] + sorted(of.values(), key=lambda calls: min(places[k] for k in calls))
    return {k: n for n, calls in enumerate(groups) for k in calls}


def _place(debug: DebugInfo, pc: int) -> tuple[int, ...]:
    """Bytecode indices, of the outermost frame first."""
    return tuple(debug.bci[int(debug.frame_at[pc]) : int(debug.frame_at[pc + 1])][::-1].tolist())


def sites(code: NDArray[np.uint8], debug: DebugInfo) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All described CALL rel32: (n,) offsets, ascending, and (n,) which pc is behind each."""
    index = np.flatnonzero((debug.pc >= CALL_SIZE) & (debug.pc <= len(code)))
    index = index[code[debug.pc[index] - CALL_SIZE] == CALL]
    at, first = np.unique(debug.pc[index].astype(np.int64) - CALL_SIZE, return_index=True)
    return at, index[first].astype(np.int64)


def targets(code: NDArray[np.uint8], start: int, offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """(n,) where the CALLs, or JMPs, rel32 at these offsets lead, code at `start`."""
    if not len(offsets):
        return np.zeros(0, np.uint64)
    words = np.ndarray(len(code) - 3, "<i4", np.ascontiguousarray(code), strides=(1,))  # at each byte
    behind = offsets + CALL_SIZE
    return (words[offsets + 1] + behind).astype(np.uint64) + np.uint64(start)


def _stubs(code: NDArray[np.uint8], begin: int) -> list[int]:
    """Offsets from `begin` on, ascending."""
    last = len(code) - _STUB_SIZE + 1
    if last <= begin:
        return []
    part = np.arange(begin, last)
    found: list[int] = part[(code[part] == 0x48) & (code[part + 1] == 0xBB) & (code[part + STUB_JUMP] == JMP)].tolist()
    return found
