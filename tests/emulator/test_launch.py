from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from capture.emulator import build
from capture.emulator.launch import command, program
from capture.emulator.options import EmulatorError, EmulatorOptions
from jvm.cbuild import BuildError


def executable(path: Path, content: str) -> Path:
    path.write_text(content)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "wrong",
    [{"aux_kib": 100}, {"aux_kib": 4}, {"data_kib": 3}, {"mtc": 15}, {"cyc": 16}, {"psb_kib": 0}, {"ovf_mb_s": -1.0}],
)
def test_options_are_checked(wrong: dict[str, int]) -> None:
    with pytest.raises(EmulatorError, match=next(iter(wrong))):
        EmulatorOptions(**wrong)  # type: ignore[arg-type]


def test_options_from_a_configuration() -> None:
    options = EmulatorOptions.from_fields(SimpleNamespace(mtc=5, truth=None, unrelated=1))
    assert options == EmulatorOptions(mtc=5)
    arguments = options.arguments(Path("/d")).split(",")
    assert {"dir=/d", "mtc=5", "retcomp=on", "per_thread=off"} <= set(arguments)
    assert not any(argument.startswith("truth") for argument in arguments)


def test_a_comma_cannot_be_passed_on() -> None:
    with pytest.raises(EmulatorError, match="comma"):
        EmulatorOptions().arguments(Path("/a,b"))


def test_scripts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="is a script"):
        program(str(executable(tmp_path / "fop", "#!/bin/sh\nexec java\n")))
    with pytest.raises(EmulatorError, match="no such program"):
        program("no-such-program-anywhere")
    with pytest.raises(EmulatorError, match="no x86-64 program"):
        program(str(executable(tmp_path / "text", "plain text, no program")))


def test_links_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "java").symlink_to("/bin/true")
    assert program(str(tmp_path / "java")) == Path(os.path.realpath("/bin/true"))


def test_qemu_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmulatorError, match="qemu-x86_64 is missing"):
        build.qemu()
    executable(tmp_path / "qemu-x86_64", "#!/bin/sh\necho qemu-x86_64 version 10.0.2\n")
    with pytest.raises(EmulatorError, match=r"version 10\.0"):
        build.qemu()
    executable(tmp_path / "qemu-x86_64", "#!/bin/sh\necho something else\n")
    with pytest.raises(EmulatorError, match="cannot tell its version"):
        build.qemu()


def test_command(tmp_path: Path) -> None:
    try:
        qemu = build.qemu()
        build.plugin()
    except (EmulatorError, BuildError) as error:
        pytest.skip(str(error))
    directory = tmp_path / "pt"
    argv = command(["/bin/true", "--flag"], directory)
    assert argv[0] == qemu
    assert argv[-2:] == [os.path.realpath("/bin/true"), "--flag"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    (directory / "cpu0.ring").touch()
    with pytest.raises(EmulatorError, match="rings of another run"):
        command(["/bin/true"], directory)
    with pytest.raises(EmulatorError, match="no command"):
        command([], directory)
