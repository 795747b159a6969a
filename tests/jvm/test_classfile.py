"""Class files: made by hand, those of the demo's JVM, mutated ones, and against javap."""

from __future__ import annotations

import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

import streamer.demo
from jvm.bytecode import class_file
from jvm.bytecode.class_file import ClassFile, ClassFileError, Invoked
from jvm.export import records as export
from jvm.export.parse import iter_records
from tests.fuzz.mutate import mutated
from tests.jdks import tool
from tests.jvm.bytecode import naive_class_file
from tests.jvm.bytecode.javap import below, disassembled

OPCODES = {
    "invokevirtual": 0xB6, "invokespecial": 0xB7, "invokestatic": 0xB8, "invokeinterface": 0xB9, "invokedynamic": 0xBA,
}  # fmt: skip
T = TypeVar("T")
METHODREF, INTERFACE_METHODREF, STRING, FIELDREF, DYNAMIC = 10, 11, 8, 9, 17


class Made:
    """A class file that is put together; each constant method returns the index."""

    def __init__(self) -> None:
        self.constants: list[bytes] = []
        self.fields: list[bytes] = []
        self.methods: list[bytes] = []
        self.places = 1

    def constant(self, data: bytes, places: int = 1) -> int:
        self.constants.append(data)
        self.places += places
        return self.places - places

    def utf8(self, text: str | bytes) -> int:
        raw = text if isinstance(text, bytes) else text.encode()
        return self.constant(struct.pack(">BH", 1, len(raw)) + raw)

    def long(self, tag: int = 5) -> int:
        return self.constant(struct.pack(">Bq", tag, 0x0A0A0A0A), places=2)

    def class_(self, name: str) -> int:
        return self.constant(struct.pack(">BH", 7, self.utf8(name)))

    def described(self, name: str, descriptor: str) -> int:
        return self.constant(struct.pack(">BHH", 12, self.utf8(name), self.utf8(descriptor)))

    def ref(self, name: str, descriptor: str, owner: str = "a/B", tag: int = METHODREF) -> int:
        return self.constant(struct.pack(">BHH", tag, self.class_(owner), self.described(name, descriptor)))

    def dynamic(self, name: str, descriptor: str, tag: int = 18) -> int:
        return self.constant(struct.pack(">BHH", tag, 7777, self.described(name, descriptor)))

    def attribute(self, name: str, data: bytes) -> bytes:
        return struct.pack(">HI", self.utf8(name), len(data)) + data

    def code(self, code: bytes) -> bytes:
        inner = self.attribute("LineNumberTable", bytes(6))
        handlers = struct.pack(">H", 1) + bytes(8)
        return self.attribute("Code", struct.pack(">HHI", 4, 4, len(code)) + code + handlers + b"\0\1" + inner)

    def member(self, name: str | bytes, descriptor: str, *attributes: bytes, flags: int = 1) -> bytes:
        head = struct.pack(">HHHH", flags, self.utf8(name), self.utf8(descriptor), len(attributes))
        return head + b"".join(attributes)

    def method(self, name: str | bytes, descriptor: str, code: bytes | None = None, flags: int = 1) -> None:
        attributes = [self.attribute("Signature", bytes(2))]
        if code is not None:
            attributes.append(self.code(code))
        self.methods.append(self.member(name, descriptor, *attributes, self.attribute("Deprecated", b""), flags=flags))

    def bytes(
        self, places: int | None = None, interfaces: Sequence[int] = (), flags: int = 1, above: str | None = None
    ) -> bytes:
        tail = struct.pack(">H", 1) + self.attribute("SourceFile", bytes(2))
        named = self.class_("A"), self.class_(above) if above else 0
        this = struct.pack(f">HHHH{len(interfaces)}H", flags, *named, len(interfaces), *interfaces)
        members = [struct.pack(">H", len(some)) + b"".join(some) for some in (self.fields, self.methods)]
        head = struct.pack(">IHHH", 0xCAFEBABE, 0, 61, self.places if places is None else places)
        return b"".join((head, *self.constants, this, *members, tail))


