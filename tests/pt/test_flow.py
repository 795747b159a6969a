"""Flow against a processor that knows its own execution, and rules that need a trace of their own."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from jvm.code.snapshot import CodeView
from stages.pt import packets as p
from stages.pt.exact.decoder import FlowDecoder, Options
from stages.pt.exact.text import TextOptions, lines
from tests.pt import naive
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, Processor, program
from tests.pt.test_packets import _thorough

_BY_THE_BOOK = Options()


def _flow(trace: bytes, code: bytes, options: Options = _BY_THE_BOOK, capacity: int = 1 << 12) -> list[str]:
    view = CodeView.of([(BASE, code)])
    decoder = FlowDecoder(np.frombuffer(trace, np.uint8), view, options, capacity)
    return [line for batch in decoder for line in lines(batch, TextOptions())]


@_thorough
@given(some.integers(0, 1 << 32), some.integers(2, 60), some.integers(0, 600), some.booleans(), some.integers(1, 300))
def test_what_was_executed_is_decoded(seed: int, size: int, steps: int, compress: bool, capacity: int) -> None:
    rng = Random(seed)
    code, instructions = program(rng, size)
    processor = Processor(rng, instructions, compress)
    processor.run(steps)
    decoded = _flow(processor.trace, code, capacity=capacity)
    assert not [line for line in decoded if "error" in line]
    assert [int(line, 16) for line in decoded if line[0] != "["] == processor.executed


_START = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend()


@pytest.mark.parametrize(
    ("code", "trace", "expected"),
    [
        pytest.param(b"\xeb\xfe", w.tnt8("!"), ["0", "[2, 0: error"], id="a jump to itself"),
        pytest.param(b"\xe8\xfb\xff\xff\xff", w.tip(BASE), ["0", "[", "[end"], id="recursion without a packet"),
        pytest.param(b"\xc3", w.tnt8("."), ["0", "[1b"], id="compressed return not taken"),
        pytest.param(b"\xc3", w.tnt8("!"), ["0", "[1b"], id="compressed return without a call"),
        pytest.param(b"\xff\xe0", w.tip(0, 0), ["0", "[1b"], id="a TIP without address"),
        pytest.param(b"\x90", w.tnt8("!"), ["0", "[1c"], id="the code ends"),
        pytest.param(b"\x0f\xff", w.tnt8("!"), ["[1c"], id="no instruction"),
    ],
)
def test_errors(code: bytes, trace: bytes, expected: list[str]) -> None:
    decoded = _flow(_START + trace, code)
    assert decoded
    assert any("error" in line for line in decoded)
    assert len(decoded) < 10, expected


def test_an_uncompressed_return_pops() -> None:
    # main: call f; nop ┃ f: ret to somewhere else; there: ret, compressed, must take the outer call's address
    code = bytearray(b"\x90" * 64)
    code[0:5] = b"\xe8\x0b\x00\x00\x00"  # 0: call 16
    code[5:7] = b"\xeb\xfe"
    code[16:21] = b"\xe8\x0b\x00\x00\x00"  # 16: call 32
    code[21] = 0xC3
    code[32] = 0xC3  # returns to 48, not to 21
    code[48] = 0xC3  # compressed: to 5
    trace = _START + w.tip(BASE + 48) + w.tnt8("!") + w.fup(BASE + 5) + w.tip_pgd()
    decoded = _flow(trace, bytes(code))
    assert [int(line, 16) - BASE for line in decoded if line[0] != "["] == [0, 16, 32, 48]
    assert decoded[-1] == "[disabled]"


def test_the_return_stack_keeps_the_youngest_64() -> None:
    code = b"\xff\xd0\xc3"  # call rax; ret
    calls = w.tip(BASE) * 69 + w.tip(BASE + 2)
    returns = (w.tnt8("!!!!!!") * 10) + w.tnt8("!!!!")
    decoded = _flow(_START + calls + returns + w.fup(BASE + 2) + w.tip_pgd(), code)
    assert decoded[-1] == "[disabled]"
    assert [line for line in decoded if line[0] != "["] == [f"{BASE:016x}"] * 70 + [f"{BASE + 2:016x}"] * 64
    one_more = _flow(_START + calls + returns + w.tnt8("!"), code)
    assert "error" in one_more[-1]


@_thorough
@given(some.integers(0, 1 << 32), some.integers(2, 40), some.integers(1, 200), some.floats(0, 1))
def test_a_cut_trace_is_followed_to_the_cut_and_says_where_it_is(seed: int, size: int, steps: int, part: float) -> None:
    rng = Random(seed)
    code, instructions = program(rng, size)
    processor = Processor(rng, instructions, True)
    processor.run(steps)
    trace = processor.trace[: round(part * len(processor.trace))]
    decoded = _flow(trace, code)
    executed = [int(line, 16) for line in decoded if line[0] != "["]
    assert executed == processor.executed[: len(executed)]
    packets = naive.decode(trace)
    whole = packets[-1].offset + packets[-1].size if packets else 0
    cut = whole < len(trace) and any(packet.kind != p.SKIPPED for packet in packets)
    assert [line.split(",")[0] for line in decoded if "error" in line] == ([f"[{whole:x}"] if cut else [])
    assert all("the trace ends inside a packet" in line for line in decoded if "error" in line)
