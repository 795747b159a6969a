"""Failures as a user sees them: one line, exit status 1; wrong options, 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.flow_truth.__main__ import main
from tests.benchmarks.kept import kept_run


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.strip().splitlines()
    assert line.startswith("benchmarks.flow_truth: ")
    return line


def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no JDK" in fails(capsys, "--jdk", str(tmp_path), "--", "Main")
    assert "holds no run" in fails(capsys, "--from", str(tmp_path / "none"))
    script = tmp_path / "java"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert "script" in fails(capsys, "--jdk", str(script), "--", "Main")
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    assert "not empty" in fails(capsys, "--keep", str(full), "--", "Main")


def test_a_run_that_was_cut_off_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept_run(tmp_path, 1, [], state="running")
    assert "truth cannot be read" in fails(capsys, "--from", str(tmp_path))
    (tmp_path / "truth").mkdir()
    for name in ("blocks.bin", "lengths.bin", "code.bin"):
        (tmp_path / "truth" / name).touch()
    assert "killed" in fails(capsys, "--from", str(tmp_path))


@pytest.mark.parametrize("arguments", [[], ["--from", "x", "--", "Main"], ["--after", "-1", "--", "Main"]])
def test_wrong_options(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
