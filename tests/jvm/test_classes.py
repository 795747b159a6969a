"""Which method a call names, and whose each stub of an nmethod is."""

from __future__ import annotations

import numpy as np
import pytest

from jvm.bytecode.class_file import FINAL, INTERFACE, PRIVATE, STATIC, Invoked
from jvm.bytecode.classes import ABSTRACT, CANDIDATES, Callee, Classes, Declared
from jvm.code.image import CodeImage
from jvm.code.version import FOREVER
from stages.follow.repair.call_targets import Callees
from tests.jvm.exportwriter import Writer
from tests.jvm.test_classfile import METHODREF, OPCODES, Made
from tests.jvm.test_classfile import call as invoke

VIRTUAL, SPECIAL = OPCODES["invokevirtual"], OPCODES["invokespecial"]


def told(writer: Writer, id_: int, name: str, made: Made, flags: int = 1, above: str | None = None) -> Writer:
    return writer.class_def(id_, name, made.bytes(flags=flags, above=above)).class_(id_, f"L{name};", id_)


def of(*methods: tuple[str, int]) -> Made:
    made = Made()
    for name, flags in methods:
        made.method(name, "()V", None, flags)
    return made


def classes_of(writer: Writer) -> Classes:
    image = CodeImage()
    image.feed(writer.bytes())
    return image.classes


def test_a_method_is_found_in_the_class_or_above() -> None:
    w = told(Writer(), 1, "Top", of(("open", 1), ("shut", FINAL), ("own", PRIVATE), ("all", STATIC)))
    told(told(w, 2, "Mid", of(("open", 1)), above="Top"), 3, "Leaf", of(("mine", 1)), flags=FINAL, above="Mid")
    told(w, 4, "Odd", of(), above="NotTold")
    classes = classes_of(w)

    def declared(owner: str, name: str, opcode: int = VIRTUAL) -> Declared | None:
        return classes.declared(Invoked(opcode, owner, name, "()V"))

    assert declared("Top", "open") == Declared("Top", False)
    assert declared("Leaf", "open") == Declared("Mid", False)  # the method is not final, though the class is
    assert declared("Leaf", "mine") == Declared("Leaf", True)
    assert declared("Leaf", "shut") == Declared("Top", True)
    assert declared("Leaf", "own") == Declared("Top", True)
    assert declared("Leaf", "open", SPECIAL) == Declared("Mid", False)
    assert declared("Leaf", "all", OPCODES["invokestatic"]) == Declared("Top", True)
    assert declared("Odd", "all", OPCODES["invokestatic"]) == Declared("Odd", True)
    assert declared("Odd", "<init>", SPECIAL) == Declared("Odd", True)
    assert declared("Odd", "open") is None
    assert declared("NotTold", "open") is None
    assert declared("Top", "nothing") is None


def test_which_class_extends_which() -> None:
    w = told(told(Writer(), 1, "Top", of()), 2, "Mid", of(), above="Top")
    told(told(w, 3, "Leaf", of(), above="Mid"), 4, "Face", of(), flags=INTERFACE)
    told(told(w, 5, "Odd", of(), above="NotTold"), 6, "Ring", of(), above="Ring")
    extends = classes_of(w).extends
    assert extends("Leaf", "Leaf")
    assert extends("Leaf", "Top")
    assert extends("Top", "Leaf") is False
    assert extends("Mid", "Leaf") is False
    assert extends("Leaf", "Face") is None  # interfaces are not looked for
    assert extends("Odd", "Top") is None
    assert extends("Leaf", "NotTold") is None
    assert extends("Ring", "Top") is None


def test_which_methods_a_virtual_call_may_lead_to() -> None:
    w = told(told(Writer(), 1, "Top", of(("open", ABSTRACT)), flags=INTERFACE), 2, "Mid", of(("open", 1)), above="Top")
    told(told(w, 3, "Leaf", of(("open", 1)), above="Mid"), 4, "Quiet", of(("mine", 1)), above="Mid")
    told(told(w, 5, "Apart", of(("open", 1))), 6, "Ring", of(("open", 1)), above="Ring")
    classes = classes_of(w)
    found = classes.selected(Invoked(VIRTUAL, "Top", "open", "()V"))
    assert [callee.display for callee in found] == ["Leaf.open", "Mid.open"]
    assert classes.selected(Invoked(VIRTUAL, "Leaf", "open", "()V")) == [Callee("Leaf", "open", "()V")]
    assert classes.selected(Invoked(VIRTUAL, "Top", "open", "(I)V")) == []
    for id_ in range(10, 10 + CANDIDATES):
        told(w, id_, f"C{id_}", of(("open", 1)), above="Top")
    assert classes_of(w).selected(Invoked(VIRTUAL, "Top", "open", "()V")) == []


