"""The start on a machine where nothing has been compiled yet: the JVM does not wait, and no process is left behind."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jvm.cbuild import cache_dir
from tests.e2e.harness import Streamer, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
DEMO = Path(__file__).parents[2] / "streamer" / "demo" / "shop.json"


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Another process compiles, and does not come to an end."""
    lock.parent.mkdir(mode=0o700, parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.jvm
@pytest.mark.parametrize("compiled", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_the_jvm_does_not_wait_for_a_compiler(run: Callable[..., Streamer], root: Path, compiled: bool) -> None:
    """`compiled`: the kernels are there, and nobody knows it yet."""
    with held(root / "cache" / "streamer" / "warm.lock"):
        if compiled:
            (root / "cache" / "streamer" / "numba").symlink_to(cache_dir() / "numba")
        streamer = run("Tiny enough", env={"XDG_CACHE_HOME": str(root / "cache")})
        streamer.when_written(300 << 10)
        assert "until they are there, trace is shed" in streamer.err
        assert streamer.get("/readyz") != "ready\n"
        assert not loaded(streamer.process.pid)  # it only keeps the others going
        streamer.enough()
        ended = streamer.wait()
        ended.check_books()
        streamer.check_gone()


def test_compilers_die_with_the_one_who_needs_them(start: Callable[..., Streamer], root: Path) -> None:
    """Killed when it has done nothing but wait for its kernels."""
    streamer = start("replay", DEMO, "--port", "0", env={"XDG_CACHE_HOME": str(root / "cache")})
    compilers = until(
        lambda: [p for p, line in streamer.processes().items() if "warm_flow" in line and loaded(p)], "it compiles"
    )
    os.kill(compilers[0], signal.SIGSTOP)
    streamer.process.kill()
    until(lambda: not streamer.processes(), "nothing is left", 30)


def loaded(pid: int) -> bool:
    """Whether the process has got so far as to load the compiler."""
    try:
        return "llvmlite" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False
