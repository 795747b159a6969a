"""Opcodes, and the walk over a method's instructions: by hand, over any bytes, and against javap."""

from __future__ import annotations

import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.bytecode.class_file import ClassFile
from jvm.bytecode.instructions import MAX_CODE, BytecodeError, instructions
from jvm.bytecode.opcodes import INVOKEDYNAMIC, KIND, LENGTH, NAMES, OPCODE, REWRITTEN, WIDE, WIDENED, Kind, template
from jvm.export import records as export
from tests.jdks import tool
from tests.jvm.bytecode import naive
from tests.jvm.bytecode.javap import Listing, below, disassembled
from tests.jvm.test_classfile import demo

# ---- opcodes


def test_each_template_of_the_interpreter_stands_for_opcodes() -> None:
    """Of the demo's JVM: all of the specification under their own number, HotSpot's under those that are listed."""
    own, rewritten = set[int](), set[str]()
    for codelet in (record for record in demo()[3] if isinstance(record, export.Codelet)):
        stands_for = template(codelet.description)
        if 0 <= codelet.bytecode < len(NAMES) and codelet.description != "breakpoint":
            assert stands_for == (codelet.bytecode,)
            own.add(codelet.bytecode)
        elif stands_for:
            rewritten.add(codelet.description)
        else:
            assert codelet.bytecode < 0 or codelet.description in ("breakpoint", "_shouldnotreachhere")
    assert own == set(range(len(NAMES)))
    assert rewritten == set(REWRITTEN)


def test_pairs_are_two_opcodes_in_their_order() -> None:
    assert template("fast_aaccess_0") == (OPCODE["aload_0"], OPCODE["getfield"])
    assert template("fast_icaload") == (OPCODE["iload"], OPCODE["caload"])
    assert template("fast_iload2") == (OPCODE["iload"], OPCODE["iload"])
    assert template("fast_binaryswitch") == (OPCODE["lookupswitch"],)
    assert template("return entry points") == ()


def test_numbers_of_some_opcodes() -> None:
    """JVMS chapter 7."""
    numbers = {
        "aload_0": 42,
        "castore": 85,
        "iinc": 132,
        "goto": 167,
        "return": 177,
        "invokedynamic": 186,
        "jsr_w": 201,
    }
    assert {name: OPCODE[name] for name in numbers} == numbers
    assert len(NAMES) == 202


# ---- the walk


def walked(code: bytes) -> list[tuple[int, int, int, int]]:
    return list(zip(*(column.tolist() for column in instructions(code)), strict=True))


def test_operands_of_a_switch_are_aligned_from_the_start_of_the_code() -> None:
    for before in range(5):
        code = (
            bytes(before) + b"\xaa" + bytes(-(before + 1) % 4) + bytes.fromhex("00000018 fffffffe 00000000") + bytes(12)
        )
        assert walked(code + b"\xb1")[before:] == [
            (before, OPCODE["tableswitch"], len(code) - before, Kind.SWITCH),
            (len(code), OPCODE["return"], 1, Kind.RETURN),
        ]


def test_wide_instructions() -> None:
    code = bytes.fromhex("c4150100 c48401000064 c4a90100 84057f")
    assert walked(code) == [
        (0, WIDE, 4, Kind.PLAIN),
        (4, WIDE, 6, Kind.PLAIN),
        (10, WIDE, 4, Kind.RET),
        (14, OPCODE["iinc"], 3, Kind.PLAIN),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "cb", "ff", "c4", "c400", "c41501", "c48401000000"[:-2], "10", "b60001"[:-2], "b900010100", "c8000000",
        "aa0000", "aa000000 00000010 00000001 00000000", "aa000000 00000010 80000000 7fffffff",
        "aa000000 00000010 00000000 7fffffff", "aa000000 00000010 00000000 00000001 00000000",
        "ab000000 00000010 ffffffff", "ab000000 00000010 00000001 00000000 000000", "ab000000 00000010 7fffffff",
    ],
)  # fmt: skip
def test_code_that_is_cut_or_none_is_refused_where_it_is(code: str) -> None:
    raw = bytes.fromhex(code)
    whole = raw if raw[0] != 0xB9 else raw[:4]
    with pytest.raises(BytecodeError) as caught:
        instructions(whole)
    assert caught.value.bci == 0
    with pytest.raises(BytecodeError) as caught:
        instructions(bytes(4) + whole)
    assert caught.value.bci == 4


def test_the_longest_code() -> None:
    assert len(instructions(bytes(MAX_CODE)).bci) == MAX_CODE
    with pytest.raises(BytecodeError):
        instructions(bytes(MAX_CODE + 1))


chosen = st.sampled_from([*range(202), 0xAA, 0xAB, 0xC4, 0xC4]).map(lambda opcode: bytes((opcode,)))
small = st.integers(-3, 5).map(lambda n: n.to_bytes(4, "big", signed=True))


@settings(deadline=None, max_examples=500)
@given(st.lists(st.one_of(chosen, small, st.binary(max_size=3)), max_size=30).map(b"".join))
def test_any_bytes_are_walked_as_the_plain_walk_does(code: bytes) -> None:
    expected, end = naive.instructions(code)
    if end == len(code):
        assert walked(code) == expected
    else:
        with pytest.raises(BytecodeError) as caught:
            instructions(code)
        assert caught.value.bci == end