def test_a_class_that_is_above_itself_ends() -> None:
    made = of()
    assert classes_of(told(Writer(), 1, "A", made, above="A")).declared(Invoked(VIRTUAL, "A", "f", "()V")) is None


CALLER, STUBS = 0x10000, 0x80
CALLS = ("open", "shut", "own", "shut", "open")  # from the second on those that cannot be overridden share


def image_of(vm: str, stubs: int, order: tuple[int, ...] = (0, 1, 2, 3, 4)) -> CodeImage:
    """B.main makes the CALLS; in the machine code in this order."""
    main = Made()
    code = b"".join(invoke(VIRTUAL, main.ref(name, "()V", "B", METHODREF)) for name in CALLS)
    main.method("main", "()V", code)
    body = bytearray(b"\x90" * (STUBS + 16 * stubs))
    for k in range(len(CALLS)):
        body[16 * k : 16 * k + 5] = b"\xe8\xfb\xff\xff\xff"
    for k in range(stubs):
        body[STUBS + 16 * k : STUBS + 16 * k + 15] = b"\x48\xbb" + bytes(8) + b"\xe9\xfb\xff\xff\xff"
    w = Writer(tsc=100).agent_info(version=vm)
    told(w, 1, "A", main)
    told(w, 2, "B", of(("open", 1), ("shut", FINAL), ("own", PRIVATE)))
    w.method(1, "LA;", "main", class_id=1).dynamic_code(CALLER - 0x100, "resolve_opt_virtual_call", bytes(0x100))
    pcs = [(16 * k + 5, [(1, 3 * bci)]) for k, bci in enumerate(order)]
    w.nmethod_load(CALLER, bytes(body), 1, pcs, level=3)
    image = CodeImage()
    image.feed(w.bytes())
    return image


def stubs(image: CodeImage) -> list[int]:
    """By call; −1: not known."""
    return [(int(stub) - CALLER - STUBS) // 16 if stub else -1 for stub in Callees(image).now().stub]


@pytest.mark.parametrize(
    ("vm", "count", "order", "expected"),
    [
        ("17.0.1+12", 5, (0, 1, 2, 3, 4), [0, 1, 2, 3, 4]),
        ("17.0.1+12", 4, (0, 1, 2, 3, 4), [-1] * 5),
        ("25+36-LTS", 4, (0, 1, 2, 3, 4), [0, 2, 3, 2, 1]),
        ("25+36-LTS", 4, (4, 2, 1, 3, 0), [0, 3, 2, 2, 1]),  # those that are shared in the order of bytecode
        ("25+36-LTS", 5, (0, 1, 2, 3, 4), [-1] * 5),
        ("strange", 5, (0, 1, 2, 3, 4), [0, 1, 2, 3, 4]),
    ],
)
def test_whose_each_stub_is(vm: str, count: int, order: tuple[int, ...], expected: list[int]) -> None:
    assert stubs(image_of(vm, count, order)) == expected


def test_a_call_that_was_read_tells_whose_stub_it_is() -> None:
    image = image_of("25", 4)
    to = STUBS + 16 * 3 - 0x15  # of `shut`, at 0x10, which was taken to have the one before
    image.feed(Writer(tsc=900).code_patch(CALLER + 0x11, 800, 900, to.to_bytes(4, "little")).bytes())
    assert stubs(image) == [0, 3, 2, 3, 1]
    (version,) = [v for v in image.versions() if v.start == CALLER]
    assert version.until == FOREVER
    assert np.all(image.code(version)[0x10:0x15] == np.frombuffer(b"\xe8" + to.to_bytes(4, "little"), np.uint8))
