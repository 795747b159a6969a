"""What calls that have been read led to, by what they call: others of the same callee will lead there, too.

Two kinds of code are shared by calls and not named after a callee: the stubs that look a method up at an index of a
table (vtableStubs.cpp), one for each index, and the adapters to the interpreter, one for each fingerprint of argument
types (AdapterFingerPrint, sharedRuntime.cpp). Neither can be told by what bytecode says, but one call read after it was
bound tells it for all others.
"""

from __future__ import annotations

import re
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from jvm import calls
from jvm.classfile import Invoked
from jvm.codeimage import CodeImage
from jvm.codeversion import Version
from jvm.stubs import Stub, stub_of

I64 = NDArray[np.int64]
K = TypeVar("K")

LOOKED_UP = {0xB6: Stub.VTABLE, 0xB9: Stub.ITABLE}  # invokevirtual, invokeinterface
_STATIC = 0xB8
_MOST = 8  # places kept of one key
_ARGUMENT = re.compile(r"\[*(?:L[^;]*;|[ZBCSIJFD])")


class Led:
    """Of one code image."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._tables: dict[tuple[str, str], dict[int, None]] = {}  # by name and descriptor
        self._adapters: dict[tuple[bool, str], dict[int, None]] = {}  # by what looks at the receiver, and fingerprint

    def note(self, v: Version, site: I64, stub: I64, looks: I64, callees: list[Invoked]) -> None:
        """Of the calls of `v` (addresses, own stubs or 0, 0 or 1), as it was read last."""
        code = self._image.code(v)
        to = calls.targets(code, v.start, np.where(looks != 0, site, stub + calls.STUB_JUMP) - v.start)
        for target, checks, callee in zip(to.tolist(), (looks != 0).tolist(), callees, strict=True):
            at = self._image.at(target, max(v.loaded, v.patched)) if target > 0 else None
            what = None if at is None or at is v else stub_of(at)
            if what == Stub.ADAPTER:
                _keep(self._adapters, (checks, fingerprint(callee)), target)
            elif checks and at is not None and what == LOOKED_UP.get(callee.opcode):
                _keep(self._tables, (callee.name, callee.descriptor), at.start)

    def tables(self, callee: Invoked) -> list[int]:
        """Stubs that calls of this name have led to."""
        return list(self._tables.get((callee.name, callee.descriptor), ()))

    def adapters(self, callee: Invoked, looks: bool) -> list[int]:
        """Entries of adapters that calls which look, or not, at the receiver come to with such arguments."""
        return list(self._adapters.get((looks, fingerprint(callee)), ()))


def _keep(known: dict[K, dict[int, None]], key: K, target: int) -> None:
    those = known.setdefault(key, {})
    if len(those) < _MOST:
        those[target] = None


def fingerprint(callee: Invoked) -> str:
    """As AdapterFingerPrint: all integers but long are one type, all references another."""
    arguments = callee.descriptor[1:].partition(")")[0]
    basic = ("I" if a in "ZBCS" else a if len(a) == 1 else "L" for a in _ARGUMENT.findall(arguments))
    return ("" if callee.opcode == _STATIC else "L") + "".join(basic)
