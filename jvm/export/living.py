"""Which records of a JIT export still matter: those of the code, classes and threads that the JVM has now.

For a reader that begins anew, the past of the code is of no use: code that was unloaded, overlapped or told again,
bytes that patches changed, threads and classes that are gone. So of each thing the record that describes it now is
enough: of a stub, a class, a thread, the last one; of a method the first, which stands before all that use its id, and
of an nmethod too, which stands before its states. Patches become part of the bytes that they changed. Stacks and
mounts are of the past, all of them; of the methods that only stacks use the last ones stay.

The rules by which code gives way to code are those of `jvm.code.image`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jvm.export import records as export
from jvm.export.records import RecordFlag, RecordType
from jvm.export.unowned import Unowned
from jvm.intervals import Intervals

MAX_CACHE = 1 << 31
"""HotSpot's own limit (ReservedCodeCacheSize)."""
Key = tuple[int, int]  # the record's type, and its id, address or tid; 0: there is one
_PRIMER = -1
"""Instead of a tid: the record that ended the telling of all that was there at the beginning."""


class Place(NamedTuple):
    at: int  # of the record in the file
    size: int
    code: bool  # it has code, which may have been patched since


class _Nmethod(NamedTuple):
    end: int
    loaded: int
    method: int
    compile_id: int