def call(opcode: int, index: int) -> bytes:
    return struct.pack(">BH", opcode, index) + bytes(2 * (opcode >= 0xB9))


def invocations(file: ClassFile, code: bytes) -> list[Invoked]:
    found = (file.invoked(code, bci) for bci in range(-2, len(code) + 2))
    return [invoked for invoked in found if invoked is not None]


# ---- made by hand


def test_what_each_invoke_names() -> None:
    made = Made()
    made.long()
    virtual = made.ref("clone", "()Ljava/lang/Object;", "[I")
    made.long(tag=6)
    special = made.ref("<init>", "()V", "java/lang/Object")
    static = made.ref("of", "(I)V", "an/Interface", INTERFACE_METHODREF)
    dynamic = made.dynamic("run", "()Ljava/lang/Runnable;")
    calls = ((0xB6, virtual), (0xB7, special), (0xB7, static), (0xB8, virtual), (0xB8, static), (0xB9, static))
    code = b"\x01".join(call(*c) for c in (*calls, (0xBA, dynamic)))
    file = ClassFile.of(memoryview(made.bytes(interfaces=(7, 7))))
    clone = "[I", "clone", "()Ljava/lang/Object;"
    of = "an/Interface", "of", "(I)V"
    assert invocations(file, code) == [
        (0xB6, *clone),
        (0xB7, "java/lang/Object", "<init>", "()V"),
        (0xB7, *of),
        (0xB8, *clone),
        (0xB8, *of),
        (0xB9, *of),
        (0xBA, "", "run", "()Ljava/lang/Runnable;"),
    ]
    assert file.invoked(code, 0) == Invoked(0xB6, *clone)
    assert file.invoked(code, 3) is None
    assert file.invoked(code, -len(code)) is None


@pytest.mark.parametrize("opcode", OPCODES.values())
def test_an_invoke_that_is_cut_names_nothing(opcode: int) -> None:
    made = Made()
    index = made.dynamic("a", "()V") if opcode == 0xBA else made.ref("a", "()V", tag=10 + (opcode == 0xB9))
    code = call(opcode, index)
    file = ClassFile.of(made.bytes())
    assert file.invoked(code, 0) is not None
    assert [file.invoked(code[:cut], 0) for cut in range(len(code))] == [None] * len(code)


def test_constants_of_another_kind_name_nothing() -> None:
    made = Made()
    text, wide = made.utf8("java/lang/Object"), made.long()
    a_class, described = made.class_("a/B"), made.described("a", "()V")
    a_string = made.constant(struct.pack(">BH", STRING, text))
    alike = made.constant(struct.pack(">BHH", METHODREF, text, text))
    owners = ((owner, described) for owner in (text, a_string, 0, 65535))
    whats = ((a_class, what) for what in (a_class, alike, wide, 0, 65535))
    wrong = [made.constant(struct.pack(">BHH", METHODREF, *pair)) for pair in (*owners, *whats)]
    wrong.append(made.constant(struct.pack(">BHH", METHODREF, made.constant(b"\x07\0\0"), described)))
    for pair in ((text, a_class), (a_class, text), (text, 65535)):
        bad = made.constant(struct.pack(">BHH", 12, *pair))
        wrong += [made.constant(struct.pack(">BHH", METHODREF, a_class, bad)), bad]
    wrong += [0, 65535, text, wide, wide + 1, a_class, described]
    wrong += [made.ref("a", "()V", tag=FIELDREF), made.dynamic("a", "()V", DYNAMIC)]
    method = made.ref("a", "()V")
    interface, dynamic = made.ref("a", "()V", tag=INTERFACE_METHODREF), made.dynamic("a", "()V")
    file = ClassFile.of(made.bytes())
    for opcode in range(256):
        named = [index for index in (method, interface, dynamic, *wrong) if file.invoked(call(opcode, index), 0)]
        right = {0xB6: [method], 0xB7: [method, interface], 0xB8: [method, interface], 0xB9: [interface]}
        assert named == right.get(opcode, [dynamic] if opcode == 0xBA else [])


