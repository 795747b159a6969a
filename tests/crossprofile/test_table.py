"""Cost tables: what is read, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from jvm.bytecode.opcodes import NAMES, OPCODE
from jvm.code.codelets import executes
from jvm.export.records import Codelet
from streamer.cli import cli
from streamer.crossprofile.table import MOST_CYCLES, CostTableError, load, parsed, shipped

GOOD: dict[str, Any] = {"name": "a", "other": 9, "bytecodes": {"iadd": 2, "return": 3}}


def test_the_table_of_a_java_processor() -> None:
    """As its handbook has them, with the wait states of its board: of reads and writes one cycle each."""
    table = load("jop")
    assert shipped() == ["jop"]
    values = {"iadd": 1, "imul": 35, "getfield": 10, "iaload": 9, "ldc": 8, "invokevirtual": 102, "ireturn": 23,
              "invokestatic": 75, "new": 96}  # fmt: skip
    assert {name: int(table.cycles[OPCODE[name]]) for name in values} == values
    # 40 bytes are 10 words: 6 + 11 · 2 cycles, of which a call hides all, a return ten
    assert table.load.call(np.array([0, 40, 400])).tolist() == [0, 0, 8 + 200 - 37]
    assert table.load.back(np.array([0, 40, 41])).tolist() == [0, 18, 20]


def test_opcodes_without_a_line_cost_as_others_do() -> None:
    table = parsed(GOOD)
    assert {int(table.cycles[OPCODE[name]]) for name in NAMES if name not in GOOD["bytecodes"]} == {9}
    assert (int(table.cycles[OPCODE["iadd"]]), table.told) == (2, 2)
    assert table.load.call(np.array([1000])).tolist() == [0]


def test_a_template_of_two_bytecodes_costs_both() -> None:
    costs = np.arange(256, dtype=np.int64)
    for description, expected in (
        ("iadd", OPCODE["iadd"]), ("fast_icaload", OPCODE["iload"] + OPCODE["caload"]), ("wide", OPCODE["wide"]),
        ("_shouldnotreachhere", 255),
    ):  # fmt: skip
        codelet = Codelet(0, 0, 0, 0, 1, 5, description)
        assert executes(codelet, costs) == expected


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": ""}, "name: a text"),
        ({"bytecodes": {}}, "bytecodes: a table of mnemonics and cycles"),
        ({"bytecodes": {"add": 1}}, "bytecodes.add: there is no such line"),
        ({"bytecodes": {"iadd": 1.5}}, f"bytecodes.iadd: whole cycles, 0 to {MOST_CYCLES}"),
        ({"bytecodes": {"iadd": MOST_CYCLES + 1}}, "bytecodes.iadd: whole cycles"),
        ({"other": True}, "other: whole cycles"),
        ({"load": 3}, "load: a table"),
        ({"load": {"share": 2}}, "load.share: a number from 0 to 1"),
        ({"load": {"cycles": float("nan")}}, "load.cycles: a number"),
        ({"load": {"word_bytes": 0}}, "load.word_bytes: a whole number from 1 on"),
        ({"cost": 1}, "cost: there is no such line"),
    ],
)
def test_what_is_no_table(change: dict[str, Any], why: str) -> None:
    with pytest.raises(CostTableError) as error:
        parsed(GOOD | change)
    assert str(error.value).startswith(why)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["{file}", "--cost", "/nowhere"],
            "cannot read the cost table /nowhere: No such file or directory; shipped: jop",
        ),
        (["{file}", "--cost", "{file}"], "{file}: not TOML: "),
        (["live", "--cost", "jop"], "--cost needs a recording"),
        (["{cct}", "--cost", "jop"], "{cct} is a kept tree: only a recording tells which bytecodes were executed"),
    ],
)
def test_what_cannot_be_estimated(words: list[str], why: str, tmp_path: Any) -> None:
    names = {"file": str(tmp_path / "a.json"), "cct": str(tmp_path / "a.cct")}
    (tmp_path / "a.json").write_text("{]")
    (tmp_path / "a.cct").write_bytes(b"JTSCCT\r\n" + bytes(100))
    ended = CliRunner().invoke(cli, ["cct", *(word.format(**names) for word in words)])
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"streamer: {why.format(**names)}")
