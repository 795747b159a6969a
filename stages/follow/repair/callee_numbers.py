"""Callees that calls name, by number, for columns: with their names, classes and arguments, which have numbers too."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.callees import POLYMORPHIC
from jvm.bytecode.class_file import Invoked
from jvm.code.image import CodeImage
from stages.follow.repair.call_table import ANY, HANDLE, ITABLE, OWN, VTABLE
from stages.follow.repair.observed_targets import fingerprint

I64 = NDArray[np.int64]
T = TypeVar("T")

_LOOKED_UP = {0xB6: VTABLE, 0xB9: ITABLE}  # by invokevirtual, invokeinterface
_DECLARED = 4  # a column


class _Numbers(dict[T, int]):
    """Of things, in the order in which they were first asked for."""

    def __missing__(self, thing: T) -> int:
        self[thing] = len(self)
        return self[thing]


class Renumbered(NamedTuple):
    """Of each old number the new one, −1: it is not kept. The last is for old numbers of −1."""

    callees: I64
    names: I64
    classes: I64
    arguments: I64


class CalleeNumbers:
    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self.invoked: list[Invoked] = []  # by number
        self._callees: _Numbers[Invoked] = _Numbers()
        self._names: _Numbers[tuple[str, str]] = _Numbers()
        self._classes: _Numbers[str] = _Numbers()
        self._arguments: _Numbers[str] = _Numbers()
        self._lists: list[list[int]] = [[], [], [], [], []]  # the columns
        self._columns: tuple[I64, ...] = ()  # as arrays; empty: to be made

    def __len__(self) -> int:
        """The most that there are of one kind."""
        return max(len(self.invoked), len(self._names), len(self._classes), len(self._arguments))

    @property
    def class_names(self) -> list[str]:
        """By number."""
        return list(self._classes)

    def of(self, callee: Invoked | None) -> int:
        """−1: of none."""
        if callee is None:
            return -1
        number = self._callees[callee]
        if number == len(self.invoked):
            self._columns = ()
            kind = _LOOKED_UP.get(callee.opcode, OWN if callee.name == "<init>" else ANY)
            kind = HANDLE if callee.owner in POLYMORPHIC else kind
            name, owner = self.of_method(callee.name, callee.descriptor, callee.owner)
            self.invoked.append(callee)
            row = name, owner, kind, self._arguments[fingerprint(callee)], self._declared(callee)
            for column, value in zip(self._lists, row, strict=True):
                column.append(value)
        return number

    def of_method(self, name: str, descriptor: str, owner: str) -> tuple[int, int]:
        """Of its name with its descriptor, and of its class."""
        return self._names[name, descriptor], self._classes[owner]

    def columns(self) -> tuple[I64, ...]:
        """Of all callees: the numbers of their names, owners, kinds, arguments, and of the classes that declare them
        (−1: not known)."""
        self._columns = self._columns or tuple(np.array(column, np.int64) for column in self._lists)
        return self._columns

    def rows(self, callees: I64) -> tuple[I64, ...]:
        """Of these, but for the classes that declare them."""
        wanted = callees.tolist()
        return tuple(np.array([column[c] for c in wanted], np.int64) for column in self._lists[:_DECLARED])

    def look_again(self) -> None:
        """More classes are known: where that was not known, who declares a callee."""
        declared, self._columns = self._lists[_DECLARED], ()
        for k, known in enumerate(declared):
            if known < 0:
                declared[k] = self._declared(self.invoked[k])

    def anew(self, live: I64) -> Renumbered:
        """Forgets all callees but these, with their names, classes and arguments."""
        columns = [np.array(column, np.int64)[live] for column in self._lists]
        name, owner, _, arguments, declared = columns
        new = Renumbered(
            _new_numbers(live, len(self.invoked)),
            _renumbered(self._names, name),
            _renumbered(self._classes, np.concatenate((owner, declared))),
            _renumbered(self._arguments, arguments),
        )
        for column, numbers in ((name, new.names), (owner, new.classes), (arguments, new.arguments)):
            column[:] = numbers[column]
        declared[declared >= 0] = new.classes[declared[declared >= 0]]
        self.invoked = [self.invoked[k] for k in live.tolist()]
        self._callees = _Numbers(zip(self.invoked, range(len(live)), strict=True))
        self._lists, self._columns = [column.tolist() for column in columns], ()
        return new

    def _declared(self, callee: Invoked) -> int:
        declared = self._image.classes.declared(callee)
        return self._classes[declared.holder] if declared is not None else -1


def _new_numbers(kept: I64, size: int) -> I64:
    """As in `Renumbered`, of `size` old ones."""
    new = np.full(size + 1, -1, np.int64)
    new[kept] = np.arange(len(kept))
    return new


def _renumbered(numbers: _Numbers[T], used: I64) -> I64:
    """Keeps those `used` (−1: none) alone; `_new_numbers`."""
    kept = np.unique(used[used >= 0])
    new = _new_numbers(kept, len(numbers))
    things = list(numbers)
    numbers.clear()
    for k in kept.tolist():
        numbers[things[k]] = len(numbers)
    return new
