"""Which directories are safe from other users. The other user is a uid without an account: only root can play it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jvm.private import PrivacyError, is_ours, new_file, output_file, private_directory, safe_directory

OTHER = 65533
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")


def test_what_is_missing_is_made_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        assert safe_directory(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    finally:
        os.umask(before)
    for made in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(made.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_a_step_that_others_can_write_is_refused_and_nothing_is_made_in_it(tmp_path: Path, mode: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    for path in (tmp_path / "open", tmp_path / "open" / "below"):
        with pytest.raises(PrivacyError, match=r"open can be written by others"):
            safe_directory(path)
    assert not any((tmp_path / "open").iterdir())


def test_a_sticky_directory_is_passed_by_what_is_ours_but_is_not_safe_itself(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    assert safe_directory(tmp_path / "tmp" / "mine") == tmp_path / "tmp" / "mine"
    with pytest.raises(PrivacyError, match="tmp can be written by others"):
        safe_directory(tmp_path / "tmp")


@as_root
def test_what_another_user_made_before_us_is_refused(tmp_path: Path) -> None:
    sticky = tmp_path / "tmp"
    sticky.mkdir()
    sticky.chmod(0o1777)
    (sticky / "theirs").mkdir(0o700)
    (tmp_path / "mine").mkdir(0o700)
    (sticky / "link").symlink_to(tmp_path / "mine")
    (sticky / "mylink").symlink_to(tmp_path / "mine")
    os.chown(sticky / "theirs", OTHER, OTHER)
    os.chown(sticky / "link", OTHER, OTHER, follow_symlinks=False)
    for path in (sticky / "theirs", sticky / "theirs" / "below", sticky / "link", sticky / "link" / "below"):
        with pytest.raises(PrivacyError, match=f"belongs to another user \\({OTHER}\\)"):
            safe_directory(path)
    assert not any((sticky / "theirs").iterdir())
    assert not any((tmp_path / "mine").iterdir())
    assert safe_directory(sticky / "mylink" / "below") == tmp_path / "mine" / "below"


def test_links_of_ours_are_followed_to_the_real_path_and_not_for_ever(tmp_path: Path) -> None:
    (tmp_path / "real" / "a").mkdir(0o700, parents=True)
    (tmp_path / "up").symlink_to("real/a/..")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "to-open").symlink_to(tmp_path / "open")
    (tmp_path / "loop").symlink_to("loop")
    assert safe_directory(tmp_path / "up" / "b") == tmp_path / "real" / "b"
    with pytest.raises(PrivacyError, match="can be written by others"):
        safe_directory(tmp_path / "to-open" / "x")
    with pytest.raises(PrivacyError, match="too many links"):
        safe_directory(tmp_path / "loop")


def test_a_file_in_the_way_and_a_directory_others_look_into(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PrivacyError, match="Not a directory"):
        safe_directory(tmp_path / "file" / "x")
    (tmp_path / "shown").mkdir()
    (tmp_path / "shown").chmod(0o755)
    assert safe_directory(tmp_path / "shown") == tmp_path / "shown"
    with pytest.raises(PrivacyError, match="chmod 700"):
        private_directory(tmp_path / "shown")


def test_a_file_is_ours_if_it_is_regular_and_only_we_can_write_it(tmp_path: Path) -> None:
    file, link, fifo = tmp_path / "file", tmp_path / "link", tmp_path / "fifo"
    file.touch(0o644)
    link.symlink_to(file)
    os.mkfifo(fifo)
    assert is_ours(file.lstat())
    assert not any(is_ours(path.lstat()) for path in (link, fifo, tmp_path))
    file.chmod(0o664)
    assert not is_ours(file.lstat())


def test_a_new_file_takes_the_place_of_what_stood_there(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    os.link(tmp_path / "precious", tmp_path / "hard")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "old").write_text("old")
    for name in ("link", "hard", "fifo", "old", "none"):
        with os.fdopen(new_file(tmp_path / name), "w") as file:
            file.write("new")
        assert stat.S_ISREG((tmp_path / name).lstat().st_mode)
        assert stat.S_IMODE((tmp_path / name).lstat().st_mode) == 0o600
        assert (tmp_path / name).read_text() == "new"
    assert (tmp_path / "precious").read_text() == "precious"


def test_the_output_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("what was there is longer")
    (tmp_path / "mine").symlink_to("real")
    os.link(tmp_path / "real", tmp_path / "hard")
    for name in ("mine", "none"):
        with os.fdopen(output_file(tmp_path / name), "w") as file:
            file.write("new")
        assert (tmp_path / name).read_text() == "new"
    assert (tmp_path / "mine").is_symlink()
    assert (tmp_path / "hard").read_text() == "new"
    with os.fdopen(output_file(tmp_path / "hard"), "w") as file:
        file.write("newer")
    assert (tmp_path / "real").read_text() == "new"
    with os.fdopen(output_file(Path("/dev/null")), "w") as file:
        file.write("nothing")


def test_a_fifo_is_written_to_where_somebody_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(OSError, match="a FIFO that nobody reads"):
        output_file(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with os.fdopen(output_file(path), "wb") as file:
            assert os.get_blocking(file.fileno())
            file.write(b"told")
        assert os.read(reader, 10) == b"told"
    finally:
        os.close(reader)


@as_root
def test_the_output_of_a_command_does_not_go_through_a_link_of_another(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("precious")
    (tmp_path / "theirs").symlink_to("real")
    os.chown(tmp_path / "theirs", OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(PrivacyError, match="theirs belongs to another user"):
        output_file(tmp_path / "theirs")
    assert (tmp_path / "real").read_text() == "precious"
