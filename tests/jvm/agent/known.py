"""A consumer's knowledge after reading an export: the records folded in the most obvious way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from jvm.export import records as export
from jvm.export.parse import iter_records
from jvm.export.records import Record
from jvm.export.ring import RingReader

R = TypeVar("R", bound=Record)


@dataclass
class Known:
    records: list[Record] = field(default_factory=list)
    nmethods: dict[int, export.NmethodLoad] = field(default_factory=dict)
    methods: dict[int, export.Method] = field(default_factory=dict)
    classes: dict[int, export.Class] = field(default_factory=dict)
    definitions: dict[int, export.ClassDef] = field(default_factory=dict)
    stubs: dict[int, export.DynamicCode] = field(default_factory=dict)
    codelets: dict[int, export.Codelet] = field(default_factory=dict)
    threads: dict[int, str] = field(default_factory=dict)
    interpreter: export.Interpreter | None = None
    cache: export.CodeCache | None = None
    replay: dict[int, export.NmethodLoad] | None = None

    def read(self, ring: RingReader) -> int:
        """Takes the pending records; returns how many bytes that was."""
        data = ring.drain()
        for record in iter_records(data):
            self.add(record)
        return len(data)

    def add(self, record: Record) -> None:
        self.records.append(record)
        match record:
            case export.NmethodLoad():
                self.nmethods[record.address] = record
                if self.replay is not None:
                    self.replay[record.address] = record
            case export.NmethodUnload():
                self.nmethods.pop(record.address, None)
                if self.replay is not None:
                    self.replay.pop(record.address, None)
            case export.Method():
                self.methods[record.id] = record
            case export.Class():
                self.classes[record.id] = record
            case export.ClassDef():
                self.definitions[record.id] = record
            case export.DynamicCode():
                self.stubs[record.address] = record
            case export.Codelet():
                self.codelets[record.start] = record
            case export.Interpreter():
                self.interpreter = record
            case export.CodeCache():
                self.cache = record
            case export.ThreadStart():
                self.threads[record.os_tid] = record.name
            case export.ThreadEnd():
                self.threads.pop(record.os_tid, None)
            case export.ReplayBegin():
                self.replay = {}
            case export.ReplayEnd():
                if self.replay is not None:
                    self.nmethods, self.replay = self.replay, None

    def of(self, kind: type[R]) -> list[R]:
        return [record for record in self.records if type(record) is kind]

    def name(self, method: int) -> str:
        """class.name(signature) with dots and JVM types: ``java.lang.Object.<init>()V``."""
        known = self.methods[method]
        return f"{known.class_signature[1:-1].replace('/', '.')}.{known.name}{known.signature}"

    def covers(self, start: int, end: int) -> bool:
        """Whether every address of [start, end) lies in something known."""
        ranges = [(load.address, load.end) for load in self.nmethods.values()]
        ranges += [(stub.address, stub.end) for stub in self.stubs.values()]
        if self.interpreter is not None:
            ranges.append((self.interpreter.start, self.interpreter.end))
        at = start
        for low, high in sorted(ranges):
            if low <= at < high:
                at = high
        return at >= end
