"""The targets of calls that have been read, by callee: other calls of the same callee will lead there, too.

Two kinds of code are shared by calls and not named after a callee: the stubs that look a method up at an index of a
table (vtableStubs.cpp), one for each index, of which a callee has one; and the adapters to the interpreter, one for
each fingerprint of argument types (AdapterFingerPrint, sharedRuntime.cpp). Neither can be told from bytecode, but one
call read after it was bound tells it for all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.class_file import INVOKESTATIC, Invoked
from jvm.calls import call_sites as calls
from jvm.calls.stubs import Stub, stub_of
from jvm.code.image import CodeImage
from jvm.code.version import Version
from stages.follow.repair.call_table import TABLES
from stages.pointers import signed_rows

I64 = NDArray[np.int64]

_MOST = 8  # places kept of one key
_ARGUMENT = re.compile(r"\[*(?:L[^;]*;|[ZBCSIJFD])")


def fingerprint(callee: Invoked) -> str:
    """As AdapterFingerPrint: all integers but long are one type, all references another."""
    arguments = callee.descriptor[1:].partition(")")[0]
    basic = ("I" if a in "ZBCS" else a if len(a) == 1 else "L" for a in _ARGUMENT.findall(arguments))
    return ("" if callee.opcode == INVOKESTATIC else "L") + "".join(basic)


class _Places:
    """By key; as columns, ascending by key."""

    def __init__(self) -> None:
        self._of: dict[int, list[int]] = {}
        self._columns: tuple[I64, I64] | None = None

    def add(self, key: int, place: int) -> None:
        known = self._of.setdefault(key, [])
        if place not in known and len(known) < _MOST:
            known.append(place)
            self._columns = None

    def number_anew(self, keys: Callable[[int], int], places: Callable[[int], int] = int) -> None:
        """`keys` and `places` map each to its new number; −1: it is dropped."""
        moved = {keys(key): [new for place in at if (new := places(place)) >= 0] for key, at in self._of.items()}
        self._of = {key: at for key, at in moved.items() if key >= 0 and at}
        self._columns = None

    @property
    def columns(self) -> tuple[I64, I64]:
        if self._columns is None:
            rows = [(key, place) for key in sorted(self._of) for place in self._of[key]]
            key, place = signed_rows(rows, 2).T.copy()
            self._columns = key, place
        return self._columns


class Led:
    """Of one code image."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._tables, self._namesakes, self._claims, self._adapters = _Places(), _Places(), _Places(), _Places()

    def note(
        self, v: Version, site: I64, stub: I64, checked: NDArray[np.bool_], callee: I64, name: I64, owner: I64, kind:
        I64, arguments: I64,
    ) -> None:  # fmt: skip
        """Of calls (n,) of `v`, as it was read last; calls that do not look at the receiver have stubs of their own."""
        branch = np.where(checked, site, stub + calls.STUB_JUMP) - np.array(v.start, np.uint64).view(np.int64)
        to = calls.targets(self._image.code(v), v.start, branch)
        columns = (column.tolist() for column in (to, checked, callee, name, owner, kind, arguments))
        for target, checks, callee_, name_, owner_, kind_, arguments_ in zip(*columns, strict=True):
            at = self._image.at(target, max(v.loaded, v.patched))
            what = stub_of(at) if at is not None else None
            if at is None or what is None:
                continue
            if what == Stub.ADAPTER:
                self._adapters.add(2 * arguments_ + checks, target)
            elif checks and TABLES.get(what) == kind_:
                self._tables.add(callee_, at.start)
                self._namesakes.add(name_, at.start)
                self._claims.add(at.start, owner_)

    def number_anew(self, callees: I64, names: I64, classes: I64, arguments: I64) -> None:
        """New numbers by old ones; −1: it is not kept."""
        self._tables.number_anew(lambda key: int(callees[key]))
        self._namesakes.number_anew(lambda key: int(names[key]))
        self._claims.number_anew(int, lambda owner: int(classes[owner]))
        self._adapters.number_anew(lambda key: 2 * int(arguments[key >> 1]) + (key & 1))

    def tables(self) -> tuple[I64, ...]:
        """Callees, ascending, and stubs that calls of them led to; names, ascending, and stubs that calls of any callee
        of that name led to; stubs, ascending, and the classes whose callees led there."""
        return *self._tables.columns, *self._namesakes.columns, *self._claims.columns

    def adapters(self) -> tuple[I64, I64]:
        """2 · arguments + (0 or 1) whether they looked at the receiver, ascending, and where in an adapter calls came
        to."""
        return self._adapters.columns
