from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamer.session import SessionError, session


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for the names of sockets; pytest's own can be too long."""
    with tempfile.TemporaryDirectory(prefix="s-") as path:
        yield Path(path)


def test_a_session_is_private_and_goes_when_it_ends(short: Path) -> None:
    with session(short / "run") as path:
        assert path.stat().st_mode & 0o777 == 0o700
        assert (path / "pt").is_dir()
    assert not path.exists()


def test_an_open_runtime_directory_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(SessionError, match="chmod 700"), session(tmp_path):
        pass


def test_a_path_too_long_for_sockets_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="too long"), session(tmp_path / ("x" * 90)):
        pass


def test_a_file_in_the_way_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="Not a directory"), session(tmp_path / "file" / "run"):
        pass


def test_what_a_crashed_session_left_is_swept_but_a_running_one_is_not(short: Path) -> None:
    short.chmod(0o700)
    crashed = short / "000000-1"
    crashed.mkdir(mode=0o700)
    (crashed / ".lock").touch()
    with session(short) as running:
        assert not crashed.exists()
        child = os.fork()
        if child == 0:  # another process beginning a session must leave ours alone
            with session(short / "."):
                os._exit(0 if running.exists() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert running.exists()
