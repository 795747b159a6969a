"""The callees of calls: which methods an invoke may run, by the classes that are loaded.

Sites that name the same method share a *call*: within a loader, and for invokespecial within a class. A call's callees
are found by class hierarchy when they are first asked for (`update`), and completed when subtypes have been loaded
since. They are copied to the end of their array when there are more; when that is half garbage, it is made anew. A call
is dropped with the last class that makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.arena import Arena
from jvm.bytecode import hierarchy, opcodes
from jvm.bytecode.cfg import NOWHERE
from jvm.bytecode.class_file import INTERFACE, Invoked
from jvm.bytecode.hierarchy import Hierarchy, Loaded, Selector
from jvm.bytecode.space import Space

OPEN = -1  # in place of a number of callees: they cannot be known from the class files
NATIVE = 0x100  # flag of a method (JVMS 4.6)
_HANDLE = NATIVE | 0x80  # native and of variable arity: signature polymorphic, in these classes
POLYMORPHIC = ("java/lang/invoke/MethodHandle", "java/lang/invoke/VarHandle")
Key = tuple[int, Invoked]
"""Of a call: −1 − loader, or the class of an invokespecial; the method as it is named."""


class Calls(NamedTuple):
    callee: NDArray[np.int32]  # the first of its callees, in `Callees.methods`
    callees: NDArray[np.int32]  # how many; OPEN


@dataclass(eq=False, slots=True)
class _Call:
    id: int
    invoked: Invoked
    caller: int  # a class
    loader: int
    sites: int = 0
    owner: Loaded | None = None
    resolved: hierarchy.Method | None = None
    seen: int = 0  # of the owner's subtypes
    turns: int = -1
    callees: dict[int, None] = field(default_factory=dict)
    changed: bool = False  # these, since they were stored


class Callees:
    """`number` of a method of a class (by its id), or NOWHERE. `changes` counts whatever changes what is read here."""

    def __init__(self, loaded: Hierarchy, number: Callable[[int, Selector], int]) -> None:
        self.changes = 0
        self._hierarchy, self._number = loaded, number
        self._rows = Space(Calls(np.zeros(64, np.int32), np.full(64, OPEN, np.int32)))
        self._methods: Arena[np.int32] = Arena(np.int32)
        self._call: dict[Key, _Call] = {}
        self._dirty: dict[Key, None] = {}  # calls to look at
        self._turned: dict[str, None] = {}  # owners whose calls are to be looked at
        self._reached: dict[str, None] = {}  # owners below which others have come or gone
        self._of_owner: dict[str, dict[Key, None]] = {}  # calls, by the name of their owner
        self._open_below: dict[str, dict[Key, None]] = {}  # those of them that may run a subtype's method

    def calls(self) -> Calls:
        return self._rows.view()

    def methods(self) -> NDArray[np.int32]:
        return self._methods.view()

    def called(self, caller: Loaded, invoked: Invoked, sites: int) -> tuple[Key, int]:
        """So many sites of a class more make a call: its key and number. It is shared within a loader; invokespecial
        depends on the class itself."""
        own = invoked.opcode == opcodes.INVOKESPECIAL
        key = caller.id if own else -1 - caller.loader, invoked
        call = self._call.get(key)
        if call is None:
            call = self._call[key] = _Call(self._rows.take(1), invoked, caller.id, caller.loader)
            for calls in (self._of_owner, self._open_below):
                calls.setdefault(invoked.owner, {})[key] = None
            self._dirty[key] = None
        call.sites += sites
        return key, call.id

    def uncalled(self, calls: Mapping[Key, int]) -> None:
        """So many sites of each call go with their class; calls that no other class makes go too."""
        for key, sites in calls.items():
            call = self._call[key]
            call.sites -= sites
            if not call.sites:
                del self._call[key]
                self._dirty.pop(key, None)
                for calls_ in (self._of_owner, self._open_below):
                    named = calls_.get(call.invoked.owner, {})
                    named.pop(key, None)
                    if not named:
                        calls_.pop(call.invoked.owner, None)
                self._methods.garbage += max(int(self._rows.columns.callees[call.id]), 0)
                self._rows.give(call.id, 1)

    def turned(self, loaded: Loaded) -> set[str]:
        """A class has come or goes: calls whose owner it is, or one below it, are to be looked at; and those whose
        owner is a supertype of these, if they may run a subtype's method. The names of all those owners."""
        turned = {lower.name for lower in loaded.below.values()}
        if loaded.name == hierarchy.OBJECT:  # arrays have its methods
            turned |= {name for name in self._of_owner if name.startswith("[")}
        reached = {upper.name for lower in loaded.below.values() for upper in lower.supertypes()}
        self._turned.update(dict.fromkeys(turned))
        self._reached.update(dict.fromkeys(reached))
        return turned | reached

    def gone(self, methods: range, owners: set[str]) -> None:
        """Methods are no more: calls of those owners that may have run one are open until they are looked at again."""
        for name in owners:
            for key in self._of_owner.get(name, ()):
                call = self._call[key]
                if any(method in call.callees for method in methods):
                    self._forget(call)
                    self._store(call, known=False)

    def update(self, limit: int = 1 << 11) -> int:
        """Finds the callees of calls that are new or may have others by now. It takes about `limit` steps, each a call
        or a subtype looked at, and says how many calls are left: those may lack callees, and new ones are open."""
        for names, calls in ((self._turned, self._of_owner), (self._reached, self._open_below)):
            for name in names:
                self._dirty.update(calls.get(name, {}))
            names.clear()
        while self._dirty and limit > 0:
            key = next(iter(self._dirty))
            call = self._call[key]
            complete, steps = self._look(key, call, limit)
            limit -= 1 + steps
            known = complete and call.resolved is not None
            stored = self._rows.columns.callees[call.id] != OPEN
            if known != stored or (known and call.changed):
                self._store(call, known)
            if complete:
                del self._dirty[key]
        if self._methods.wasteful:
            self._pack()
        return len(self._dirty)

    def _look(self, key: Key, call: _Call, limit: int) -> tuple[bool, int]:
        """Whether all its callees are found, and how many subtypes were looked at."""
        opcode, owner_name, name, descriptor = call.invoked
        selector: Selector = name, descriptor
        if opcode == opcodes.INVOKEDYNAMIC:
            return True, 0
        owner = self._hierarchy.find(owner_name, call.loader)
        resolved = hierarchy.resolve(owner, selector) if owner is not None else None
        if owner is not None and resolved is not None:
            if opcode == opcodes.INVOKESPECIAL:
                resolved = self._special(call, owner, resolved)
            elif resolved[0].name in POLYMORPHIC and resolved[0].methods[selector] & _HANDLE == _HANDLE:
                resolved = None  # invokehandle: the handle says which method runs (JVMS 2.9.3)
        turns = owner.turns if owner is not None else -1
        if (owner, resolved, turns) != (call.owner, call.resolved, call.turns):
            self._forget(call)
            call.owner, call.resolved, call.turns = owner, resolved, turns
        if owner is None or resolved is None:
            return True, 0
        exact = opcode in (opcodes.INVOKESTATIC, opcodes.INVOKESPECIAL) or hierarchy.bound(resolved)
        if exact or owner_name.startswith("["):
            self._callee(call, resolved)
            if opcode != opcodes.INVOKESPECIAL or name == "<init>":  # another class may come between caller and owner
                self._open_below.get(owner_name, {}).pop(key, None)
            return True, 0
        self._open_below.setdefault(owner_name, {})[key] = None
        first = call.seen
        for lower in islice(owner.below.values(), first, first + limit):
            call.seen += 1
            chosen = hierarchy.select(lower, resolved) if lower.concrete else None
            if chosen is not None:
                self._callee(call, chosen)
        return call.seen == len(owner.below), call.seen - first

    def _special(self, call: _Call, owner: Loaded, resolved: hierarchy.Method) -> hierarchy.Method | None:
        """JVMS 6.5.invokespecial: a call of a superclass's method goes to the nearest above the caller."""
        caller = self._hierarchy.classes.get(call.caller)
        if caller is None or resolved[1][0] == "<init>" or owner.flags & INTERFACE or owner is caller:
            return resolved
        if caller.above is not None and owner in caller.upwards():
            return hierarchy.resolve(caller.above, resolved[1])
        return resolved

    def _callee(self, call: _Call, method: hierarchy.Method) -> None:
        number = self._number(method[0].id, method[1])
        if number != NOWHERE and number not in call.callees:
            call.callees[number], call.changed = None, True

    def _store(self, call: _Call, known: bool) -> None:
        """`known`: its callees, all of them; else it is open."""
        table = self._rows.columns
        self._methods.garbage += max(int(table.callees[call.id]), 0)
        table.callee[call.id] = self._methods.append(np.fromiter(call.callees if known else (), np.int32))
        table.callees[call.id] = len(call.callees) if known else OPEN
        call.changed = False
        self.changes += 1

    def _pack(self) -> None:
        table, old = self._rows.view(), self._methods.view()
        counts = np.maximum(table.callees, 0)
        packed: Arena[np.int32] = Arena(np.int32)
        packed.append(old[slices(table.callee, counts)])
        table.callee[:] = np.cumsum(counts) - counts
        self._methods = packed
        self.changes += 1

    def _forget(self, call: _Call) -> None:
        call.callees, call.owner, call.resolved, call.seen, call.changed = {}, None, None, 0, True


def slices(starts: NDArray[np.int32], counts: NDArray[np.int32]) -> NDArray[np.int64]:
    """The indices in all slices [start, start + count), one behind the other."""
    shifts: NDArray[np.int64] = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return shifts + np.arange(len(shifts))
