from __future__ import annotations

import json
import sys
from compileall import compile_file
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from streamer import config, doctor
from streamer.commands.doctor import command


def finding(name: str, state: doctor.State) -> doctor.Finding:
    return doctor.Finding(name, state, "")


ALL = ["Intel PT", "perf events", "java", "JVMTI headers", "C compiler", "qemu-user", "runtime directory"]


@pytest.mark.parametrize(
    ("missing", "able", "words"),
    [
        ([], True, "on hardware and under emulation"),
        (["Intel PT"], True, "emulated"),
        (["qemu-user"], True, "on hardware"),
        (["Intel PT", "qemu-user"], False, "cannot trace"),
        (["java"], False, "cannot trace"),
        (["C compiler"], False, "replaying recordings works"),
    ],
)
def test_verdict_follows_from_what_is_missing(missing: list[str], able: bool, words: str) -> None:
    findings = [finding(name, "missing" if name in missing else "ok") for name in ALL]
    can, sentence = doctor.verdict(findings)
    assert can is able
    assert words in sentence


def test_every_missing_thing_comes_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    findings = doctor.examine(config.load(runtime_dir=tmp_path / "run"))
    gone = {f.name for f in findings if f.state == "missing"}
    assert {"java", "JVMTI headers", "C compiler", "qemu-user"} <= gone
    assert all(f.remedy for f in findings if f.state != "ok")


def test_a_runtime_directory_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    found = doctor.runtime_dir(config.load(runtime_dir=tmp_path))
    assert found.state == "missing"
    assert "open to others" in found.found
    tmp_path.chmod(0o700)
    assert doctor.runtime_dir(config.load(runtime_dir=tmp_path)).state != "missing"


def test_modules_that_each_process_compiles_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "trio" / "__init__.py"
    module.parent.mkdir()
    module.touch()
    monkeypatch.setattr(trio, "__file__", str(module))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = doctor.byte_code()
    assert (found.state, "PYTHONDONTWRITEBYTECODE" in found.found, str(tmp_path) in found.remedy) == (
        "limited", True, True,
    )  # fmt: skip
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert "cannot be written" in doctor.byte_code().found
    compile_file(module, quiet=1)
    assert doctor.byte_code().state == "ok"


def test_json_report_and_exit_status_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_RUNTIME_DIR", str(tmp_path / "run"))
    result = CliRunner().invoke(command, ["--json"])
    report = json.loads(result.stdout)
    assert result.exit_code == (0 if report["able"] else 1)
    assert {f["name"] for f in report["findings"]} >= set(ALL)
