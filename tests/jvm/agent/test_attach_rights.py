"""Root attaches to a JVM of another user, and that user stands in the way with all that a user can put there: nothing
of root's is touched, and no other process is taken for the JVM. The user is a uid without an account."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from jvm import attach as attaching
from jvm.asuser import NotDoneError, User, as_user
from jvm.attach import AttachError, execute
from jvm.export.ring import RingReader
from jvm.private import PrivacyError, open_below, open_file_below
from tests.jvm.agent import fakejvm
from tests.jvm.agent.java_process import DEADLINE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act for another user")

THEM, THIRD = 61111, 62222
ANSWER = "jcmd\nVM.version\n\n\n"


class Place:
    """A root directory with a /tmp and a home of the JVM's user, and beside it something of root's."""

    def __init__(self, path: Path) -> None:
        path.chmod(0o755)
        self.library = path / "libjvm.so"
        self.library.write_bytes(b"\0")
        self.root, self.precious = path / "root", path / "precious"
        self.tmp, self.home = self.root / "tmp", self.root / "home"
        self.root.mkdir()
        for directory in (self.tmp, self.home):
            directory.mkdir()
        self.tmp.chmod(0o1777)
        os.chown(self.home, THEM, THEM)
        self.precious.mkdir(0o700)
        (self.precious / "file").write_text("root's")
        (self.precious / "file").chmod(0o600)
        self._before = self._all()

    def _all(self) -> dict[str, tuple[int, int, int, str]]:
        paths = [self.precious, *sorted(self.precious.rglob("*"))]
        return {
            str(path): ((s := path.lstat()).st_uid, s.st_gid, s.st_mode, path.read_text() if path.is_file() else "")
            for path in paths
        }

    def untouched(self) -> bool:
        return self._all() == self._before

    @contextlib.contextmanager
    def jvm(self, cwd: str = "/home", uid: int = THEM, groups: tuple[int, ...] = ()) -> Iterator[int]:
        words = [self.library, self.root, cwd, uid, uid, *groups]
        with subprocess.Popen(
            [sys.executable, fakejvm.__file__, *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process.pid
            process.kill()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def ask(pid: int, timeout: float = DEADLINE) -> str:
    return execute(pid, "jcmd", "VM.version", timeout=timeout)


def test_in_the_root_and_with_the_rights_of_its_user(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.unlink
    with place.jvm() as pid:
        trigger = place.home / f".attach_pid{pid}"

        def unlink(name: str, dir_fd: int) -> None:  # in the child
            status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            with os.fdopen(os.open("seen", os.O_WRONLY | os.O_CREAT, dir_fd=dir_fd), "w") as seen:
                seen.write(f"{status.st_uid} {status.st_gid} {status.st_mode:o} {os.getresuid()}")
            really(name, dir_fd=dir_fd)

        monkeypatch.setattr(os, "unlink", unlink)
        assert ask(pid) == "1\n" + ANSWER
        assert (place.home / "seen").read_text() == f"{THEM} {THEM} 100600 {(THEM,) * 3}"
        assert (place.home / "seen").stat().st_uid == THEM
        assert not trigger.exists()
        assert ask(pid) == "1\n" + ANSWER  # it listens already


def test_a_directory_that_is_open_to_its_groups_alone(place: Place) -> None:
    os.chown(place.home, 0, 4711)
    place.home.chmod(0o770)
    with place.jvm(groups=(4711,)) as pid:
        assert ask(pid) == "1\n" + ANSWER
        assert not list(place.tmp.glob(".attach*"))


def plant_link(trigger: Path, place: Place) -> None:
    trigger.symlink_to(place.precious / "file")
    os.chown(trigger, THEM, THEM, follow_symlinks=False)


def plant_dangling_link(trigger: Path, place: Place) -> None:
    trigger.symlink_to(place.precious / "new")


def plant_hard_link(trigger: Path, place: Place) -> None:
    os.link(place.precious / "file", trigger)


def plant_fifo(trigger: Path, _: Place) -> None:
    os.mkfifo(trigger)
    os.chown(trigger, THEM, THEM)


def plant_device(trigger: Path, _: Place) -> None:
    os.mknod(trigger, 0o600 | stat.S_IFCHR, os.makedev(1, 3))


@pytest.mark.parametrize("plant", [plant_link, plant_dangling_link, plant_fifo, plant_device])
def test_what_is_planted_in_its_directory_is_removed_and_not_followed(
    plant: Callable[[Path, Place], None], place: Place
) -> None:
    with place.jvm() as pid:
        plant(place.home / f".attach_pid{pid}", place)
        assert ask(pid) == "1\n" + ANSWER
        assert not any(place.home.iterdir())
    assert place.untouched()


def test_a_hard_link_to_a_file_of_roots_asks_as_well_but_stays_roots(place: Place) -> None:
    with place.jvm() as pid:
        plant_hard_link(trigger := place.home / f".attach_pid{pid}", place)
        assert ask(pid) == "1\n" + ANSWER
        assert trigger.samefile(place.precious / "file")
    assert place.untouched()


def test_a_directory_in_the_way_is_one_line(place: Place) -> None:
    with place.jvm() as pid:
        (place.home / f".attach_pid{pid}" / "below").mkdir(parents=True)
        with pytest.raises(AttachError, match=rf"\.attach_pid{pid} of user .* is in the way: Is a directory"):
            ask(pid)


def test_a_third_users_file_where_the_jvm_looks_is_one_line(place: Place) -> None:
    with place.jvm(cwd="/tmp") as pid:
        (place.tmp / f".attach_pid{pid}").touch()
        os.chown(place.tmp / f".attach_pid{pid}", THIRD, THIRD)
        with pytest.raises(AttachError, match=rf"user {THIRD} is in the way: Operation not permitted"):
            ask(pid)


def test_whoever_exchanges_names_all_the_time_gets_nothing(place: Place) -> None:
    """The file that asks is made again and again while its user puts links to root's file in its place."""
    program = (
        "import os, sys\n"
        "name, link, target, uid = sys.argv[1:]\n"
        "os.setresuid(int(uid), int(uid), int(uid))\n"
        "print(flush=True)\n"
        "while True:\n"
        "    os.symlink(target, link)\n"
        "    os.replace(link, name)\n"
    )
    with place.jvm() as pid:
        words = [place.home / f".attach_pid{pid}", place.home / "link", place.precious / "file", THEM]
        with subprocess.Popen([sys.executable, "-c", program, *map(str, words)], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            for _ in range(100):
                with contextlib.suppress(AttachError), attaching._examine(pid) as target:
                    assert target.cwd is not None
                    as_user(target.user, lambda: str(attaching._ask(target, target.cwd or 0)), DEADLINE, 100)
            other.kill()
    assert place.untouched()


# ---- the socket


@contextlib.contextmanager
def listening(path: Path, uid: int) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(path))
        os.chown(path, uid, uid)
        planted.listen()
        yield


