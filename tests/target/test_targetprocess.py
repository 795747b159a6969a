"""The JVM's owner, with a stand-in for the JVM: the signals passed on, the moment it is left, the exit status."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from streamer.cli import Failure
from streamer.target.process import TargetProcess

# Says "ready" in a file when its handlers are there, and the names of the signals that it has had in another.
PROGRAM = """
import pathlib, signal, sys
root, ends = pathlib.Path(sys.argv[1]), sys.argv[2].split(",")
def heard(number, _):
    name = signal.Signals(number).name
    with (root / "heard").open("a") as file:
        file.write(name + " ")
    if name in ends:
        raise SystemExit(7)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, heard)
(root / "ready").touch()
while not (root / "enough").exists():
    signal.sigtimedwait([], 0.01)
sys.exit(3)
"""


class Scene:
    def __init__(self, root: Path, *ends: str, patience: float = 600) -> None:
        self.root, self.told = root, list[str]()
        argv = [sys.executable, "-c", PROGRAM, str(root), ",".join(ends)]
        self.target = TargetProcess(argv, self.told.append, patience)

    @property
    def heard(self) -> str:
        return (self.root / "heard").read_text()

    def enough(self) -> None:
        (self.root / "enough").touch()

    def when_ready(self, then: Callable[[], None]) -> None:
        """`then` from another thread, when the program has its handlers."""

        def watch() -> None:
            while not (self.root / "ready").exists():
                threading.Event().wait(0.01)
            then()

        threading.Thread(target=watch).start()


@contextmanager
def killed(target: TargetProcess) -> Iterator[None]:
    """The test leaves no process behind, passed or failed."""
    try:
        yield
    finally:
        if target.pid and not target.ended:
            os.kill(target.pid, signal.SIGKILL)
            os.waitpid(target.pid, 0)
            assert target._process is not None
            target._process.returncode = -signal.SIGKILL


def send(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


def until_heard(scene: Scene, words: int) -> None:
    while not (scene.root / "heard").exists() or len(scene.heard.split()) < words:
        threading.Event().wait(0.01)


def test_the_exit_status_is_the_programs(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.target:
        scene.target.start()
        scene.when_ready(scene.enough)
    assert (scene.target.status, scene.target.ended, scene.told) == (3, True, [])


def test_one_that_a_signal_ended(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.target:
        scene.target.start()
        os.kill(scene.target.pid, signal.SIGKILL)
    assert scene.target.status == 128 + signal.SIGKILL


def test_what_would_end_us_is_passed_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "SIGTERM")
    with scene.target:
        scene.target.start()
        scene.when_ready(lambda: send(signal.SIGTERM))
    assert (scene.heard, scene.target.status) == ("SIGTERM ", 7)
    assert "waiting for the program" in scene.told[0]


def test_what_the_program_has_a_use_for_is_passed_on_and_is_no_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def then() -> None:
        send(signal.SIGHUP)
        until_heard(scene, 1)
        send(signal.SIGQUIT)
        until_heard(scene, 2)
        scene.enough()

    with scene.target:
        scene.target.start()
        scene.when_ready(then)
    assert (scene.heard, scene.target.status, scene.told) == ("SIGHUP SIGQUIT ", 3, [])


def test_a_second_signal_leaves_a_program_that_does_not_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def then() -> None:
        send(signal.SIGTERM)
        until_heard(scene, 1)
        send(signal.SIGTERM)

    with killed(scene.target):
        with scene.target:
            scene.target.start()
            scene.when_ready(then)
        until_heard(scene, 2)
        assert scene.target.left
        assert scene.target.status == 128 + signal.SIGTERM
        assert Path(f"/proc/{scene.target.pid}").exists()
        assert f"process {scene.target.pid} runs on, without tracing" in scene.told[-1]


def test_patience_has_an_end(tmp_path: Path) -> None:
    scene = Scene(tmp_path, patience=0.05)
    with killed(scene.target):
        with scene.target:
            scene.target.start()
            scene.when_ready(lambda: send(signal.SIGTERM))
        assert scene.target.left
        assert "has not ended in 0.05 s" in scene.told[-1]


async def test_the_same_in_a_task(tmp_path: Path) -> None:
    """Left after the second signal; the third is for us, at once."""
    scene = Scene(tmp_path)

    def then() -> None:
        send(signal.SIGTERM)
        until_heard(scene, 1)
        send(signal.SIGINT)

    with killed(scene.target), scene.target as target, pytest.RaisesGroup(KeyboardInterrupt):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(target.attend)
            target.start()
            scene.when_ready(then)
            await target.over.wait()
            assert target.left
            send(signal.SIGTERM)
            await trio.sleep_forever()


def test_a_signal_before_the_start(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.target:
        send(signal.SIGINT)
        assert scene.target.look()
        scene.target.start()
    assert (scene.target.started, scene.target.status) == (False, 128 + signal.SIGINT)


def test_a_fault_of_ours_is_told_and_the_program_goes_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.target:
        scene.target.start()
        scene.when_ready(scene.enough)
        raise ZeroDivisionError("a bug")
    assert scene.target.status == 3
    assert scene.told == ["streamer: tracing failed: ZeroDivisionError: a bug; the program runs on"]


def test_a_fault_after_its_end_does_not_change_the_status(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.target:
        scene.target.start()
        scene.enough()
        scene.target.wait()
        raise Failure("the books")
    assert (scene.target.status, scene.told) == (3, ["streamer: the books"])


def test_a_fault_before_the_start_is_nobody_elses(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(Failure), scene.target:
        raise Failure("no such program")


def test_what_was_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Scene(tmp_path).target:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Scene(tmp_path).target:
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
