"""Operands of single instructions, as an assembler writes them."""

from __future__ import annotations

import numpy as np
import pytest

from jvm.kernels import kernel
from stages.inlining import machine_code


@kernel
def _step(code, size):  # type: ignore[no-untyped-def]
    return machine_code.step_of(code, 0, size)


@kernel
def _compared(code, size):  # type: ignore[no-untyped-def]
    return machine_code.compared(code, 0, size)


@kernel
def _weak(code, size):  # type: ignore[no-untyped-def]
    return machine_code._weak(code, 0, size)


@kernel
def _of_thread(code, size):  # type: ignore[no-untyped-def]
    return machine_code._of_thread(code, 0, size)


def _code(text: str) -> tuple[np.ndarray, int]:
    raw = bytes.fromhex(text)
    return np.frombuffer(raw + bytes(8), np.uint8).copy(), len(raw)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("49 83 c4 05", (12, 5)),  # add r12, 5
        ("ff c0", (0, 1)),  # inc eax
        ("41 ff cf", (15, -1)),  # dec r15d
        ("49 81 e9 00 01 00 00", (9, -256)),  # sub r9, 256
        ("83 fa 07", (-1, 0)),  # cmp edx, 7
        ("ff 00", (-1, 0)),  # inc dword [rax]
    ],
)
def test_by_how_much_an_instruction_counts_a_register(text: str, step: tuple[int, int]) -> None:
    assert _step(*_code(text)) == step


@pytest.mark.parametrize(
    ("text", "registers"),
    [
        ("4c 39 eb", {3, 13}),  # cmp rbx, r13
        ("4c 3b 6b 10", {13}),  # cmp r13, [rbx + 16]
        ("45 85 c0", {8}),  # test r8d, r8d
        ("49 83 fe 07", {14}),  # cmp r14, 7
        ("49 83 c6 07", set()),  # add r14, 7
    ],
)
def test_registers_that_an_instruction_compares(text: str, registers: set[int]) -> None:
    assert _compared(*_code(text)) == sum(1 << register for register in registers)


@pytest.mark.parametrize(
    ("text", "thread"),
    [
        ("4d 3b 97 18 01 00 00", True),  # cmp r10, [r15 + 0x118]
        ("4d 89 97 08 01 00 00", True),  # mov [r15 + 0x108], r10
        ("41 80 7f 38 00", True),  # cmp byte [r15 + 0x38], 0
        ("45 0f b6 5f 38", True),  # movzx r11d, byte [r15 + 0x38]
        ("4d 01 fa", False),  # add r10, r15
        ("48 3b 47 18", False),  # cmp rax, [rdi + 24]
        ("49 83 c7 01", False),  # add r15, 1
    ],
)
def test_operands_in_the_thread(text: str, thread: bool) -> None:
    assert bool(_of_thread(*_code(text))) == thread


@pytest.mark.parametrize(
    ("text", "weak"),
    [
        ("48 89 c3", True),  # mov rbx, rax
        ("48 89 44 24 08", True),  # mov [rsp + 8], rax
        ("49 89 44 24 08", False),  # mov [r12 + 8], rax
        ("48 89 43 08", False),  # mov [rbx + 8], rax
        ("31 c0", True),  # xor eax, eax
        ("45 31 c0", True),  # xor r8d, r8d
        ("41 31 c0", False),  # xor r8d, eax
        ("c5 f8 28 c1", True),  # vmovaps xmm0, xmm1
        ("c5 f8 77", True),  # vzeroupper
    ],
)
def test_instructions_that_move_values_about(text: str, weak: bool) -> None:
    assert bool(_weak(*_code(text))) == weak
