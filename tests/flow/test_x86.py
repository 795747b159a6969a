"""The length decoder against capstone."""

from __future__ import annotations

from pathlib import Path

import capstone
import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from jvm.kernels import kernel
from stages.pt import x86
from tests.narrowed import present


@kernel
def _decode(code, at, end):  # type: ignore[no-untyped-def]
    return x86.decode(code, at, end)


def kind_of(mnemonic: str, operands: str) -> int:
    name = mnemonic.split()[-1]
    direct = operands.startswith(("0x", "-0x")) or operands.isdigit()
    if name == "jmp":
        return x86.JUMP if direct else x86.JUMP_IND
    if name == "call":
        return x86.CALL if direct else x86.CALL_IND
    if name.startswith(("j", "loop")):
        return x86.COND
    if name == "ret":
        return x86.RET
    if name in ("syscall", "sysret", "sysenter", "sysexit", "int", "int3", "int1", "iretd", "iretq", "retf", "retfq"):
        return x86.FAR
    return x86.BAD if name.startswith("ud") else x86.OTHER


def test_libc() -> None:
    path = next(iter(sorted(Path("/lib").glob("x86_64-linux-gnu/libc.so.6"))), None)
    if path is None:
        pytest.skip("no libc.so.6 where Debian has it")
    with path.open("rb") as file:
        data = present(ELFFile(file).get_section_by_name(".text")).data()[:400_000]
    code = np.frombuffer(data, np.uint8)
    base = 1 << 40  # so that targets are printed as addresses
    seen = 0
    for address, size, mnemonic, operands in capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm_lite(
        data, base
    ):
        found = _decode(code, address - base, len(code))
        assert (found & 0xFF, found >> 8 & 0xFF) == (size, kind_of(mnemonic, operands)), (hex(address - base), mnemonic)
        seen += 1
    assert seen > 50_000


@pytest.mark.parametrize(
    "code", ["c4e27518c1", "62f1fd486f00", "8fe978c1c0", "0f0f000c", "660f3a0fc108", "48b8" + "11" * 8]
)
def test_lengths(code: str) -> None:
    raw = np.frombuffer(bytes.fromhex(code), np.uint8)
    assert _decode(raw, 0, len(raw)) & 0xFF == len(raw)
    for cut in range(1, len(raw)):
        assert _decode(raw, 0, cut) & 0xFF == 0, "cut short"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("0f01c1", x86.FAR),  # vmcall
        ("0f01c2", x86.FAR),  # vmlaunch
        ("0f01c3", x86.FAR),  # vmresume
        ("f20f01ca", x86.FAR),  # erets
        ("f30f01ca", x86.FAR),  # eretu
        ("0f01ca", x86.OTHER),  # clac
        ("f30f01ec", x86.FAR),  # uiret
        ("0f01ee", x86.OTHER),  # rdpkru
        ("d500a1" + "11" * 8, x86.JUMP_IND),  # jmpabs, by a TIP
        ("d5488bc1", x86.OTHER),  # mov r64, r64 with REX2
        ("d580afc1", x86.OTHER),  # imul with REX2, of map 1
        ("d500c3", x86.RET),
        ("d5007000", x86.BAD),  # no jcc with REX2
        ("d5808400000000", x86.BAD),
    ],
)
def test_what_capstone_does_not_know(code: str, kind: int) -> None:
    raw = np.frombuffer(bytes.fromhex(code), np.uint8)
    found = _decode(raw, 0, len(raw))
    assert found >> 8 & 0xFF == kind
    if kind != x86.BAD:
        assert found & 0xFF == len(raw)
        assert all(_decode(raw, 0, cut) & 0xFF == 0 for cut in range(1, len(raw)))