def test_a_socket_of_another_user_is_not_spoken_to(place: Place) -> None:
    with (
        place.jvm() as pid,
        listening(place.tmp / f".java_pid{pid}", THIRD),
        pytest.raises(AttachError, match=rf"java_pid{pid} belongs to user {THIRD} and is in the JVM's way"),
    ):
        ask(pid)


def test_a_socket_of_another_process_of_its_user_is_not_taken_for_the_jvms(place: Place) -> None:
    with (
        place.jvm() as pid,
        listening(place.tmp / f".java_pid{pid}", THEM),
        pytest.raises(AttachError, match=rf"is not JVM {pid}'s: process {os.getpid()} of user 0 answers"),
    ):
        ask(pid)


@pytest.mark.parametrize("kind", ["link", "fifo", "file"])
def test_what_is_no_socket_is_not_opened(kind: str, place: Place) -> None:
    with place.jvm() as pid:
        path = place.tmp / f".java_pid{pid}"
        match kind:
            case "link":
                path.symlink_to(place.precious / "file")
            case "fifo":
                os.mkfifo(path)
            case _:
                path.touch()
        os.chown(path, THEM, THEM, follow_symlinks=False)
        assert ask(pid) == "1\n" + ANSWER  # the JVM has put its own in its place
    assert place.untouched()


# ---- its root directory


def test_a_link_in_its_root_does_not_lead_into_ours(place: Place) -> None:
    place.tmp.rmdir()
    place.tmp.symlink_to(place.precious)
    with place.jvm() as pid, pytest.raises(AttachError, match="cannot attach"):
        ask(pid)
    assert place.untouched()


# ---- where the agent and the ring go


def hand_over(pid: int) -> None:
    with attaching._examine(pid) as target:

        def work() -> str:
            attaching._hand_over(target, (f"streamer-{THEM}", "default"), "agent.so", b"code")
            return ""

        attaching._as_its_user(target, work, time.monotonic() + DEADLINE)


def test_the_agent_is_its_users_in_a_directory_of_its_own(place: Place) -> None:
    with place.jvm() as pid:
        hand_over(pid)
        hand_over(pid)  # again: anew
    directory = place.tmp / f"streamer-{THEM}"
    for path, mode in ((directory, 0o40700), (directory / "default", 0o40700), (directory / "agent.so", 0o100600)):
        assert (path.lstat().st_uid, path.lstat().st_mode) == (THEM, mode)
    assert (directory / "agent.so").read_bytes() == b"code"
    assert sorted(path.name for path in directory.iterdir()) == ["agent.so", "default"]


