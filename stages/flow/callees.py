"""What the calls of compiled code may lead to, by what the bytecode says that they call (`jvm.calls`).

A callee is known by class, name and descriptor. The compiled method may be another class's, for methods are inherited
and overridden, so those of the same name are guesses; and so are, where the receiver is looked at, the stubs that look
its method up in a table. All that is inferred, not read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm import calls
from jvm.classfile import Invoked
from jvm.codeimage import CodeImage
from jvm.codeversion import Kind, Version
from jvm.stubs import Stub, stub_of
from stages.flow.led import LOOKED_UP, Led

I64 = NDArray[np.int64]

_FOREVER = 1 << 62  # with room to add to it
_TO_COMPILED = b"\x41\xff\xe3"
"""JMP R11: what an adapter to compiled code ends with; the checking entry of the one from it is right behind."""


class CallTable(NamedTuple):
    """Calls (n,) by address; callees (m,), whose entries are [first[c], first[c + 1]); where the JMPs of calls' own
    stubs may lead (k,), by address. Times are TSC."""

    site: I64
    stub: I64  # its own, 0: none known
    looks: I64  # (0 or 1) at the receiver
    callee: I64  # −1: not known
    first: I64
    verified: I64
    checking: I64  # the entry that checks the receiver
    guess: I64  # (0 or 1)
    since: I64
    until: I64
    jump: I64  # ascending, one may come several times
    lands: I64


NO_CALLS = CallTable(*(np.zeros(int(name == "first"), np.int64) for name in CallTable._fields))


class _Entry(NamedTuple):
    verified: int  # 0: none
    checking: int  # 0: none
    guess: int
    since: int
    until: int


class Callees:
    """Of one code image. What a version has is found once."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._of: dict[int, I64] = {}  # version → (n, 4) site, stub, looks, callee
        self._stubs: dict[int, I64] = {}  # version → offsets of all its stubs
        self._partial: set[int] = set()  # versions of which not all bytecode was known yet
        self._told = 0  # classes, by then
        self._ids: dict[Invoked, int] = {}
        self._callees: list[Invoked] = []  # by id
        self._led = Led(image)
        self._read: dict[int, int] = {}  # version → when it had been found changed last, by then
        self._epoch = -1
        self._calls = NO_CALLS

    def now(self) -> CallTable:
        if self._epoch != self._image.epoch:
            self._epoch = self._image.epoch
            self._calls = self._update()
        return self._calls

    def to_adapter(self, site: int, target: int, adapter: Version, tsc: int) -> tuple[int, bool]:
        """How a call at `site` comes to `target`, where the adapter makes an interpreter's frame: through the call's
        own stub, which loads the callee (then True), or, if it looks at the receiver, by the entry before, which checks
        it (SharedRuntime::generate_i2c2i_adapters); or it is not known how."""
        known = self.now()
        k = int(np.searchsorted(known.site, site))
        v = self._image.at(site, tsc)
        if v is None or k == len(known.site) or known.site[k] != site:
            return target, False
        if known.looks[k]:
            behind = self._image.code(adapter).tobytes().find(_TO_COMPILED) + len(_TO_COMPILED)
            return (adapter.start + behind if len(_TO_COMPILED) <= behind < target - adapter.start else target), False
        if known.stub[k]:
            return int(known.stub[k]), True
        stubs = self._stubs[v.id]
        to = calls.targets(self._image.code(v), v.start, stubs + calls.STUB_JUMP)
        return (int(stubs[to == target][0]) + v.start, True) if (to == target).any() else (target, False)

    def _update(self) -> CallTable:
        nmethods = [v for v in self._image.versions() if v.kind == Kind.NMETHOD]
        told = self._image.classes.told
        again = self._partial if told != self._told else ()
        self._told = told
        for v in nmethods:
            if v.id not in self._of or v.id in again:
                self._of[v.id] = self._found(v)
            if self._read.get(v.id) != v.patched:
                self._read[v.id] = v.patched
                self._note(v)
        alive = {v.id for v in nmethods}
        for gone in self._of.keys() - alive:
            del self._of[gone], self._stubs[gone], self._read[gone]
            self._partial.discard(gone)
        rows = np.concatenate((np.zeros((0, 4), np.int64), *self._of.values()))
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
        site, stub, looks, callee = (np.ascontiguousarray(column) for column in rows.T)
        return CallTable(site, stub, looks, callee, *self._entries(nmethods), *self._jumps(stub, callee))

    def _found(self, v: Version) -> I64:
        code = self._image.code(v)
        assert v.debug is not None

        def java(target: int) -> bool:
            to = self._image.at(target, v.loaded)
            return to is None or to.kind == Kind.NMETHOD or stub_of(to) is not None

        found = calls.calls(code, v.start, v.debug, v.site_kind, self._image.classes, java)
        self._stubs[v.id] = np.array(found.stubs, np.int64)
        (self._partial.discard if found.whole else self._partial.add)(v.id)
        rows = [
            (v.start + c.offset, v.start + c.stub if c.stub >= 0 else 0, c.looks, self._id(c.callee))
            for c in found.calls
        ]
        return np.array(rows, np.int64).reshape(-1, 4)

    def _note(self, v: Version) -> None:
        rows = self._of[v.id]
        site, stub, looks, callee = rows[(rows[:, 3] >= 0) & ((rows[:, 1] != 0) | (rows[:, 2] != 0))].T
        self._led.note(v, site, stub, looks, [self._callees[c] for c in callee.tolist()])

    def _id(self, callee: Invoked | None) -> int:
        if callee is None:
            return -1
        known = self._ids.setdefault(callee, len(self._callees))
        if known == len(self._callees):
            self._callees.append(callee)
        return known

    def _jumps(self, stub: I64, callee: I64) -> tuple[I64, I64]:
        """Where the JMPs of calls' own stubs may lead: to adapters that others' led to."""
        has = np.flatnonzero((stub != 0) & (callee >= 0))
        lands = [self._led.adapters(invoked, looks=False) for invoked in self._callees]
        size = np.array([len(those) for those in lands], np.int64)
        flat = np.array([to for those in lands for to in those], np.int64)
        times = size[callee[has]] if len(has) else has
        first = (np.cumsum(size) - size)[callee[has]] if len(has) else has
        jump = np.repeat(stub[has] + calls.STUB_JUMP, times)
        at = np.repeat(first - (np.cumsum(times) - times), times) + np.arange(len(jump))
        order = np.argsort(jump, kind="stable")
        return jump[order], flat[at][order]

    def _entries(self, nmethods: list[Version]) -> tuple[I64, I64, I64, I64, I64, I64]:
        by_name: dict[tuple[str, str], list[tuple[str, _Entry]]] = {}
        for v in nmethods:
            method = self._image.classes.methods.get(v.method)
            if method is not None and v.verified_entry and not v.osr_entry:
                entry = _Entry(v.verified_entry, v.entry, 0, v.since, min(v.until, _FOREVER))
                by_name.setdefault((method.name, method.signature), []).append((_owner(method.class_signature), entry))
        tables: dict[Stub, dict[int, _Entry]] = {Stub.VTABLE: {}, Stub.ITABLE: {}}
        for v in self._image.versions():
            stub = stub_of(v)
            if stub is not None and stub in tables:
                tables[stub][v.start] = _Entry(0, v.start, 0, v.since, min(v.until, _FOREVER))
        first = [0]
        rows: list[_Entry] = []
        for callee in self._callees:
            those = by_name.get((callee.name, callee.descriptor), [])
            own = [entry for holder, entry in those if holder == callee.owner]
            rows += own
            if callee.opcode in LOOKED_UP or (not own and callee.name != "<init>"):
                rows += [entry._replace(guess=1) for holder, entry in those if holder != callee.owner]
            rows += [_Entry(0, to, 0, 0, _FOREVER) for to in self._led.adapters(callee, looks=True)]
            if callee.opcode in LOOKED_UP:
                table = tables[LOOKED_UP[callee.opcode]]
                led = self._led.tables(callee)
                rows += [entry if at in led else entry._replace(guess=1) for at, entry in table.items()]
            first.append(len(rows))
        columns = np.array(rows, np.uint64).view(np.int64).reshape(-1, 5).T.copy()
        return np.array(first, np.int64), columns[0], columns[1], columns[2], columns[3], columns[4]


def _owner(signature: str) -> str:
    """The name of a class in constant pools; hidden ones have an address behind it."""
    name = signature[1:-1]
    for mark in (".0x", "/0x", "+0x"):
        name = name.split(mark, 1)[0]
    return name
