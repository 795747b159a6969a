"""A raw trace that breaks the rules as some processors do: the command says which ones, in one line on stderr."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stages.pt.errata import is_known, of_cpu, representatives
from streamer.commands.pt import command
from tests.pt import ptwriter as w

ON = w.mode_exec(64) + w.tip_pge(0x1000)
OFF = w.fup(0x1001) + w.tip_pgd()
BDM70 = w.psb() + w.psbend() + ON + OFF + w.psb() + w.mode_exec(64) + w.fup(0x1000) + w.psbend() + ON + OFF
SKZ84 = w.psb() + w.psbend() + b"\x02\x73\x00\x00\x00\x00\x02\xff" + w.tsc(7)


def run(tmp_path: Path, trace: bytes, *arguments: str) -> Result:
    (tmp_path / "code.bin").write_bytes(b"\x90" * 16)
    (tmp_path / "x.pt").write_bytes(trace)
    code = ["--image", f"{tmp_path}/code.bin@0x1000"] if arguments[0] == "flow" else []
    return CliRunner().invoke(command, [*arguments, *code, f"{tmp_path}/x.pt"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("kind", "trace", "at", "named"),
    [("flow", BDM70, 0x3C, "6/61 or 6/78 or 6/85 or 6/102 or 6/143 or 6/151"), ("dump", SKZ84, 0x12, "6/85 or 6/143")],
    ids=["BDM70", "SKZ84"],
)
def test_what_an_erratum_explains(kind: str, trace: bytes, at: int, named: str, tmp_path: Path) -> None:
    by_the_book = run(tmp_path, trace, kind)
    assert "error" in by_the_book.stdout
    (line,) = by_the_book.stderr.splitlines()
    assert line.startswith(f"streamer: the trace breaks the rules at byte {at:#x} ")
    assert f"with the errata of {named}:" in line
    assert "--cpu FAMILY/MODEL" in line
    right = run(tmp_path, trace, kind, "--cpu", named.split()[0])
    assert "error" not in right.stdout
    assert right.stderr == ""


def test_who_wants_the_book_is_not_told_again(tmp_path: Path) -> None:
    said = run(tmp_path, BDM70, "flow", "--cpu", "none")
    assert "error" in said.stdout
    assert said.stderr == ""


@pytest.mark.parametrize("far", [0, 1 << 17], ids=["near", "far"])
def test_no_processor_explains_what_is_damaged(far: int, tmp_path: Path) -> None:
    trace = w.psb() + w.psbend() + bytes(far) + b"\x02\xff" + w.tip(1)
    said = run(tmp_path, trace, "dump", "--no-pad")
    assert f"[{18 + far:x}: error decoding packet: bytes that begin no packet]" in said.stdout
    assert said.stderr == ""


def test_a_right_place_behind_many_damaged_ones(tmp_path: Path) -> None:
    """Places are looked at in order; those that no erratum explains do not hide an explained one."""
    said = run(tmp_path, (w.psb() + w.psbend() + b"\x02\xff") * 3 + SKZ84, "dump")
    assert f"at byte {3 * 20 + 18:#x} " in said.stderr


def test_a_processor_stands_for_each_set_of_errata() -> None:
    found = representatives()
    assert all(is_known(*each) for each in found)
    assert len({of_cpu(*each) for each in found}) == len(found) == 8
