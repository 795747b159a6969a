"""The main process is killed, the JVM goes on, and `streamer resume` traces it again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from capture.live.ring import PerfRing
from streamer.pipeline.outcome import aux_heads
from streamer.session import manifest
from tests.e2e.harness import HOTTEST, Streamer, until
from tests.processes import has_ended

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
NO_LIMIT = {"STREAMER_TRANSPORT__HWM": "100000"}


def tails(session: Path) -> int:
    """How much trace has been taken out of a session's rings."""
    total = 0
    for path in (session / "pt").glob("*.ring"):
        with closing(PerfRing.open(path)) as ring:
            total += ring.aux_tail
    return total


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param([signal.SIGINT], id="SIGINT"),
        pytest.param([signal.SIGINT, signal.SIGHUP], id="SIGINT, SIGHUP", marks=pytest.mark.nightly),
    ],
)
def test_kill_9_of_the_main_process(
    run: Callable[..., Streamer], start: Callable[..., Streamer], root: Path, ways: list[signal.Signals]
) -> None:
    first = run("Tiny enough", env=NO_LIMIT)
    first.when_decoded(2 << 20)
    (session,) = (root / "rt").iterdir()
    jvm = manifest.read(session).target
    assert jvm is not None
    until(lambda: (session / "hub.state").exists(), "the hub has noted its state")
    os.kill(first.pid("hub/0"), signal.SIGSTOP)  # it notes no more
    taken = tails(session)
    until(lambda: tails(session) > taken + (1 << 20), "capture takes trace of which the hub never hears")
    first.process.kill()
    first.process.wait()
    until(lambda: list(first.processes()) == [jvm.pid], "the JVM alone is left")
    written = sum(aux_heads(session).values())
    until(lambda: sum(aux_heads(session).values()) > written, "it runs on")

    attached = start("attach", str(jvm.pid))
    assert attached.process.wait(60) == 1
    assert attached.err.splitlines() == [
        f"streamer: JVM {jvm.pid} was traced by a session that has ended: `streamer resume {jvm.pid}` takes it up"
    ]

    def resumed(*more: str) -> Streamer:
        streamer = start("resume", *more, "--port", "0", "--summary", "summary.json", env=NO_LIMIT)
        streamer.when_decoded(1 << 20)
        until(
            lambda: any(f'method="{name}"' in streamer.get("/metrics") for name in HOTTEST), "the hot method is there"
        )
        until(lambda: streamer.get("/readyz") == "ready\n", "ready")
        return streamer

    for number in ways:  # tracing ends, the JVM does not
        left = resumed()
        os.kill(left.process.pid, number)
        assert left.wait().status == 0
        assert jvm.lives()
        assert session.exists()

    again = resumed(str(jvm.pid))
    again.enough()
    ended = again.wait()
    ended.check_books()
    again.check_gone()
    assert ended.lost["capture_down"] > 0  # of the time between
    assert ended.decoded > (2 + len(ways)) << 20  # of all sessions
    until(lambda: has_ended(jvm.pid), "the JVM has ended")


def test_there_is_nothing_to_take_up(start: Callable[..., Streamer]) -> None:
    for arguments, why in ((), "no JVM of an earlier session"), (("1",), "no JVM 1 of an earlier session"):
        streamer = start("resume", *arguments)
        assert streamer.process.wait(60) == 1
        assert f"{why} runs on untraced" in streamer.err
