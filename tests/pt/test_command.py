"""A user's mistake is one clear line and exit status 1 (2 for usage)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from streamer.commands.pt import command
from tests.pt import ptwriter as w


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "trace.pt"
    file.write_bytes(w.psb() + w.mode_exec(64) + w.fup(0x1000) + w.psbend() + w.fup(0x1001) + w.tip_pgd())
    (tmp_path / "code.bin").write_bytes(b"\x90" * 16)
    (tmp_path / "pages").write_bytes((0x1000).to_bytes(8, "little"))
    (tmp_path / "dump").write_bytes(b"\x90" * 4096)
    return file


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dump", "{dir}/none"], "cannot read"),
        (["dump", "{dir}"], "cannot read"),
        (["dump", "{trace}", "--time", "--tcal"], "exclude each other"),
        (["flow", "{trace}"], "either --image or --pages"),
        (["flow", "{trace}", "--image", "{dir}/none@0x1000"], "cannot read"),
        (["flow", "{trace}", "--image", "{dir}/code.bin@0xffffffffffffffff"], "out of range"),
        (["flow", "{trace}", "--pages", "{dir}/pages"], "ADDRFILE:DUMPFILE"),
        (["flow", "{trace}", "--pages", "{dir}/pages:{dir}/code.bin"], "4096 bytes"),
        (["flow", "{trace}", "--image", "{dir}/code.bin", "--filter", "5"], "LO-HI"),
        (["flow", "{trace}", "--image", "{dir}/code.bin", "--filter", "9-5"], "LO must be below HI"),
    ],
)
def test_failures(trace: Path, arguments: list[str], says: str) -> None:
    filled = [a.format(dir=trace.parent, trace=trace) for a in arguments]
    result = CliRunner().invoke(command, filled)
    assert result.exit_code == 1
    assert says in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "option", [["--cpu", "pentium"], ["--cpu", "9/9"], ["--cpu", "6/1"], ["--mtc-freq", "16"], ["--mtc-freq", "x"]]
)
def test_usage(trace: Path, option: list[str]) -> None:
    assert CliRunner().invoke(command, ["dump", str(trace), *option]).exit_code == 2


def test_image_and_pages_say_the_same(trace: Path) -> None:
    expected = ["0000000000001000", "[disabled]"]
    for code in (
        ["--image", f"{trace.parent}/code.bin@0x1000"],
        ["--pages", f"{trace.parent}/pages:{trace.parent}/dump"],
    ):
        result = CliRunner().invoke(command, ["flow", str(trace), *code], catch_exceptions=False)
        assert result.output.split("\n")[:-1] == expected
