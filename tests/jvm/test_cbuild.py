"""Building C when it is asked for: cached by its sources, one line for a missing tool; and the cache, which no other
user can put anything into."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from jvm import cbuild
from jvm.cbuild import BuildError


def test_a_compiler_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BuildError, match="no C compiler"):
        cbuild.compiler()
    monkeypatch.setenv("CC", "mycc")
    with pytest.raises(BuildError, match="no C compiler mycc"):
        cbuild.compiler()


@pytest.fixture
def cc() -> str:
    try:
        return cbuild.compiler()
    except BuildError as error:
        pytest.skip(str(error))


def test_what_is_built_is_cached(cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    commands = [[cc, "-shared", "-fPIC", "-o", "{out}", str(source)]]
    first = cbuild.compiled("one.so", [source], commands)
    assert cbuild.compiled("one.so", [source], commands) == first
    source.write_text("int one(void) { return 2; }\n")
    assert cbuild.compiled("one.so", [source], commands) != first
    assert cbuild.compiled("one.so", [source], [[*commands[0], "-g"]]) not in (first, None)
    source.write_text("not C\n")
    with pytest.raises(BuildError, match=r"cannot compile one\.so: .*error"):
        cbuild.compiled("one.so", [source], commands)
    assert sorted(path.suffix for path in (tmp_path / "streamer").iterdir()) == [".so"] * 3


def test_a_built_library_is_used_only_if_it_is_a_file_that_we_alone_write(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    commands = [[cc, "-shared", "-fPIC", "-o", "{out}", str(source)]]
    built = cbuild.compiled("one.so", [source], commands)
    good = built.read_bytes()
    planted = tmp_path / "planted"

    def link() -> None:
        built.unlink()
        built.symlink_to(planted)

    def group_writable() -> None:
        built.write_bytes(b"planted")
        built.chmod(0o775)

    def foreign() -> None:
        built.write_bytes(b"planted")
        os.chown(built, OTHER, OTHER)

    planters: list[Callable[[], None]] = [link, group_writable, *([foreign] if os.geteuid() == 0 else [])]
    for plant in planters:
        planted.write_bytes(b"planted")
        plant()
        assert cbuild.compiled("one.so", [source], commands) == built
        assert built.read_bytes() == good, plant.__name__
        assert stat.S_ISREG(built.lstat().st_mode)
        assert planted.read_bytes() == b"planted"


# ---- where the cache is


OTHER = 65533
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, with no home."""
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "tmp"
    directory.mkdir()
    directory.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    cbuild._fresh.cache_clear()
    return directory


def test_the_cache_is_in_the_home_and_private(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cbuild.cache_dir() == tmp_path / "home" / ".cache" / "streamer"
    assert stat.S_IMODE(cbuild.cache_dir().stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cbuild.cache_dir() == tmp_path / "xdg" / "streamer"


def test_without_a_home_it_is_shared_in_the_temporary_directory(temporary: Path) -> None:
    assert cbuild.cache_dir() == cbuild.cache_dir() == temporary / f"streamer-cache-{os.geteuid()}"
    assert stat.S_IMODE(cbuild.cache_dir().stat().st_mode) == 0o700


def plant_directory(name: Path, _: Path) -> None:
    name.mkdir(0o700)
    os.chown(name, OTHER, OTHER)


def plant_file(name: Path, _: Path) -> None:
    name.touch()
    os.chown(name, OTHER, OTHER)


def plant_link_to_theirs(name: Path, elsewhere: Path) -> None:
    elsewhere.mkdir(0o700)
    os.chown(elsewhere, OTHER, OTHER)
    name.symlink_to(elsewhere)


def plant_link_to_ours(name: Path, elsewhere: Path) -> None:
    elsewhere.mkdir(0o700)
    name.symlink_to(elsewhere)
    os.chown(name, OTHER, OTHER, follow_symlinks=False)


def leave_open(name: Path, _: Path) -> None:
    name.mkdir()
    name.chmod(0o777)


@as_root
@pytest.mark.parametrize("plant", [plant_directory, plant_file, plant_link_to_theirs, plant_link_to_ours, leave_open])
def test_a_planted_cache_is_not_used(
    plant: Callable[[Path, Path], None], temporary: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = temporary / f"streamer-cache-{os.geteuid()}"
    plant(name, tmp_path / "elsewhere")
    found = cbuild.cache_dir()
    assert found.parent == temporary
    assert found != name
    assert found.lstat().st_uid == os.geteuid()
    assert stat.S_IMODE(found.lstat().st_mode) == 0o700
    assert cbuild.cache_dir() == found
    assert [record.message for record in caplog.records].count(caplog.records[0].message) == 1
    assert f"{found} is the cache of this process instead" in caplog.records[0].message


@as_root
def test_a_planted_library_is_not_built_into_or_loaded_from(cc: str, temporary: Path, tmp_path: Path) -> None:
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    commands = [[cc, "-shared", "-fPIC", "-o", "{out}", str(source)]]
    built = cbuild.compiled("one.so", [source], commands)  # so its name is known
    theirs = built.parent
    built.write_bytes(b"planted")
    os.chown(built, OTHER, OTHER)
    os.chown(theirs, OTHER, OTHER)
    again = cbuild.compiled("one.so", [source], commands)
    assert again.parent != theirs
    assert again.read_bytes().startswith(b"\x7fELF")
    assert [path.name for path in theirs.iterdir()] == [built.name]


@as_root
def test_nothing_is_made_in_a_home_of_another_user(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir(0o700)
    os.chown(home, OTHER, OTHER)
    monkeypatch.setenv("HOME", str(home))
    assert cbuild.cache_dir() == temporary / f"streamer-cache-{os.geteuid()}"
    assert not any(home.iterdir())


def test_a_fresh_cache_goes_with_its_process(temporary: Path) -> None:
    (temporary / f"streamer-cache-{os.geteuid()}").touch()
    program = "from jvm.cbuild import cache_dir; print(cache_dir())"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert Path(done.stdout.strip()).parent == temporary
    assert "Not a directory" in done.stderr
    assert [path.name for path in temporary.iterdir()] == [f"streamer-cache-{os.geteuid()}"]


def test_no_safe_place_at_all_is_one_line(temporary: Path) -> None:
    temporary.chmod(0o777)
    with pytest.raises(BuildError, match=r"no place for a cache: .* can be written by others"):
        cbuild.cache_dir()