class Living:
    """Takes all records of an export in order. Everything here is dropped by the record that tells of its end."""

    def __init__(self) -> None:
        self._places: dict[Key, Place] = {}  # in the order of the file
        self._nmethods: Intervals[_Nmethod] = Intervals()
        self._stub_end: dict[Key, int] = {}
        self._stub_keys: list[tuple[int, int]] = []  # (address, type), ascending
        self._longest = 0  # of the stubs
        self._methods: dict[int, list[int]] = {}  # class → its methods
        self._unowned = Unowned()
        self._definition: dict[int, int] = {}  # class → CLASS_DEF
        self._replayed: set[int] | None = None  # nmethods told of in the replay under way
        self._replay_began = 0
        self._low = self._high = 0
        self._bytes = np.zeros(0, np.uint8)  # of the code cache; pages without code take no memory

    def take(self, record: export.Record, at: int, size: int) -> None:
        """The next record, which stands at `at` of the file."""
        here = Place(at, size, False)
        match record:
            case export.NmethodLoad():
                self._load(record, Place(at, size, True))
            case export.NmethodUnload():
                known = self._nmethods.get(record.address)
                if known is not None and known.loaded <= record.tsc and record.method in (0, known.method):
                    self._evict(record.address, record.address + 1)
            case export.NmethodState():
                known = self._nmethods.get(record.address)
                if known is not None and record.compile_id in (0, known.compile_id):
                    self._keep(RecordType.NMETHOD_STATE, record.address, here)
            case export.CodePatch():
                if len(record.code):
                    self._put(record.address, record.code)
                else:
                    self._keep(RecordType.CODE_PATCH, 0, here)
            case export.Blob():
                self._stub(RecordType.BLOB, record.address, record.end, record.code, Place(at, size, True))
            case export.DynamicCode():
                self._stub(RecordType.DYNAMIC_CODE, record.address, record.end, record.code, Place(at, size, True))
            case export.Interpreter():
                self._stub(RecordType.INTERPRETER, record.start, record.end, record.code, Place(at, size, True))
            case export.Codelet():
                self._stub(RecordType.CODELET, record.start, record.end, memoryview(b""), here)
            case export.DispatchTable():
                self._keep(RecordType.DISPATCH_TABLE, record.address, here)
            case export.CodeCache():
                self._keep(RecordType.CODE_CACHE, 0, here)
                self._bounds(record.low, record.high)
            case export.Class():
                self._keep(RecordType.CLASS, record.id, here)
                self._define(record.id, record.definition)
            case export.ClassDef():
                self._keep(RecordType.CLASS_DEF, record.id, here)
            case export.Method():
                if self._places.setdefault((RecordType.METHOD, record.id), here) is here and record.class_id:
                    self._methods.setdefault(record.class_id, []).append(record.id)
                self._places.pop((RecordType.METHOD, self._unowned.told(record)), None)
            case export.ClassUnload():
                self._unload_class(record.id)
            case export.ThreadStart():
                self._keep(RecordType.THREAD_START, record.os_tid, here)
                if record.flags & RecordFlag.REPLAYED:
                    self._places.setdefault((RecordType.THREAD_START, _PRIMER), here)
            case export.ThreadEnd():
                self._places.pop((RecordType.THREAD_START, record.os_tid), None)
            case export.ReplayBegin():
                self._replayed, self._replay_began = set(), record.tsc
            case export.ReplayEnd():
                self._heal()
                self._places.setdefault((RecordType.REPLAY_END, 0), here)
            case export.Overflow():
                self._replayed = None
                self._keep(RecordType.OVERFLOW, 0, here)
            case export.AgentInfo():
                self._keep(RecordType.AGENT_INFO, 0, here)
            case export.VmDeath():
                self._keep(RecordType.VM_DEATH, 0, here)
            case _:
                pass

    def places(self) -> Iterator[Place]:
        """Of the records that matter, in order, each once."""
        defined = set(self._definition.values())
        last = -1
        for (kind, id_), place in self._places.items():
            if place.at != last and (kind != RecordType.CLASS_DEF or id_ in defined):
                yield place
            last = place.at

    def update(self, record: export.Record) -> None:
        """Puts the bytes as they are now into a record of code that was read from a writable buffer."""
        if isinstance(record, export.NmethodLoad | export.DynamicCode | export.Interpreter):
            start = record.start if isinstance(record, export.Interpreter) else record.address
            lo, hi = start - self._low, start - self._low + len(record.code)
            if lo >= 0 and hi <= len(self._bytes):
                record.code[:] = self._bytes[lo:hi].data

    def _keep(self, kind: int, id_: int, here: Place) -> None:
        self._places.pop((kind, id_), None)
        self._places[kind, id_] = here

    # ---- code

    def _bounds(self, low: int, high: int) -> None:
        if (low, high) != (self._low, self._high) and 0 < high - low <= MAX_CACHE:
            self._low, self._high = low, high
            self._bytes = np.zeros(high - low, np.uint8)

    def _put(self, start: int, code: memoryview) -> None:
        lo, hi = start - self._low, start - self._low + len(code)
        if lo >= 0 and hi <= len(self._bytes):
            self._bytes[lo:hi] = np.frombuffer(code, np.uint8)

    def _load(self, record: export.NmethodLoad, here: Place) -> None:
        if self._replayed is not None:
            self._replayed.add(record.address)
        if not len(record.code):
            return
        known = self._nmethods.get(record.address)
        self._put(record.address, record.code)
        if known is not None and known[:1] + known[2:] == (record.end, record.method, record.compile_id):
            return
        self._evict(record.address, record.end)
        for key in [*self._overlapping(record.address, record.end)]:
            self._stub_keys.remove(key)
            del self._stub_end[key[1], key[0]], self._places[key[1], key[0]]
        value = _Nmethod(record.end, record.tsc, record.method, record.compile_id)
        self._nmethods.put(record.address, record.end, value)
        self._keep(RecordType.NMETHOD_LOAD, record.address, here)

    def _stub(self, kind: int, start: int, end: int, code: memoryview, here: Place) -> None:
        self._evict(start, end)
        if (kind, start) not in self._stub_end:
            insort(self._stub_keys, (start, kind))
        self._stub_end[kind, start] = end
        self._longest = max(self._longest, end - start)
        self._keep(kind, start, here)
        self._put(start, code)

    def _overlapping(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Keys of the stubs there."""
        lo = bisect_right(self._stub_keys, (start - self._longest, 0))
        for key in self._stub_keys[lo : bisect_left(self._stub_keys, (end, 0))]:
            if self._stub_end[key[1], key[0]] > start:
                yield key

    def _evict(self, start: int, end: int) -> None:
        for address in self._nmethods.take(start, end):
            del self._places[RecordType.NMETHOD_LOAD, address]
            self._places.pop((RecordType.NMETHOD_STATE, address), None)

    def _heal(self) -> None:
        """An nmethod of which a replay says nothing is gone."""
        if self._replayed is not None:
            gone = [a for a, n in self._nmethods.items() if n.loaded < self._replay_began and a not in self._replayed]
            for address in gone:
                self._evict(address, address + 1)
        self._replayed = None

    # ---- classes

    def _define(self, class_id: int, definition: int) -> None:
        old = self._definition.get(class_id, 0)
        if old not in (0, definition):
            self._places.pop((RecordType.CLASS_DEF, old), None)
        if definition:
            self._definition[class_id] = definition

    def _unload_class(self, class_id: int) -> None:
        self._places.pop((RecordType.CLASS, class_id), None)
        self._places.pop((RecordType.CLASS_DEF, self._definition.pop(class_id, 0)), None)
        for method in self._methods.pop(class_id, ()):
            self._places.pop((RecordType.METHOD, method), None)
