"""Where the agent makes no ring: the rule of tests/jvm/test_private.py, in C, in a JVM that goes on without it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from jvm.agent.build import library
from jvm.export.ring import RingReader
from tests.jdks import java
from tests.jvm.agent.java_process import DEADLINE

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("jvm-agent")]

OTHER = 65533


def version(ring: Path) -> str:
    """The JVM's stderr; it ends well."""
    command = [java(17), f"-agentpath:{library()}=ring={ring},size=256k", "-Xint", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=True)
    return done.stderr


@pytest.fixture
def sticky(tmp_path: Path) -> Path:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    return tmp_path / "tmp"


def test_what_is_missing_is_made_and_links_of_ours_are_followed(sticky: Path) -> None:
    (sticky / "link").symlink_to("real")
    (sticky / "real").mkdir(0o700)
    assert "streamer agent" not in version(sticky / "link" / ".." / "real" / "a" / "b" / "jit.ring")
    assert "streamer agent" not in version(sticky / "link" / "jit.ring")
    assert [stat.S_IMODE((sticky / "real" / name).stat().st_mode) for name in ("a", "a/b")] == [0o700] * 2
    for path in ("real/a/b/jit.ring", "real/jit.ring"):
        RingReader(sticky / path).close()


def directory_of_another(directory: Path, _: Path) -> None:
    directory.mkdir(0o700)
    os.chown(directory, OTHER, OTHER)


def link_of_another(directory: Path, precious: Path) -> None:
    directory.symlink_to(precious)
    os.chown(directory, OTHER, OTHER, follow_symlinks=False)


def link_to_the_directory_of_another(directory: Path, _: Path) -> None:
    directory_of_another(directory.with_name("theirs"), _)
    directory.symlink_to(directory.with_name("theirs"))


def open_directory(directory: Path, _: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)


def file_in_the_way(directory: Path, _: Path) -> None:
    directory.touch()


PLANTS = [
    (directory_of_another, "belongs to another user"),
    (link_of_another, "belongs to another user"),
    (link_to_the_directory_of_another, "belongs to another user"),
    (open_directory, "can be written by others"),
    (file_in_the_way, "is no directory"),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
@pytest.mark.parametrize("below", ["jit.ring", "default/jit.ring"])
@pytest.mark.parametrize(("plant", "why"), PLANTS)
def test_nothing_is_made_where_another_user_has_a_hand(
    plant: Callable[[Path, Path], None], why: str, below: str, sticky: Path
) -> None:
    precious = sticky.parent / "precious"
    precious.mkdir(0o700)
    plant(sticky / "streamer", precious)
    before = sorted(sticky.rglob("*"))
    assert why in version(sticky / "streamer" / below)
    assert not any(precious.iterdir())
    assert sorted(sticky.rglob("*")) == before


def test_a_directory_that_all_may_write_is_no_place_for_a_ring(sticky: Path) -> None:
    assert "can be written by others" in version(sticky / "jit.ring")
    assert not any(sticky.iterdir())