# ---- javap


def agrees(own: str, file: ClassFile, name: str, descriptor: str, listing: Listing) -> Counter[int]:
    """How often each opcode occurs; all is as javap prints it."""
    code = file.code(name, descriptor)
    assert code is not None
    occurred: Counter[int] = Counter()
    found = instructions(code)
    ends = (found.bci + found.length).tolist()
    assert found.bci.tolist() == [printed.bci for printed in listing.instructions]
    assert ends == [*found.bci.tolist()[1:], len(code)]
    for printed, opcode, kind in zip(listing.instructions, found.opcode.tolist(), found.kind.tolist(), strict=True):
        if opcode == WIDE:
            assert printed.mnemonic == NAMES[code[printed.bci + 1]] + "_w"
        else:
            assert printed.mnemonic == NAMES[opcode]
        assert (kind == Kind.SWITCH) == (printed.bci in listing.arms)
        assert (kind == Kind.CALL) == (file.invoked(code, printed.bci) is not None)
        occurred[opcode] += 1
    handlers = [
        (start, end, handler, file.class_name(catch) if catch else "any")
        for start, end, handler, catch in file.handlers(name, descriptor).tolist()
    ]
    assert handlers == listing.handlers
    assert file.lines(name, descriptor).tolist() == listing.lines
    return occurred


def all_agree(files: dict[str, Path]) -> Counter[int]:
    occurred: Counter[int] = Counter()
    for own, methods in disassembled(files).items():
        file = ClassFile.of(files[own].read_bytes())
        assert file.name == own
        assert set(file.methods()) == set(methods)
        for (name, descriptor), listing in methods.items():
            assert (file.code(name, descriptor) is None) == (listing is None)
            if listing is not None:
                occurred += agrees(own, file, name, descriptor, listing)
    return occurred


LIBRARY = r"java/(lang|util|io|util/(concurrent|regex|stream)|lang/invoke)/[A-HT][\w$]*"


@pytest.mark.peer
@pytest.mark.slow
def test_classes_of_the_library_agree_with_javap(tmp_path: Path) -> None:
    jimage = Path(tool("jimage")).resolve()
    image = jimage.parent.parent / "lib" / "modules"
    chosen = rf"regex:/java\.base/{LIBRARY}\.class"
    subprocess.run([jimage, "extract", "--dir", tmp_path, "--include", chosen, image], check=True, timeout=120)
    files = below(tmp_path / "java.base")
    assert len(files) >= 300
    occurred = all_agree(files)
    assert occurred.total() > 100_000
    absent = {name for name in NAMES if KIND[OPCODE[name]] != Kind.PLAIN and not occurred[OPCODE[name]]}
    assert absent <= {"jsr", "ret", "jsr_w", "goto_w"}  # javac makes none of them, or for large methods only


@pytest.mark.peer
@pytest.mark.slow
def test_classes_of_other_compilers_agree_with_javap(tmp_path: Path) -> None:
    """Class files of old versions, of other compilers and of obfuscators: from Debian's archives, where they are."""
    jars = sorted(Path("/usr/share/java").glob("*.jar"))
    if not jars:
        pytest.skip("no Java library of Debian is installed (libxalan2-java, libbcel-java and the like)")
    for jar in jars:
        if not jar.is_symlink():
            with zipfile.ZipFile(jar) as archive:
                elsewhere = ("META-INF", "module", "Lib/")  # Lib/: Jython's, of which the names say nothing of where
                classes = [n for n in archive.namelist() if n.endswith(".class") and not n.startswith(elsewhere)]
                archive.extractall(tmp_path, classes[:: max(1, len(classes) // 8)])
    files = below(tmp_path)
    assert all_agree(files)[INVOKEDYNAMIC] >= 0


@pytest.mark.peer
def test_wide_code_and_switches_agree_with_javap(tmp_path: Path) -> None:
    locals_ = " ".join(f"long a{k} = {k}L * a;" for k in range(150))
    arms = " ".join(f"case {k * 7 - 300}: a += {k}; break;" for k in range(90))
    body = f"""final class Wide {{ static int f(int a) {{ {locals_} int last = a; last += 1000;
    switch (a) {{ case 1: case 2: last++; case 3: break; default: last--; }}
    switch (a) {{ {arms} default: }}
    try {{ return (int) a149 + last / a; }} catch (ArithmeticException | ClassCastException e) {{ return 7; }}
    finally {{ a--; }} }} }}"""
    (tmp_path / "Wide.java").write_text(body)
    subprocess.run([tool("javac"), "-g", "Wide.java"], cwd=tmp_path, check=True, timeout=120)
    occurred = all_agree(below(tmp_path))
    assert occurred[WIDE] > 10
    assert occurred[OPCODE["tableswitch"]] == occurred[OPCODE["lookupswitch"]] == 1


def test_tables_agree_with_each_other() -> None:
    for opcode in range(256):
        assert (KIND[opcode] == Kind.NONE) == (opcode >= len(NAMES))
        assert (LENGTH[opcode] == 0) == (
            opcode >= len(NAMES) or NAMES[opcode] in ("wide", "tableswitch", "lookupswitch")
        )
        assert not WIDENED[opcode] or LENGTH[opcode] == (3 if NAMES[opcode] == "iinc" else 2)
