"""Lengths and kinds of instructions, against capstone, over real code: the C library's and QEMU's."""

from __future__ import annotations

import ctypes
from pathlib import Path

import capstone
import pytest
from elftools.elf.elffile import ELFFile

from capture.emulator import build
from jvm import cbuild
from tests.narrowed import present

NEXT, COND, JUMP, CALL, IJUMP, ICALL, RET, FAR = range(8)


class Insn(ctypes.Structure):
    _fields_ = (
        ("length", ctypes.c_uint8),
        ("flow", ctypes.c_uint8),
        ("rep", ctypes.c_uint8),
        ("offset", ctypes.c_int32),
    )


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    source = Path(build.__file__).parent / "insn.c"
    try:
        cc = cbuild.compiler()
    except cbuild.BuildError as error:
        pytest.skip(str(error))
    made = cbuild.compiled("insn.so", [source], [[cc, "-O2", "-shared", "-fPIC", "-o", "{out}", str(source)]])
    return ctypes.CDLL(str(made))


def decode(library: ctypes.CDLL, code: bytes) -> Insn | None:
    insn = Insn()
    library.insn_decode.restype = ctypes.c_bool
    return insn if library.insn_decode(ctypes.byref(insn), code, ctypes.c_size_t(len(code))) else None


def flow(insn: capstone.CsInsn) -> int:
    near = {"call": (CALL, ICALL), "jmp": (JUMP, IJUMP)}
    name = insn.mnemonic.removeprefix("bnd ").removeprefix("notrack ")
    if name in near:
        return near[name][0 if insn.op_str.startswith("0x") else 1]
    if name in ("ret", "repz ret"):
        return RET
    if name in ("syscall", "int3", "int", "iretq", "retf", "sysret", "sysenter"):
        return FAR
    return COND if name.startswith(("j", "loop")) else NEXT


def text(path: str) -> tuple[bytes, int]:
    with Path(path).open("rb") as file:
        section = present(ELFFile(file).get_section_by_name(".text"))
        return section.data()[: 1 << 19], section["sh_addr"]


@pytest.mark.parametrize("name", ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/qemu-x86_64"])
def test_real_code(library: ctypes.CDLL, name: str) -> None:
    if not Path(name).exists():
        pytest.skip(f"{name} is missing")
    code, base = text(str(Path(name).resolve()))
    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    disassembler.skipdata = True
    compared = 0
    for insn in disassembler.disasm(code, base):
        if insn.id == 0:  # capstone does not know it, or it is data
            continue
        at = insn.address - base
        ours = decode(library, code[at : at + 15])
        assert ours is not None, (insn.bytes.hex(), str(insn))
        assert (ours.length, ours.flow) == (insn.size, flow(insn)), (insn.bytes.hex(), str(insn))
        if ours.flow in (COND, JUMP, CALL):
            assert insn.address + insn.size + ours.offset == int(insn.op_str, 16)
        compared += 1
    assert compared > 50_000


@pytest.mark.parametrize(
    ("code", "length", "kind"),
    [
        ("49ba 8877665544332211", 10, NEXT),  # mov r10, imm64
        ("66 b8 3412", 4, NEXT),
        ("48 81 c4 80000000", 7, NEXT),
        ("41 ff 24 da", 4, IJUMP),  # the interpreter's dispatch
        ("41 ff d2", 3, ICALL),
        ("ff 15 00000000", 6, ICALL),
        ("f3 c3", 2, RET),
        ("c2 0800", 3, RET),
        ("f3 48 ab", 3, NEXT),  # rep stosq
        ("c5 f8 77", 3, NEXT),  # vzeroupper
        ("c4 e3 7d 39 c8 01", 6, NEXT),  # vextracti128
        ("62 f1 7c 48 10 00", 6, NEXT),  # vmovups zmm0, [rax]
        ("c4 e2 7d 58 05 10000000", 9, NEXT),
        ("f6 05 00000000 01", 7, NEXT),  # test byte [rip], 1
        ("f7 c0 01000000", 6, NEXT),
        ("f7 d8", 2, NEXT),  # neg has no immediate
        ("0f ae f0", 3, NEXT),
        ("66 0f 3a 0f c1 08", 6, NEXT),
        ("e3 fe", 2, COND),
        ("0f 05", 2, FAR),
        ("a1 8877665544332211", 9, NEXT),
        ("48 a9 01000000", 6, NEXT),
        ("c8 100000", 4, NEXT),
    ],
)
def test_lengths(library: ctypes.CDLL, code: str, length: int, kind: int) -> None:
    insn = decode(library, bytes.fromhex(code) + bytes(8))
    assert insn is not None
    assert (insn.length, insn.flow) == (length, kind)
    for size in range(length):  # as a page's end shows it
        assert decode(library, bytes.fromhex(code)[:size]) is None