def plant_link_to_precious(directory: Path, place: Place) -> None:
    directory.symlink_to(place.precious)
    os.chown(directory, THEM, THEM, follow_symlinks=False)


def plant_directory_of_a_third(directory: Path, _: Place) -> None:
    directory.mkdir(0o700)
    os.chown(directory, THIRD, THIRD)


def plant_open_directory(directory: Path, _: Place) -> None:
    directory.mkdir()
    os.chown(directory, THEM, THEM)
    directory.chmod(0o777)


def plant_links_inside(directory: Path, place: Place) -> None:
    directory.mkdir(0o700)
    (directory / "default").symlink_to(place.precious)
    os.chown(directory, THEM, THEM)


def leave_tmp_open(_: Path, place: Place) -> None:
    place.tmp.chmod(0o777)


@pytest.mark.parametrize(
    "plant",
    [plant_link_to_precious, plant_directory_of_a_third, plant_open_directory, plant_links_inside, leave_tmp_open],
)
def test_no_agent_goes_where_others_have_a_hand(plant: Callable[[Path, Place], None], place: Place) -> None:
    directory = place.tmp / f"streamer-{THEM}"
    with place.jvm() as pid:
        plant(directory, place)
        with pytest.raises(AttachError):
            hand_over(pid)
        assert not list(place.root.rglob("agent.so"))
    assert place.untouched()


def test_an_agent_that_is_a_link_is_replaced(place: Place) -> None:
    directory = place.tmp / f"streamer-{THEM}"
    directory.mkdir(0o700)
    (directory / "agent.so").symlink_to(place.precious / "file")
    os.chown(directory, THEM, THEM)
    with place.jvm() as pid:
        hand_over(pid)
    assert not (directory / "agent.so").is_symlink()
    assert place.untouched()


def test_only_a_file_of_its_user_is_opened_as_a_ring(place: Place) -> None:
    directory = place.home / "ring"
    directory.mkdir(0o700)
    os.chown(directory, THEM, THEM)
    home = os.open(place.home, os.O_PATH)
    try:
        at = open_below(home, "ring", THEM)
        os.mkfifo(directory / "fifo")
        os.chown(directory / "fifo", THEM, THEM)
        (directory / "link").symlink_to(place.precious / "file")
        os.link(place.precious / "file", directory / "hard")
        (directory / "good").write_text("theirs")
        os.chown(directory / "good", THEM, THEM)
        for name in ("fifo", "link", "hard"):
            with pytest.raises(PrivacyError, match=f"{name} is not a file of user {THEM}"):
                open_file_below(at, name, THEM)
        with os.fdopen(open_file_below(at, "good", THEM), "r+") as file:
            assert file.read() == "theirs"
        os.close(at)
        (place.home / "other").symlink_to(directory)
        with pytest.raises(OSError, match="Not a directory"):
            open_below(home, "other", THEM)
    finally:
        os.close(home)


def test_a_fifo_as_a_ring_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "jit.ring")
    with pytest.raises((OSError, ValueError)):
        RingReader(tmp_path / "jit.ring")


# ---- acting as a user


def test_rights_are_gone_for_good() -> None:
    user = User(THEM, THIRD, (4711,))

    def try_all() -> str:
        said = [str((os.getresuid(), os.getresgid(), os.getgroups()))]
        for regain in (partial(os.setuid, 0), partial(os.setgid, 0), partial(os.setgroups, [0])):
            with contextlib.suppress(PermissionError):
                regain()
                said.append("regained")
        status = Path("/proc/self/status").read_text()
        said += [line.split()[1] for line in status.splitlines() if line.startswith(("CapPrm", "CapEff"))]
        return " ".join([*said, str(Path("/proc/self/mem").lstat().st_uid)])  # root's: not dumpable

    expected = f"{((THEM,) * 3, (THIRD,) * 3, [4711])} {'0' * 16} {'0' * 16} 0"
    assert as_user(user, try_all, DEADLINE, 1000) == expected
    assert os.getresuid() == (0, 0, 0)


def test_what_goes_wrong_in_the_child_is_one_error() -> None:
    user = User(THEM, THEM)

    def fail() -> str:
        raise ValueError("no such luck")

    with pytest.raises(NotDoneError, match="no such luck"):
        as_user(user, fail, DEADLINE, 100)
    with pytest.raises(NotDoneError, match="was ended"):
        as_user(user, lambda: os._exit(3), DEADLINE, 100)
    with pytest.raises(NotDoneError, match="more than 100 bytes"):
        as_user(user, lambda: "x" * 1000, DEADLINE, 100)
    never, _held = os.pipe()
    with pytest.raises(NotDoneError, match="not done in time"):
        as_user(user, lambda: str(os.read(never, 1)), 0.1, 100)
    for fd in (never, _held):
        os.close(fd)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # nothing is left of them