def test_code_of_methods() -> None:
    made = Made()
    made.method("a", "()V", b"\xb1")
    made.method("a", "(I)V", b"\x00\xb1")
    made.method("native", "()V")
    made.method("b", "()V", bytes(65535))
    nameless = struct.pack(">HI", 65535, 3) + bytes(3)
    made.methods.append(made.member("c", "()V", nameless, made.code(b"\x02")))
    made.fields.append(made.member("f", "I", made.code(b"\x03"), made.attribute("Code", b"")))  # means nothing there
    file = ClassFile.of(made.bytes())
    assert file.code("a", "()V") == b"\xb1"
    assert file.code("a", "(I)V") == b"\x00\xb1"
    assert file.code("b", "()V") == bytes(65535)
    assert file.code("c", "()V") == b"\x02"
    assert [file.code(*m) for m in (("native", "()V"), ("d", "()V"), ("a", "()I"), ("f", "I"))] == [None] * 4


def test_names_are_modified_utf8() -> None:
    made = Made()
    made.method("größe".encode() + b"\xc0\x80" + b"\xed\xa0\xbd\xed\xb8\x80", "()V", b"\x01")
    made.method(b"\xed\xa0\xbd", "()V", b"\x02")  # half a pair
    made.method(b"x\xff\xc3", "()V", b"\x03")
    file = ClassFile.of(made.bytes())
    assert file.code("größe\0\U0001f600", "()V") == b"\x01"
    assert file.code("\ufffd", "()V") == b"\x02"
    assert file.code("x\ufffd\ufffd", "()V") == b"\x03"


def test_every_kind_of_constant_is_walked_over() -> None:
    made = Made()
    for tag, size in ((3, 4), (4, 4), (8, 2), (9, 4), (15, 3), (16, 2), (17, 4), (19, 2), (20, 2)):
        made.constant(bytes((tag,)) + b"\x01" * size)
        made.long()
    index = made.ref("a", "()V")
    assert ClassFile.of(made.bytes()).invoked(call(0xB6, index), 0) == (0xB6, "a/B", "a", "()V")


def test_the_largest_pool() -> None:
    made = Made()
    while made.places < 65500:
        made.utf8("x")
    index = made.ref("a", "()V")
    made.constants += [b"\x01\0\0"] * (65535 - made.places - 3)  # three come with the class itself
    made.places = 65535 - 3
    data = made.bytes()
    assert data[8:10] == b"\xff\xff"
    assert ClassFile.of(data).invoked(call(0xB6, index), 0) is not None


def small() -> Made:
    made = Made()
    made.long()
    made.fields.append(made.member("f", "I", made.attribute("ConstantValue", bytes(2))))
    made.method("a", "()V", call(0xB6, made.ref("a", "()V")))
    return made


def test_each_cut_is_refused_where_it_is() -> None:
    data = small().bytes()
    ClassFile.of(data)
    for cut in range(len(data)):
        with pytest.raises(ClassFileError) as caught:
            ClassFile.of(data[:cut])
        assert caught.value.offset == (cut if cut >= 4 else 0)


def refusal(data: bytes) -> tuple[str, int]:
    with pytest.raises(ClassFileError) as caught:
        ClassFile.of(data)
    assert str(caught.value).endswith(f" at byte {caught.value.offset}")
    return str(caught.value), caught.value.offset


