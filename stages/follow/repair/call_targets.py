"""The possible targets of the calls of compiled code, by the callees that the bytecode names (`jvm.calls.call_sites`).

A callee is known by class, name and descriptor. The compiled method may be another class's, for methods are inherited
and overridden, so those of the same name are guesses; and so are, where the receiver is looked at, the stubs that look
its method up in a table. All that is inferred, not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.class_file import Invoked
from jvm.calls import call_sites as calls
from jvm.calls.stubs import stub_of
from jvm.code.changes import Changes
from jvm.code.image import CodeImage
from jvm.code.version import Kind, Version
from stages.follow.repair.call_table import HANDLE, NO_CALLS, OWN, TABLES, CallTable
from stages.follow.repair.callee_numbers import CalleeNumbers
from stages.follow.repair.observed_targets import Led
from stages.pointers import signed, signed_rows

I64 = NDArray[np.int64]

_FOREVER = 1 << 62  # with room to add to it
_TO_COMPILED = b"\x41\xff\xe3"
"""JMP R11: the end of an adapter to compiled code; the unverified entry (UEP) of the adapter from it is right
behind."""
_SHARED = 20
"""The first JDK in which calls share stubs."""
_SITE, _JUMP = 0, 4  # columns of calls
SPARE = 4096
VERSIONS = 16
"""Taken in by one step: some milliseconds, where all are large."""


class Callees:
    """Of one code image. A version's calls are found once."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._of: dict[int, I64] = {}  # version → (n, 4) site, stub, checked, callee
        self._stubs: dict[int, I64] = {}  # version → offsets of all its stubs
        self._partial: set[int] = set()  # versions of which not all bytecode was known yet
        self._again: set[int] = set()  # … and of which more may be known now
        self._changes = Changes(image)
        self._due: dict[int, Version] = {}  # nmethods that are not taken in as they are now
        self._entry_rows: dict[int, tuple[int, ...]] = {}  # version → name, holder, entries, since
        self._told = 0  # classes, by then
        self._read: dict[int, int] = {}  # version → when its bytes had been found changed last
        self._led = Led(image)
        self.noted = 0  # how often code was read of which calls were bound
        self._numbers = CalleeNumbers(image)  # when few of these are left in code, they are numbered anew
        self._kept = 0  # how many were numbered then
        self._sites: tuple[I64, ...] | None = None  # of calls, without those of `_fresh`; None: all are to be found
        self._fresh: list[int] = []  # versions that have come since
        self._compiled: list[Version] = []  # the entries below are theirs
        self._entries: tuple[I64, ...] = ()
        self._nameless: dict[int, None] = {}  # versions of which the method was not known then
        self._until: I64 = np.zeros(0, np.int64)  # of the compiled; this and `_looked_up` are as of `_stood`
        self._looked_up: tuple[I64, ...] = ()
        self._stood = -1, -1
        self._tables: dict[int, tuple[Version, int]] = {}  # stubs that look a method up, by version
        self._epoch = self._prepared = -1
        self._renewed = False  # numbered anew since the entries were last found
        self._calls = NO_CALLS

    def prepare(self) -> Iterator[None]:
        """Takes in the code that has come, some versions a step, and drops code that is gone: much may come at once,
        and the next search is not to wait for all of it."""
        if self._prepared == self._image.epoch:
            return
        self._prepared = self._image.epoch
        self._look()
        for n, v in enumerate(self._in_turn(), 1):
            self._take(v)
            if n % VERSIONS == 0:
                yield

    def now(self) -> CallTable:
        if self._epoch != self._image.epoch:
            self._epoch = self._image.epoch
            self._calls = self._update()
        return self._calls

    def calls(self, site: int) -> bool:
        """Whether a Java call stands there now."""
        return self._call(site) >= 0

    def leads(self, site: int, to: int) -> bool:
        """Whether a call of the same callee, which looks at the receiver if it does, was read to lead to the stub or
        the adapter at `to`."""
        k, known = self._call(site), self._calls
        callee = int(known.callee[k]) if k >= 0 else -1
        if callee < 0:
            return False
        key = 2 * int(known.arguments[callee]) + int(known.checked[k])
        at = signed(to)
        return at in known.led[known.led_callee == callee] or at in known.adapter[known.adapter_key == key]

    def free(self, to: int) -> bool:
        """Whether the stub of a table at `to` is one that no call was read to lead to."""
        known = self.now()
        return signed(to) in known.table and signed(to) not in known.claimed

    def checked(self, site: int) -> bool | None:
        """Whether the call there checks the receiver; None: it is not known."""
        k = self._call(site)
        return bool(self._calls.checked[k]) if k >= 0 else None

    def to_adapter(self, site: int, target: int, adapter: Version, tsc: int) -> tuple[int, bool]:
        """How a call at `site` comes to `target`, where the adapter makes an interpreter's frame: through the call's
        own stub, which loads the callee (then True), or, if it checks the receiver, by the entry before, which checks
        it (SharedRuntime::generate_i2c2i_adapters); or it is not known how."""
        k, known = self._call(site), self._calls
        v = self._image.at(site, tsc)
        if v is None or k < 0:
            return target, False
        if known.checked[k]:
            behind = self._image.code(adapter).tobytes().find(_TO_COMPILED) + len(_TO_COMPILED)
            return (adapter.start + behind if len(_TO_COMPILED) <= behind < target - adapter.start else target), False
        if known.stub[k]:
            return int(known.stub.view(np.uint64)[k]), True
        stubs = self._stubs[v.id]
        to = calls.targets(self._image.code(v), v.start, stubs + calls.STUB_JUMP)
        return (int(stubs[to == target][0]) + v.start, True) if (to == target).any() else (target, False)

    def compiled(self, site: int, tsc: int) -> int:
        """The verified entry of the callee that the call there names, as it stands at `tsc`; 0: none, or several."""
        callee, known = self._callee(site), self._calls
        if callee < 0:
            return 0
        rows = np.arange(*np.searchsorted(known.entry_name, [known.name[callee], known.name[callee] + 1]))
        rows = rows[(known.since[rows] <= tsc) & (tsc < known.until[rows])]
        own = rows[known.holder[rows] == known.owner[callee]]
        if not len(own):
            own = rows[known.holder[rows] == known.declared[callee]]
        if not len(own) and known.kind[callee] != OWN and len(np.unique(known.holder[rows])) == 1:
            own = rows if self._overrides(int(known.holder[rows[0]]), int(known.declared[callee])) else own
        return int(known.verified.view(np.uint64)[own[np.argmax(known.since[own])]]) if len(own) else 0

    def _overrides(self, holder: int, declared: int) -> bool:
        """Whether a method of class `holder` may stand in for one of `declared`."""
        if declared < 0:
            return True
        names = self._numbers.class_names
        return self._image.classes.extends(names[holder], names[declared]) is not False

    def table(self, site: int, tsc: int, fresh: int) -> int:
        """The stub that looks up the callee that the call there names: a stub that other calls led to, or, if it is the
        only one, a stub that was made `fresh` ticks before `tsc` at most and that nothing has led to; 0: not known."""
        callee, known = self._callee(site), self._calls
        if callee < 0:
            return 0
        led = known.led[known.led_callee == callee]
        if not len(led):
            made = (tsc - fresh <= known.table_made) & (known.table_made <= tsc)
            free = (known.table_kind == known.kind[callee]) & ~np.isin(known.table, known.claimed)
            led = known.table[made & free]
        return int(led.view(np.uint64)[0]) if len(led) == 1 else 0

    def named(self, site: int) -> Invoked | None:
        """The callee that the bytecode at the call there names."""
        callee = self._callee(site)
        return self._numbers.invoked[callee] if callee >= 0 else None

    def names_other(self, site: int, target: int, tsc: int, slack: int) -> bool:
        """Whether the call there names another method than that whose entry is at `target` then (as `names_other` of
        `stages.follow.repair.call_table`). `slack`: ticks."""
        callee = self._callee(site)
        if callee < 0 or self._calls.kind[callee] == HANDLE:
            return False
        known, at = self._calls, signed(target)
        rows = np.flatnonzero((known.verified == at) | (known.unverified == at))
        rows = rows[(known.since[rows] - slack <= tsc) & (tsc < known.until[rows] + slack)]
        own = known.kind[callee] != OWN or known.holder[rows] == known.owner[callee]
        same = (known.entry_name[rows] == known.name[callee]) & own
        return bool(len(rows)) and not bool(same.any())

    def _callee(self, site: int) -> int:
        """The number of the callee that the call there names; −1: not known."""
        k = self._call(site)
        return int(self._calls.callee[k]) if k >= 0 else -1

    def _call(self, site: int) -> int:
        """Which of the calls stands there now; −1: none."""
        sites = self.now().site.view(np.uint64)
        k = int(np.searchsorted(sites, np.uint64(site)))
        return k if k < len(sites) and sites[k] == site else -1

    def _update(self) -> CallTable:
        self._look()
        for v in self._in_turn():
            self._take(v)
        stood = self._image.census, self._image.entry_state.changes
        if self._sites is None:
            self._sites = self._all_sites()
            self._all_entries()
            self._stood = -1, -1
        elif self._fresh:
            self._sites = self._more_sites(self._sites)
            self._more_entries()
            self._stood = -1, -1
        if self._stood != stood:
            self._stood = stood
            self._until = np.array([min(v.until, v.not_entrant, _FOREVER) for v in self._compiled], np.int64)
            self._looked_up = self._all_looked_up()
        self._fresh.clear()
        if self._renewed:
            self._renewed, self._kept = False, len(self._numbers)
        columns = *self._entries, self._until, *self._led.adapters(), *self._looked_up, *self._led.tables()
        return CallTable._make((*self._sites, *self._numbers.columns(), *columns))

    def _in_turn(self) -> list[Version]:
        return sorted(self._due.values(), key=lambda v: v.id)

    def _look(self) -> None:
        """Which versions have come, changed and gone, and of which more is known now."""
        came, patched, kept = self._changes.look()
        self._due |= {v.id: v for v in came if v.kind == Kind.NMETHOD}
        self._due |= {v.id: v for v in patched if v.id in self._of}
        self._tables |= {
            v.id: (v, TABLES[stub]) for v in came if v.kind != Kind.NMETHOD and (stub := stub_of(v)) in TABLES
        }
        told = self._image.classes.told
        if told != self._told:
            self._told = told
            self._again |= self._partial
            self._due |= {id_: v for id_ in self._partial if (v := self._image.version(id_)) is not None}
            self._numbers.look_again()
        if kept is not None:
            self._forget(kept)

    def _forget(self, versions: set[int]) -> None:
        """All but these."""
        for of in (self._due, self._tables):
            for gone in of.keys() - versions:
                del of[gone]
        gone_ = self._of.keys() - versions
        if not gone_:
            return
        for gone in gone_:
            del self._of[gone], self._stubs[gone], self._read[gone]
            self._entry_rows.pop(gone, None)
            self._partial.discard(gone)
            self._again.discard(gone)
        self._sites = None
        self._fresh.clear()
        if not self._renewed and len(self._numbers) > 2 * self._kept + SPARE:
            self._renewed = True
            self._number_anew()

    def _take(self, v: Version) -> None:
        del self._due[v.id]
        if v.id not in self._of or v.id in self._again:
            self._again.discard(v.id)
            self._sites = None if v.id in self._of else self._sites
            self._of[v.id] = self._found(v)
            if self._sites is not None:
                self._fresh.append(v.id)
        if self._read.get(v.id) != v.patched:
            self._read[v.id] = v.patched
            self._note(v)

    def _number_anew(self) -> None:
        """Forgets callees that no code calls any more, with their names, classes and arguments."""
        self._entry_rows.clear()
        rows = [row for row in self._of.values() if len(row)]
        live = np.unique(np.concatenate([row[:, 3] for row in rows])) if rows else np.zeros(0, np.int64)
        new = self._numbers.anew(live[live >= 0])
        for row in rows:
            row[:, 3] = np.where(row[:, 3] >= 0, new.callees[row[:, 3]], -1)
        self._led.number_anew(*new)

    def _all_sites(self) -> tuple[I64, ...]:
        return _in_order(np.concatenate((np.zeros((0, 4), np.int64), *self._of.values())))

    def _more_sites(self, known: tuple[I64, ...]) -> tuple[I64, ...]:
        """With those of fresh versions, each behind those at the same address."""
        new = _in_order(np.concatenate([self._of[id_] for id_ in self._fresh]))
        calls_, jumps = (
            np.searchsorted(known[k].view(np.uint64), new[k].view(np.uint64), "right") for k in (_SITE, _JUMP)
        )
        places = (*4 * (calls_,), jumps, jumps)
        return tuple(np.insert(old, at, more) for old, at, more in zip(known, places, new, strict=True))

    def _found(self, v: Version) -> I64:
        code = self._image.code(v)
        assert v.debug is not None

        def java(target: int) -> bool:
            to = self._image.at(target, v.loaded)
            return to is None or to.kind == Kind.NMETHOD or stub_of(to) is not None

        shared = self._image.jdk >= _SHARED
        found = calls.calls(code, v.start, v.debug, v.site_kind, self._image.classes, java, shared)
        self._stubs[v.id] = np.array(found.stubs, np.int64)
        (self._partial.discard if found.whole else self._partial.add)(v.id)
        rows = [
            (v.start + c.offset, v.start + c.stub if c.stub >= 0 else 0, c.checked, self._numbers.of(c.callee))
            for c in found.calls
        ]
        return signed_rows(rows, 4)

    def _note(self, v: Version) -> None:
        """Where its calls lead that are bound."""
        self.noted += 1
        rows = self._of[v.id]
        self._read_stubs(v, rows)
        site, stub, checked, callee = rows[(rows[:, 3] >= 0) & ((rows[:, 1] != 0) | (rows[:, 2] != 0))].T
        self._led.note(v, site, stub, checked != 0, callee, *self._numbers.rows(callee))

    def _read_stubs(self, v: Version, rows: I64) -> None:
        """A call that leads to a stub of the nmethod's own has that stub, and so have the calls that were taken to
        share one with it; the calls that were taken to have that stub have the one that these were taken to have."""
        if not len(self._stubs[v.id]):
            return
        start = np.array(v.start, np.uint64).view(np.int64)
        to = calls.targets(self._image.code(v), v.start, rows[:, 0] - start).view(np.int64)
        for k in np.flatnonzero((rows[:, 2] == 0) & np.isin(to - start, self._stubs[v.id])).tolist():
            taken = int(rows[k, 1])
            if taken != to[k]:
                with_it = rows[:, 1] == taken if taken else rows[:, 0] == rows[k, 0]
                rows[rows[:, 1] == to[k], 1] = taken
                rows[with_it, 1] = to[k]
                self._sites = self._sites if v.id in self._fresh else None

    def _all_entries(self) -> None:
        self._nameless.clear()
        self._compiled = self._callable(self._of)
        rows = np.array([self._entry_rows[v.id] for v in self._compiled], np.int64).reshape(-1, 5)
        order = np.argsort(rows[:, 0], kind="stable")
        self._compiled = [self._compiled[k] for k in order.tolist()]
        self._entries = tuple(rows[order].T.copy())

    def _more_entries(self) -> None:
        """With those of fresh versions, and of those that have got a name."""
        new = sorted(self._callable([*self._nameless, *self._fresh]), key=lambda v: self._entry_rows[v.id][0])
        rows = np.array([self._entry_rows[v.id] for v in new], np.int64).reshape(-1, 5).T
        at = np.searchsorted(self._entries[0], rows[0], "right")
        for place, v in zip(at[::-1].tolist(), new[::-1], strict=True):
            self._compiled.insert(place, v)
        self._entries = tuple(np.insert(old, at, more) for old, more in zip(self._entries, rows, strict=True))

    def _callable(self, versions: Iterable[int]) -> list[Version]:
        nmethods = [v for id_ in versions if (v := self._image.version(id_)) is not None]
        return [v for v in nmethods if v.id in self._entry_rows or self._find_entry(v)]

    def _all_looked_up(self) -> tuple[I64, ...]:
        rows = [(v.start, kind, _made(v), min(v.until, _FOREVER)) for v, kind in self._tables.values()]
        rows.sort(key=lambda row: row[2], reverse=True)
        return tuple(signed_rows(rows, 4).T.copy())

    def _find_entry(self, v: Version) -> bool:
        """Whether it can be called, as far as is known yet."""
        method = self._image.classes.methods.get(v.method)
        if not v.verified_entry or v.osr_entry:
            return False
        if method is None:
            self._nameless[v.id] = None
            return False
        self._nameless.pop(v.id, None)
        name, holder = self._numbers.of_method(method.name, method.signature, _owner(method.class_signature))
        self._entry_rows[v.id] = name, holder, signed(v.verified_entry), signed(v.entry), signed(_made(v))
        return True


def _in_order(rows: I64) -> tuple[I64, ...]:
    """Of (n, 4) calls: columns, ascending by site; stubs' JMPs and callees, ascending by JMP."""
    site, stub, checked, callee = rows[np.argsort(rows[:, 0].astype(np.uint64), kind="stable")].T.copy()
    own = np.flatnonzero((stub != 0) & (callee >= 0))
    own = own[np.argsort(stub[own].view(np.uint64), kind="stable")]
    return site, stub, checked, callee, stub[own] + calls.STUB_JUMP, callee[own]


def _made(v: Version) -> int:
    """0: it was there before."""
    return v.loaded if v.since else 0


def _owner(signature: str) -> str:
    """The name of a class in constant pools; hidden ones have an address behind it."""
    name = signature[1:-1]
    for mark in (".0x", "/0x", "+0x"):
        name = name.split(mark, 1)[0]
    return name
