"""How often the interpreter executes a bytecode, against a program that says how often it does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stages.messages import CodeKind
from tests.flow_events.test_inlined import invocations, run_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]
ROUNDS = 5000


def executed(version: int, rounds: int, tmp_path: Path) -> Counter[str]:
    tmp_path.mkdir()
    recording = run_of("Bytecodes", version, ["-Xint", "-XX:+UseSerialGC"], [str(rounds)], tmp_path)
    return invocations(recording, (CodeKind.INTERPRETED,))


@pytest.mark.parametrize("version", [17, pytest.param(25, marks=pytest.mark.nightly)])
def test_a_bytecode_counts_as_often_as_the_interpreter_executes_it(version: int, tmp_path: Path) -> None:
    few, many = (executed(version, rounds, tmp_path / str(rounds)) for rounds in (10, 10 + ROUNDS))
    more = {
        name: many[f"[interpreter] {name}"] - few[f"[interpreter] {name}"] for name in ("dneg", "drem", "fneg", "frem")
    }
    assert more == dict.fromkeys(("dneg", "drem", "fneg", "frem"), ROUNDS)
    # the JDK runs these too, now and then, in either run
    switches = sum(
        n for name, n in (many - few).items() if name.endswith(("lookupswitch", "_linearswitch", "_binaryswitch"))
    )
    assert abs(switches - ROUNDS) <= 0.02 * ROUNDS
    calls = many["[interpreter] invokestatic"] - few["[interpreter] invokestatic"]
    assert abs(calls - ROUNDS) <= 0.05 * ROUNDS
