"""The classes of a process and the callees of their bytecode. A class is dropped with its methods when it was unloaded
and that time is asked about no more.

Class files are kept as they were told and read when something is asked of them: few are. Files beyond the limit are
dropped, the oldest first, and are then not known.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm import names
from jvm.bytecode import counts as bytecode
from jvm.bytecode.class_file import (
    FINAL,
    INTERFACE,
    INVOKEDYNAMIC,
    INVOKESTATIC,
    LINE_DTYPE,
    PRIVATE,
    STATIC,
    ClassFile,
    ClassFileError,
    Invoked,
    utf8,
)
from jvm.bytecode.opcodes import INVOKEINTERFACE, INVOKEVIRTUAL
from jvm.export import records as export

MAX_BYTES = 1 << 28
"""Of class files kept."""
READ = 1024
"""Class files kept in a form that can be asked."""
STEPS = 1 << 14
"""Methods of which it is remembered where their bytecode jumps."""
_MOST_SUPERCLASSES = 64
CANDIDATES = 256
"""Classes that are read, at most, to know which methods a virtual call may lead to: 30 ms."""
ABSTRACT = 0x400


class Declared(NamedTuple):
    """A method."""

    holder: str
    bound: bool  # no other can be called instead, whatever the receiver (Method::can_be_statically_bound)


class Callee(NamedTuple):
    """A method that a call leads to."""

    holder: str
    name: str
    descriptor: str

    @property
    def display(self) -> str:
        return names.display(f"L{self.holder};", self.name)


class Classes:
    """Fed with export records; others than those below are left out."""

    def __init__(self) -> None:
        self.methods: dict[int, export.Method] = {}
        self._methods_of: dict[int, list[int]] = {}  # class → its methods
        self._definition: dict[int, int] = {}  # class → definition
        self._name: dict[int, str] = {}  # of a class
        self._named: dict[str, int] = {}  # class, by name: the last of that name
        self._data: OrderedDict[int, bytes] = OrderedDict()  # by definition
        self._bytes = 0
        self._read: OrderedDict[int, ClassFile | None] = OrderedDict()
        self._steps: dict[int, NDArray[np.int32] | None] = {}  # of methods; emptied when it is full, as the next
        self._calls: dict[int, tuple[tuple[int, Callee], ...]] = {}
        self._stretches: dict[int, NDArray[np.int32] | None] = {}
        self.told = 0  # classes and class files, so far

    def add(self, record: export.Class | export.ClassDef | export.Method) -> None:
        match record:
            case export.Method():
                if record.class_id and record.id not in self.methods:
                    self._methods_of.setdefault(record.class_id, []).append(record.id)
                self.methods[record.id] = record
            case export.Class():
                self.told += 1
                self._definition[record.id] = record.definition
                self._name[record.id] = record.signature[1:-1]
                self._named[record.signature[1:-1]] = record.id
            case export.ClassDef():
                self.told += 1
                self._bytes += len(record.data) - len(self._data.pop(record.id, b""))
                self._data[record.id] = bytes(record.data)
                while self._bytes > MAX_BYTES:
                    self._bytes -= len(self._data.popitem(last=False)[1])

    def remove(self, class_id: int) -> list[int]:
        """Forgets a class and its methods; which those were."""
        definition = self._definition.pop(class_id, 0)
        self._bytes -= len(self._data.pop(definition, b""))
        self._read.pop(definition, None)
        name = self._name.pop(class_id, "")
        if self._named.get(name) == class_id:
            del self._named[name]
        methods = self._methods_of.pop(class_id, [])
        for method in methods:
            del self.methods[method]
        return methods

    def remove_method(self, method: int) -> None:
        """Forgets one that was told of without its class."""
        self.methods.pop(method, None)

    def __len__(self) -> int:
        return len(self._name)

    def knows(self, method: int) -> bool:
        """Whether the bytecode of a method can be asked for."""
        told = self.methods.get(method)
        return told is not None and self._definition.get(told.class_id, 0) in self._data

    def lines(self, class_id: int, name: str, descriptor: str) -> NDArray[np.void]:
        """LINE_DTYPE rows of a method, in the order of its code; empty where they are not known."""
        file = self._file(class_id)
        try:
            found = file.lines(name, descriptor) if file is not None else np.empty(0, LINE_DTYPE)
        except ClassFileError:
            found = np.empty(0, LINE_DTYPE)
        return found[np.argsort(found["bci"], kind="stable")]

    def steps(self, method: int) -> NDArray[np.int32] | None:
        """The jumps in the bytecode of a method (`jvm.bytecode.counts.steps`); None: it is not known."""
        return self._of_code(method, self._steps, bytecode.steps)

    def stretches(self, method: int) -> NDArray[np.int32] | None:
        """The stretches of a method that run in one go (`jvm.bytecode.counts.stretches`); None: it is not known."""
        return self._of_code(method, self._stretches, bytecode.stretches)

    def _of_code(
        self, method: int, known: dict[int, NDArray[np.int32] | None], find: Callable[[bytes], NDArray[np.int32] | None]
    ) -> NDArray[np.int32] | None:
        """What `find` says of a method's code, once it is there, and `known` since."""
        if method in known:
            return known[method]
        told = self.methods.get(method)
        file = self._file(told.class_id) if told is not None else None
        code = file.code(told.name, told.signature) if told is not None and file is not None else None
        if code is None:
            return None
        if len(known) >= STEPS:
            known.clear()
        return known.setdefault(method, find(code))

    def straight(self, callee: Callee) -> int:
        """How many bytecodes an invocation executes, if the method has no jumps; else 0, also where it is not known."""
        file = self._file(self._named.get(callee.holder, 0))
        code = file.code(callee.name, callee.descriptor) if file is not None else None
        found = bytecode.stretches(code) if code is not None else None
        return int(found[0, 1]) if found is not None and len(found) == 1 else 0

    def calls(self, method: int) -> tuple[tuple[int, Callee], ...]:
        """The calls in a method's bytecode that can go to one method alone, of a final method too: bci and callee."""
        if method in self._calls:
            return self._calls[method]
        steps = self.steps(method)
        if steps is None:
            return ()
        found = []
        for bci in steps[steps[:, 1] == bytecode.CALL, 0].tolist():
            callee = self.invoked(method, bci)
            declared = self.declared(callee) if callee is not None else None
            if callee is not None and declared is not None and declared.bound:
                found.append((bci, Callee(declared.holder, callee.name, callee.descriptor)))
        if len(self._calls) >= STEPS:
            self._calls.clear()
        return self._calls.setdefault(method, tuple(found))

    def invoked(self, method: int, bci: int) -> Invoked | None:
        """The callee of a method's (the agent's id) bytecode at `bci`; None: there is none, or it is not known."""
        told = self.methods.get(method)
        file = self._file(told.class_id) if told is not None else None
        if told is None or file is None:
            return None
        code = file.code(told.name, told.signature)
        return file.invoked(code, bci) if code is not None else None

    def virtual(self, method: int, bci: int) -> Invoked | None:
        """The callee of a method's bytecode at `bci`, if that may lead to several methods; None: it does not, or is not
        known."""
        callee = self.invoked(method, bci)
        if callee is None or callee.opcode not in (INVOKEVIRTUAL, INVOKEINTERFACE):
            return None
        declared = self.declared(callee)
        return None if declared is not None and declared.bound else callee

    def selected(self, callee: Invoked) -> list[Callee]:
        """The methods that a virtual call may lead to: those in the class that is named, and below it. None of them, if
        more classes than CANDIDATES have its name and its descriptor."""
        texts = utf8(callee.name), utf8(callee.descriptor)
        data = ((name, self._data.get(self._definition.get(id_, 0), b"")) for name, id_ in self._named.items())
        those = [name for name, of in data if all(text in of for text in texts)]
        if len(those) > CANDIDATES:
            return []
        return sorted(Callee(name, callee.name, callee.descriptor) for name in those if self._runs(name, callee))

    def _runs(self, name: str, callee: Invoked) -> bool:
        """Whether class `name` has a method of its own that a virtual call of `callee` may lead to."""
        file = self._file(self._named[name])
        flags = file.method_flags(callee.name, callee.descriptor) if file is not None else None
        if flags is None or flags & (ABSTRACT | PRIVATE | STATIC):
            return False
        seen, open_ = {name}, [name]
        while open_:
            at = open_.pop()
            if at == callee.owner:
                return True
            file = self._file(self._named.get(at, 0))
            try:
                upper = (*file.interface_names, file.super_name) if file is not None else ()
            except ClassFileError:
                upper = ()
            open_ += [other for other in upper if other is not None and other not in seen]
            seen.update(open_)
        return False

    def declared(self, callee: Invoked) -> Declared | None:
        """The method that is named, as resolution finds it in the class or in those above; None: not known."""
        bound = callee.opcode in (INVOKESTATIC, INVOKEDYNAMIC) or callee.name == "<init>"
        for owner, file in self._upwards(callee.owner):
            flags = file.method_flags(callee.name, callee.descriptor) if file is not None else None
            if file is not None and flags is not None:
                return Declared(owner, bound or bool(flags & (PRIVATE | STATIC | FINAL) or file.flags & FINAL))
        return Declared(callee.owner, True) if bound else None

    def extends(self, name: str, above: str) -> bool | None:
        """Whether class `name` is `above` or below it; None: not known, or that is an interface."""
        over = self._file(self._named.get(above, 0))
        if over is None or over.flags & INTERFACE:
            return None
        for owner, file in self._upwards(name):
            if owner == above:
                return True
            if file is not None and file.super_name is None:
                return False
        return None

    def _upwards(self, name: str) -> Iterator[tuple[str, ClassFile | None]]:
        """A class and those above it, as far as they are known: the first that is not is the last."""
        owner: str | None = name
        for _ in range(_MOST_SUPERCLASSES):
            if owner is None:
                return
            file = self._file(self._named.get(owner, 0))
            yield owner, file
            owner = file.super_name if file is not None else None

    def _file(self, class_id: int) -> ClassFile | None:
        definition = self._definition.get(class_id, 0)
        if definition in self._read:
            self._read.move_to_end(definition)
            return self._read[definition]
        data = self._data.get(definition)
        if data is None:
            return None
        try:
            file = ClassFile.of(data)
        except ClassFileError:
            file = None
        self._read[definition] = file
        while len(self._read) > READ:
            self._read.popitem(last=False)
        return file