def test_what_is_no_class_file_is_refused() -> None:
    data = small().bytes()
    assert refusal(b"") == ("class file: it does not begin with CAFEBABE at byte 0", 0)
    assert refusal(b"\xca\xfe\xba\xbf" + data[4:])[1] == 0
    assert refusal(data + b"\0") == (f"class file: there is more behind its end at byte {len(data)}", len(data))
    for tag in (0, 2, 13, 14, 21, 255):
        assert refusal(data[:10] + bytes((tag,)) + data[11:]) == (
            f"class file: a constant of unknown kind {tag} at byte 10",
            10,
        )
    for places in (0, 2):  # none, not even the never used one; the second half of a Long
        assert "does not end with a constant" in refusal(small().bytes(places))[0]


@pytest.mark.parametrize("length", [0, 65536, 0xFFFFFFFF])
def test_impossible_lengths_of_code_are_refused(length: int) -> None:
    made = Made()
    body = struct.pack(">HHI", 1, 1, length) + bytes(70000)
    made.methods.append(made.member("a", "()V", made.attribute("Code", body)))
    assert f"{length} bytes of code" in refusal(made.bytes())[0]


def test_code_stays_in_its_attribute() -> None:
    for room in range(5):
        made = Made()
        body = struct.pack(">HHI", 1, 1, 4) + bytes(4) + bytes(room)
        made.methods.append(made.member("a", "()V", made.attribute("Code", body), made.attribute("Other", bytes(9))))
        if room == 4:
            assert ClassFile.of(made.bytes()).code("a", "()V") == bytes(4)
        else:
            assert f"4 bytes of code in an attribute of {12 + room}" in refusal(made.bytes())[0]


def test_members_must_be_told_apart() -> None:
    made = Made()
    made.methods.append(made.member("a", "()V", made.code(b"\1"), made.code(b"\2")))
    assert "two Code attributes" in refusal(made.bytes())[0]
    text, a_class = 1, 3
    for name, descriptor in ((0, text), (text, 0), (a_class, text), (text, 65535)):
        for kind in ("fields", "methods"):
            made = Made()
            assert made.utf8("a") == text
            assert made.class_("a") == a_class
            getattr(made, kind).append(struct.pack(">HHHH", 1, name, descriptor, 0))
            assert "without a name or descriptor" in refusal(made.bytes())[0]


# ---- any calls, any bytes

names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
made_calls = st.lists(st.tuples(st.sampled_from(sorted(OPCODES.values())), names, names, names, st.binary(max_size=3)))


@given(st.lists(st.tuples(names, made_calls), max_size=4, unique_by=lambda method: method[0]))
@settings(max_examples=200, deadline=None)
def test_any_calls_are_found_where_they_are(methods: list[tuple[str, list[tuple[int, str, str, str, bytes]]]]) -> None:
    made = Made()
    expected: dict[str, tuple[bytes, dict[int, Invoked]]] = {}
    for method, calls in methods:
        code, at = b"", {}
        for opcode, owner, name, descriptor, between in calls:
            if opcode == 0xBA:
                owner, index = "", made.dynamic(name, descriptor)
            else:
                index = made.ref(name, descriptor, owner, INTERFACE_METHODREF if opcode == 0xB9 else METHODREF)
            at[len(code)] = Invoked(opcode, owner, name, descriptor)
            code += call(opcode, index) + between
            if between:
                made.long()
        code += b"\xb1"
        made.method(method, "()V", code)
        expected[method] = code, at
    file = ClassFile.of(made.bytes())
    for method, (code, at) in expected.items():
        assert file.code(method, "()V") == code
        assert {bci: file.invoked(code, bci) for bci in at} == at


def opened(data: bytes, by: Callable[[bytes], T]) -> T | str:
    try:
        return by(data)
    except ClassFileError as error:
        return str(error)


def survives(data: bytes) -> bool:
    """Whether it is opened, as by a plain reading; then every question is answered."""
    plain = opened(data, naive_class_file.outline)
    file = opened(data, ClassFile.of)
    if isinstance(file, str):
        assert file == plain
        return False
    assert file._methods == plain
    for method in (("<init>", "()V"), ("<clinit>", "()V"), ("a", "()V")):
        invocations(file, file.code(*method) or b"")
    for opcode in OPCODES.values():
        for index in range(200):
            assert file.invoked(call(opcode, index), 0) == naive_class_file.named(data, opcode, index)
    return True


