"""Any file to read, and any file to write, for each command: one line, a status, no traceback, no wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jvm.inputfile import read_input
from streamer.cli import main

pytestmark = pytest.mark.timeout(600)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Status, output, and stderr."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["streamer", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.out, said.err


@pytest.fixture(params=["fifo", "device", "directory"])
def no_file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A file that is not regular, and its error."""
    path = tmp_path / "x"
    match request.param:
        case "fifo":
            os.mkfifo(path)
            return path, "a FIFO, no regular file"
        case "device":
            return Path("/dev/zero"), "a device, no regular file"
    path.mkdir()
    return path, "directory"


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(OSError, match="no name of a file"):
        read_input(Path(name), 10)


READERS = [
    ["replay", "{}", "--port", "0"],
    ["report", "--summary", "{}"],
    ["pt", "dump", "{}"],
    ["pt", "flow", "{}", "--image", "{whole}"],
    ["pt", "flow", "{whole}", "--image", "{}"],
    ["pt", "flow", "{whole}", "--pages", "{}:{whole}"],
    ["pt", "flow", "{whole}", "--pages", "{whole}:{}"],
]


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_what_is_no_file(
    arguments: list[str], no_file: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, what = no_file
    (tmp_path / "whole").write_bytes(b"\x90")
    given = [a.replace("{whole}", str(tmp_path / "whole")).replace("{}", str(path)) for a in arguments]
    status, _, said = run(capsys, *given)
    assert status in (1, 2)
    assert what in said.splitlines()[-1]
    assert "Traceback" not in said


NO_TRACE = "no trace of Intel PT, or too short a piece of one: no PSB packet in 12 bytes"
NO_SOURCE = "neither a recording (NAME.json, NAME.perf.data) nor a tree kept by streamer cct --save"
OF_ANOTHER_KIND = [
    (["pt", "dump", "{text}"], NO_TRACE),
    (["pt", "dump", "{empty}"], "is empty: no trace of Intel PT"),
    (["pt", "dump", "{empty}", "--no-sync"], "is empty: no trace of Intel PT"),
    (["pt", "flow", "{text}", "--image", "{text}"], NO_TRACE),
    (["pt", "flow", "{trace}", "--image", "{empty}"], "--image: {empty} is empty"),
    (["pt", "flow", "{trace}", "--pages", "{empty}:{empty}"], "--pages: {empty} is empty"),
    (["replay", "{text}", "--port", "0"], "{text} is no perf.data: the file does not begin as one"),
    (["replay", "{empty}", "--port", "0"], "{empty} is no perf.data: the file is empty"),
    (["replay", "{json}", "--port", "0"], "{json} is no manifest of a recording: it has no 'version'"),
    (["replay", "{zst}", "--port", "0"], "{zst}: no zstd file"),
    *((command, NO_SOURCE) for command in (["cct", "{text}"], ["export", "{empty}"], ["diff", "{text}", "{text}"])),
    (["cct", "{json}"], "{json} is no manifest of a recording: it has no 'version'"),
    (["cct", "{zst}"], "{zst}: no zstd file"),
    (["report", "--summary", "{text}"], "{text} is no summary of this version"),
    (["report", "--summary", "{json}"], "{json} is no summary of this version"),
]


@pytest.mark.parametrize(("arguments", "why"), OF_ANOTHER_KIND, ids=lambda given: " ".join(given)[:60])
def test_a_file_of_another_kind(
    arguments: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Is said to be one: no output that looks like a result, status 1, one line with the file's name."""
    contents = {"text": b"hello world\n", "empty": b"", "json": b"{}", "zst": b"no zstd", "trace": b"\x02\x82" * 8}
    files = {kind: tmp_path / f"x.{kind}" for kind in contents}
    for kind, data in contents.items():
        files[kind].write_bytes(data)
    status, out, said = run(capsys, *(argument.format(**files) for argument in arguments))
    assert (status, out, len(said.splitlines())) == (1, "", 1)
    assert why.format(**files) in said
    assert str(tmp_path / "x.") in said


def test_settings_from_what_is_no_file(
    no_file: tuple[Path, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, what = no_file
    monkeypatch.setitem(os.environ, "STREAMER_CONFIG", str(path))
    status, _, said = run(capsys, "doctor")
    assert (status, len(said.splitlines())) == (2, 1)
    assert what in said


def test_settings_that_nest_too_deep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.toml").write_text("a = " + "[" * 100_000)
    monkeypatch.setenv("STREAMER_CONFIG", str(tmp_path / "x.toml"))
    status, _, said = run(capsys, "doctor")
    assert (status, len(said.splitlines())) == (2, 1)


def test_a_variable_that_is_no_section(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_WINDOW", "x")
    status, _, said = run(capsys, "doctor")
    assert (status, len(said.splitlines())) == (2, 1)
    assert "window" in said


@pytest.mark.parametrize(
    "change",
    [
        {"exports": {"-1": "x.export"}},
        {"exports": {"0": "x.export"}},
        {"exports": {"99999999999999999999": "x.export"}},
        {"exports": {"1": "a\0b"}},
        {"exports": {"1": "\ud800"}},
        {"exports": {"1": "folder"}},
        {"exports": {"1": "fifo"}},
        {"perf_data": "folder"},
        {"perf_data": "fifo"},
        {"perf_data": "a\0b"},
        {"perf_data": "\udfff.perf.data"},
        {"options": 7},
        {"version": True},
        {"version": []},
    ],
    ids=str,
)
def test_a_manifest_with_what_cannot_be(
    change: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    good = {"version": 1, "perf_data": "x.perf.data", "exports": {}, "options": {}}
    (tmp_path / "x.json").write_text(json.dumps(good | change))
    status, _, said = run(capsys, "replay", tmp_path / "x.json", "--port", "0")
    assert (status, len(said.splitlines())) == (1, 1)
    assert said.startswith("streamer: ")


MAIN = "from streamer.cli import main; main()"
COMMANDS = [["doctor"], ["doctor", "--json"], ["--help"], ["pt", "dump", "{trace}"], ["keys", "{folder}/k"]]


def in_shell(command: list[str], tmp_path: Path, redirection: str, **env: str) -> subprocess.CompletedProcess[str]:
    trace = tmp_path / "trace"
    trace.write_bytes(b"\x02\x82" * 8 + b"\x02\x23")
    words = [w.replace("{trace}", str(trace)).replace("{folder}", str(tmp_path)) for w in command]
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", sys.executable, "-c", MAIN, *words],
        capture_output=True, text=True, timeout=100, check=False, env={**os.environ, **env},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_room_for_the_output(command: list[str], tmp_path: Path) -> None:
    ended = in_shell(command, tmp_path, ">/dev/full")
    assert (ended.returncode, ended.stderr) == (1, "streamer: output: No space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">/dev/full 2>/dev/full", "2>/dev/full", ">&-", ">&- 2>&-"])
def test_nobody_hears_it(redirection: str, tmp_path: Path) -> None:
    good = in_shell(["pt", "dump", "{trace}"], tmp_path, redirection)
    assert good.returncode == (1 if ">/dev/full 2" in redirection else 0), good.stderr
    assert "Traceback" not in good.stderr + good.stdout
    bad = in_shell(["pt", "dump", "/dev/zero"], tmp_path, redirection)
    assert (bad.returncode, bad.stdout) == (1, "")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_goes_is_no_error(command: list[str], tmp_path: Path) -> None:
    ended = in_shell(command, tmp_path, "| true")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "locale",
    [{"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_terminal_without_our_signs(command: list[str], locale: dict[str, str], tmp_path: Path) -> None:
    ended = in_shell(command, tmp_path, "", **locale)
    assert ended.returncode in (0, int(command[0] == "doctor"))
    assert ended.stdout.isascii() or command == ["--help"]  # which click writes as UTF-8 in such a locale
    assert ended.stderr == ""


def test_a_name_that_is_no_text_is_said_all_the_same(tmp_path: Path) -> None:
    ended = in_shell(["replay", os.fsdecode(b"no\xff.json"), "--port", "0"], tmp_path, "", LC_ALL="C.UTF-8")
    assert ended.returncode == 1
    assert "No such file" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
