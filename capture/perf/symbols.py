"""Names of the code in the code cache, by address, for tools that take symbols from files (perf).

A file's symbol table knows no time, so an address has the name of the newest code that was told of there. Code that was
unloaded and not overwritten keeps its name: the trace of its time has no other. Names are the labels of `jvm.names`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from jvm import names
from jvm.code.codelets import label
from jvm.code.sites import stub_label
from jvm.export.records import (
    Blob,
    BlobKind,
    ClassUnload,
    Codelet,
    DynamicCode,
    Method,
    NmethodLoad,
    Record,
)
from jvm.export.unowned import Unowned

UNKNOWN_METHOD = "[unknown method]"


class Symbol(NamedTuple):
    start: int
    end: int
    name: str


class Symbols:
    """Held by address: a symbol goes when newer ones cover it, at the latest when there are twice as many as stood the
    last time. Names of methods are held until their class is unloaded."""

    def __init__(self) -> None:
        self._told: list[Symbol] = []  # oldest first, except the last time's, which are disjoint
        self._limit = 4096
        self._methods: dict[int, str] = {}
        self._of_class: dict[int, list[int]] = {}
        self._unowned = Unowned()

    def add(self, record: Record) -> None:
        match record:
            case Method():
                self._methods[record.id] = names.display(record.class_signature, record.name)
                if record.class_id:
                    self._of_class.setdefault(record.class_id, []).append(record.id)
                self._methods.pop(self._unowned.told(record), None)
            case ClassUnload():
                for method in self._of_class.pop(record.id, ()):
                    self._methods.pop(method, None)
            case NmethodLoad():
                self._put(record.address, record.end, self._methods.get(record.method, UNKNOWN_METHOD))
            case Codelet():
                self._put(record.start, record.end, label(record))
            case Blob() if record.kind == BlobKind.NMETHOD:
                pass  # told by its load, with its method
            case DynamicCode() if record.name != "Interpreter":  # which its codelets name
                self._put(record.address, record.end, stub_label(record.name))
            case _:
                pass

    def _put(self, start: int, end: int, name: str) -> None:
        if 0 <= start < end < 1 << 64:
            self._told.append(Symbol(start, end, name))
        if len(self._told) > self._limit:
            self._told = self.standing()
            self._limit = max(self._limit, 2 * len(self._told))

    def standing(self) -> list[Symbol]:
        """Ascending and disjoint: each address has the name of the newest that holds it."""
        kept: list[Symbol] = []  # ascending
        for symbol in reversed(self._told):
            at = bisect_right(kept, symbol.start, key=lambda other: other.end)  # the first that ends behind its start
            begin, free = symbol.start, []
            while begin < symbol.end:
                end = min(kept[at].start, symbol.end) if at < len(kept) else symbol.end
                if begin < end:
                    free.append((at, Symbol(begin, end, symbol.name)))
                if at == len(kept):
                    break
                begin, at = max(begin, kept[at].end), at + 1
            for place, piece in reversed(free):
                kept.insert(place, piece)
        return kept