@cache
def demo() -> tuple[dict[int, export.ClassDef], dict[int, export.Class], dict[int, export.Method], list[export.Record]]:
    """Of the demo's JVM (real class files, and those that were put together from JVMTI): definitions, classes, methods
    by id; all records."""
    (packed,) = Path(streamer.demo.__file__).parent.glob("*.export.zst")
    data = zstandard.ZstdDecompressor().decompress(packed.read_bytes())[64:]
    records = list(iter_records(data))
    return (
        {r.id: r for r in records if isinstance(r, export.ClassDef)},
        {r.id: r for r in records if isinstance(r, export.Class)},
        {r.id: r for r in records if isinstance(r, export.Method)},
        records,
    )


@cache
def corpus() -> list[bytes]:
    made = sorted((bytes(d.data) for d in demo()[0].values() if len(d.data) < 3000), key=len)
    return [small().bytes(), *made[::10]]


@given(st.integers(0, 2**32))
@settings(max_examples=400, deadline=None)
def test_mutated_classes_are_read_or_refused(seed: int) -> None:
    survives(mutated(Random(seed), corpus(), 4000))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_changed_bytes_are_read_or_refused(draw: st.DataObject) -> None:
    data = bytearray(draw.draw(st.sampled_from(corpus())))
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(4, len(data) - 1))] = draw.draw(st.integers(0, 255))
    survives(bytes(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    survives(b"\xca\xfe\xba\xbe" + tail)


def test_names_are_remembered_up_to_a_length() -> None:
    """A hostile class has 65,535 methods of one name of 65,535 bytes, and there are many such classes."""
    made = small()
    for k in range(3):
        made.method("long" * 200 + str(k), "()V", None)
    before = class_file._short.cache_info().currsize
    methods = ClassFile.of(made.bytes()).methods()
    assert [name[-2:] for name, _ in methods][-3:] == ["g0", "g1", "g2"]
    assert class_file._short.cache_info().currsize <= before + 3


# ---- a real JVM's


def test_inlined_methods_are_those_that_are_called() -> None:
    """In each inline stack of the demo's nmethods, the bytecode of a frame calls the method of the frame within."""
    definitions, classes, methods, records = demo()
    files = {id_: ClassFile.of(definition.data) for id_, definition in definitions.items()}
    assert len(files) > 400
    for method in methods.values():
        code = files[classes[method.class_id].definition].code(method.name, method.signature)
        assert len(code or b"") == method.code_size
    called: Counter[int] = Counter()
    for load in (r for r in records if isinstance(r, export.NmethodLoad)):
        stacks = [load.frames[a:b].tolist() for a, b in zip(load.frame_at, load.frame_at[1:], strict=False)]
        for (inner, _), (outer, bci) in {pair for stack in stacks for pair in pairwise(stack)}:
            callee, caller = methods[inner], methods[outer]
            file = files[classes[caller.class_id].definition]
            code = file.code(caller.name, caller.signature)
            assert code is not None
            invoked = file.invoked(code, bci)
            assert invoked is not None
            if not callee.class_signature.startswith("Ljava/lang/invoke/"):  # linked by the JVM to forms of its own
                assert (invoked.name, invoked.descriptor) == (callee.name, callee.signature)
                called[invoked.opcode] += 1
    assert called.keys() == {0xB6, 0xB7, 0xB8, 0xB9}
    assert called.total() > 1000


# ---- javap


def agrees(files: dict[str, Path]) -> Counter[int]:
    """How often each invoke instruction occurs; all are named as javap does, and no other instruction is."""
    occurred: Counter[int] = Counter()
    for own, methods in disassembled(files).items():
        file = ClassFile.of(files[own].read_bytes())
        for (name, descriptor), listing in methods.items():
            code = file.code(name, descriptor)
            assert (code is None) == (listing is None), (own, name, descriptor)
            if code is not None and listing is not None:
                calls = listing.calls(own)
                assert {bci: file.invoked(code, bci) for bci in calls} == calls
                assert 0 < len(code) - max(calls) <= 5 or code[max(calls)] in (0xAA, 0xAB)
                occurred.update(invoked.opcode for invoked in calls.values() if invoked is not None)
    return occurred


CALLS = """
import java.util.*;
import java.util.function.*;

abstract class Calls implements Comparable<Calls> {
    interface Sized { int size(); static int none() { return 0; } private int own() { return size(); }
                      default int twice() { return own() + size(); } }
    static class Two extends Calls implements Sized {
        Two(String s) { super(s); }
        int nothing() { return 0; }
        public int size() { return 2; }
        public int twice() { return Sized.super.twice() + super.hashCode(); }
        public int compareTo(Calls other) { return größe𝒳(1L, 2.0); }
    }
    static final long LONG = 0x123456789aL;
    static final double DOUBLE = 1e100;
    static String log = String.valueOf(LONG + DOUBLE);
    final String s;
    Calls(String s) { this.s = s; }
    private int hidden() { return s.length(); }
    abstract int nothing();
    native void outside();
    int größe𝒳(long a, double b) { return hidden() + (int) (a + b); }
    int each(List<? extends Sized> all, int[] copied) {
        int sum = copied.clone().length + Sized.none();
        for (Sized sized : all) sum += sized.size();
        return sum;
    }
    String dynamic(int i, String t) {
        Supplier<String> lambda = () -> "a" + i + t + s;
        Function<String, Integer> reference = Integer::valueOf;
        return lambda.get() + reference.apply(t) + i;
    }
    int chosen(int i, String t) {
        switch (i) { case 1: i = t.length(); case 2: case 4: i++; break; default: i = Math.abs(i); }
        switch (i) { case -1000: return t.hashCode(); case 7: return Objects.hash(t, i); case 1000000: return 3; }
        try { return Integer.parseInt(t); } catch (NumberFormatException e) { return e.getMessage().length(); }
    }
    static int many(int a) {
        LOCALS
        last += 1000;
        return Math.abs(last) + many(a);
    }
}
"""


@pytest.mark.peer
def test_calls_agree_with_javap(tmp_path: Path) -> None:
    source = CALLS.replace("LOCALS", " ".join(f"int a{i} = a;" for i in range(300)) + " int last = a299;")
    (tmp_path / "Calls.java").write_text(source, encoding="utf-8")
    command = [tool("javac"), "-encoding", "UTF-8", "-J-Dsun.jnu.encoding=UTF-8", "--release", "17", "Calls.java"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    occurred = agrees(below(tmp_path))
    assert occurred.keys() == set(OPCODES.values())
    assert min(occurred.values()) >= 4


LIBRARY = (
    "java/lang/(Class|String|StringUTF16|Thread|Math)",
    "java/lang/invoke/(Invokers|LambdaForm|MethodHandleImpl|VarHandle)",
    "java/util/(Arrays|Formatter|HashMap|concurrent/ConcurrentHashMap|regex/Pattern|stream/Collectors)",
    "sun/security/ssl/SSLExtension",
)


@pytest.mark.peer
@pytest.mark.slow
def test_classes_of_the_library_agree_with_javap(tmp_path: Path) -> None:
    jimage = Path(tool("jimage")).resolve()
    image = jimage.parent.parent / "lib" / "modules"
    chosen = rf"regex:/java\.base/({'|'.join(LIBRARY)})(\$[A-H]\w*)?\.class"
    subprocess.run([jimage, "extract", "--dir", tmp_path, "--include", chosen, image], check=True, timeout=120)
    files = below(tmp_path / "java.base")
    assert len(files) >= 50
    occurred = agrees(files)
    assert occurred.keys() == set(OPCODES.values())
    assert occurred.total() > 5000
