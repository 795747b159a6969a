"""Stacks as the agent told them, as lines of Java frames, and the same as the JVM prints them."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from jvm.bytecode.class_file import ClassFile
from jvm.export import records as export
from jvm.export.records import StackFlag
from jvm.export.ring import RingReader
from tests.jvm.agent.java_process import jcmd
from tests.jvm.agent.known import Known

NATIVE = 0x100


class Line(NamedTuple):
    """A Java frame; `line` 0: not known, −1: of a native method."""

    method: str
    line: int


class Told(NamedTuple):
    lines: list[Line]  # innermost first
    whole: bool


class Stacks:
    """What is told in a ring, with its stacks."""

    def __init__(self, reader: RingReader) -> None:
        self.reader, self.known = reader, Known()
        self.last: dict[int, export.Stack] = {}  # of each thread
        self.count = 0
        self._files: dict[str, ClassFile | None] = {}

    def read(self) -> list[export.Stack]:
        """Those told since the last time. Of each the methods must be known by then."""
        before = len(self.known.records)
        while self.known.read(self.reader):
            pass
        new, methods = [], set()
        for record in self.known.records:
            if isinstance(record, export.Method) and not record.class_id:
                methods.add(record.id)
        for record in self.known.records[before:]:
            if isinstance(record, export.Stack):
                assert {0, *methods}.issuperset(record.frames["method"].tolist())
                assert record.before < record.tsc
                assert 0 < len(record.frames) <= 1024
                self.last[record.os_tid] = record
                new.append(record)
        self.count += len(new)
        return new

    def told(self, stack: export.Stack) -> Told | None:
        """None: code of it has not been told yet, or its place is that of other code, too."""
        lines: list[Line] = []
        loads = [r for r in self.known.records if isinstance(r, export.NmethodLoad)]
        for pc, method, bci in stack.frames.tolist():
            if method:
                assert bci >= 0 or self.known.methods[method].modifiers & NATIVE
                lines.append(self._line(method, bci))
                continue
            here = {r.compile_id: r for r in loads if r.address <= pc <= r.end}
            if len(here) > 1:
                return None
            load = next(iter(here.values()), None)
            if load is None:
                if not any(stub.address <= pc <= stub.end for stub in self.known.stubs.values()):
                    return None
            elif not load.level:
                lines.append(self._line(load.method, -1))
            else:
                (at,) = np.flatnonzero(load.pc_offset == pc - load.address)
                frames = load.frames[load.frame_at[at] : load.frame_at[at + 1]].tolist()
                lines += [self._line(method, bci) for method, bci in frames]
        return Told(lines, bool(stack.stack_flags & StackFlag.WHOLE))

    def file(self, signature: str) -> ClassFile | None:
        """Of a class that was told as it was loaded."""
        if signature not in self._files:
            definitions = [c.definition for c in self.known.classes.values() if c.signature == signature]
            found = self.known.definitions.get(definitions[-1]) if definitions else None
            if found is None:
                return None
            self._files[signature] = None if found.flags else ClassFile.of(bytes(found.data))
        return self._files[signature]

    def _line(self, method: int, bci: int) -> Line:
        told = self.known.methods[method]
        name = f"{told.class_signature[1:-1].replace('/', '.')}.{told.name}"
        if told.modifiers & NATIVE:
            assert bci == -1
            return Line(name, -1)
        if bci == -1:  # compiled code, at its method's entry
            return Line(name, 0)
        assert 0 <= bci < told.code_size
        file = self.file(told.class_signature)
        if file is None:
            return Line(name, 0)
        lines = file.lines(told.name, told.signature)
        before = lines[lines["bci"] <= bci]
        return Line(name, int(before[np.argmax(before["bci"])]["line"]) if len(before) else 0)


def printed(pid: int) -> dict[int, list[Line]]:
    """What the JVM says of its threads that have Java frames, by their tid."""
    found: dict[int, list[Line]] = {}
    lines: list[Line] = []
    for text in jcmd(pid, "Thread.print").splitlines():
        if head := re.match(r'"(.*?)" .*nid=(0x[0-9a-f]+|\d+)', text):
            lines = found.setdefault(int(head[2], 0), [])
        elif frame := re.match(r"\tat (\S+)\((?:\S*/)?([^():]*)(?::(\d+))?\)", text):
            name = re.sub(r"/(0x\w+)", r".\1", frame[1])
            lines.append(Line(name, -1 if frame[2] == "Native Method" else int(frame[3] or 0)))
    return {tid: lines for tid, lines in found.items() if lines}


def same(told: list[Line], jvm: list[Line]) -> bool:
    """Lines are compared where both are known."""
    return len(told) == len(jvm) and all(
        a.method == b.method and (a.line == b.line or not a.line or not b.line) for a, b in zip(told, jvm, strict=True)
    )
