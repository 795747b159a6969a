"""Signals from outside in mid-run: processes are killed, interrupted, told to end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from capture.recording.replay import Replay
from stages.messages import Chunk, EndOfStream
from tests.e2e.harness import HOTTEST, Streamer, until

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
Run = Callable[..., Streamer]


def restarted(streamer: Streamer, member: str) -> bool:
    return streamer.metric(f'streamer_restarts_total{{component="{member}"}}') == 1


@pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_kill_9_of_worker_and_capture(run: Run, together: bool) -> None:
    """Both are back, their messages are in holes of a cause of their own, and the JVM did not notice. The thread that
    runs on meanwhile has no switch record of its own for a later reader, and is known all the same."""
    streamer = run("Tiny enough", env={"STREAMER_TRANSPORT__HWM": "100000"})
    streamer.when_decoded(300 << 10)
    # stopped first, so that there is something on its way to it when it dies
    os.kill(streamer.pid("decode/0"), signal.SIGSTOP)
    streamer.when_written(streamer.written() + (200 << 10))
    for members in [("decode/0", "capture/0")] if together else [("decode/0",), ("capture/0",)]:
        streamer.kill(*members)
    for member in ("decode/0", "capture/0"):
        until(partial(restarted, streamer, member), "counted")
    streamer.when_decoded(1 << 20)
    streamer.enough()
    ended = streamer.wait()
    ended.check_books()
    streamer.check_gone()
    assert ended.summary["restarts"] == {"capture/0": 1, "decode/0": 1, "hub/0": 0}
    assert "restarts: capture/0 × 1, decode/0 × 1" in ended.out
    assert ended.lost["worker_down"] > 0
    assert ended.holes["capture_down"] > 0
    ended.check_seen()
    # No more than between two time marks for each switch; without the running thread, a whole ring would be.
    assert ended.lost.get("unknown_thread", 0) < ended.decoded / 4


def decoded_more(streamer: Streamer, before: float) -> bool:
    return streamer.decoded() > before


@pytest.mark.parametrize("kills", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_kill_9_of_the_hub(run: Run, kills: int) -> None:
    """The page is there again under the same address, has its former counts, with the names, and counts on."""
    streamer = run("Tiny enough", env={"STREAMER_TRANSPORT__HWM": "100000"})
    streamer.when_decoded(300 << 10)
    for times in range(1, kills + 1):
        before = streamer.decoded()
        streamer.kill("hub/0")
        assert streamer.metric('streamer_restarts_total{component="hub/0"}') == times
        until(partial(decoded_more, streamer, before), "it counts on")
    hottest = until(
        lambda: re.findall(r'streamer_method_share_ratio\{.*method="([^"]*)"', streamer.get("/metrics")), "hot"
    )
    assert set(HOTTEST) & set(hottest)
    assert "[unnamed]" not in hottest
    streamer.enough()
    ended = streamer.wait()
    ended.check_books()
    streamer.check_gone()
    assert ended.summary["restarts"] == {"capture/0": 0, "decode/0": 0, "hub/0": kills}
    assert set(ended.lost) <= {"hub_down", "unknown_thread", "no_sync", "unread"}  # a busy machine reads less
    ended.check_seen()


def test_the_hub_is_lost_at_the_end(run: Run) -> None:
    """It hears nothing any more when the JVM ends, and dies when another start would change nothing: the summary is
    made from its last note, and all that came later is in holes of that cause."""
    streamer = run("Tiny enough", env={"STREAMER_TRANSPORT__HWM": "100000"})
    streamer.when_decoded(300 << 10)
    (session,) = streamer.runtime.iterdir()
    until(lambda: (session / "hub.state").exists(), "the hub has noted its state")
    hub = streamer.pid("hub/0")
    os.kill(hub, signal.SIGSTOP)
    streamer.when_written(streamer.written() + (1 << 20))
    streamer.enough()
    until(lambda: (session / "pt/emulator.json").read_text().find('"ended"') > 0, "the JVM has ended")
    with suppress(ProcessLookupError):
        os.kill(hub, signal.SIGKILL)
    ended = streamer.wait()
    streamer.check_gone()
    assert ended.status == 0, ended.err
    assert ended.summary["target_status"] == 0
    for stream in ended.summary["streams"]:
        assert stream["written"] == stream["decoded"] + sum(stream["holes"].values()), stream
    assert ended.lost["hub_down"] > 0
    assert set(ended.lost) <= {"hub_down", "unknown_thread", "no_sync", "transport", "unread"}


@pytest.mark.nightly  # tests/supervisor has the same without a JVM
def test_the_jvm_ends_while_a_worker_is_stopped_and_capture_is_killed(run: Run) -> None:
    """The other worker has ended by then. The end comes all the same, and before that no status says that all is
    well."""
    streamer = run("Tiny enough", "--workers", "2", "--per-thread")
    streamer.when_decoded(100 << 10)
    os.kill(streamer.pid("decode/1"), signal.SIGSTOP)
    until(lambda: "decode/1 is down (quiet" in streamer.get("/readyz"), "/readyz says that it is not there")
    capture = streamer.pid("capture/0")
    streamer.enough()
    until(lambda: "decode/0" not in streamer.members(), "the other worker has ended")
    with suppress(ProcessLookupError):
        os.kill(capture, signal.SIGKILL)
    ended = streamer.wait()
    ended.check_books()
    streamer.check_gone()


@pytest.mark.parametrize(
    "how", ["^C", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("SIGTERM", "SIGHUP"))]
)
def test_an_orderly_end_when_it_is_told_to(run: Run, how: str) -> None:
    streamer = run("Tiny never")
    streamer.when_decoded()
    if how == "^C":  # the terminal tells all of its foreground
        os.killpg(streamer.process.pid, signal.SIGINT)
        status = 128 + signal.SIGINT
    else:
        number = signal.Signals[how]
        streamer.process.send_signal(number)
        status = 128 + number
    ended = streamer.wait()
    streamer.check_gone()
    assert ended.status == status  # the JVM's
    assert ended.summary["failed"] == []
    assert ended.written > 0
    for stream in ended.summary["streams"]:
        assert stream["written"] == stream["decoded"] + sum(stream["holes"].values())
    assert ("stopping" in ended.err) == (how != "SIGHUP")  # which is the JVM's alone: it might go on
    assert "Traceback" not in ended.err
    assert "of trace decoded" in ended.out


def test_a_recording_is_completed_when_it_is_told_to_end(start: Run, classes: Path, root: Path) -> None:
    jvm = ["java", "-Xint", "-XX:+UseSerialGC", "-cp", classes, "Tiny", "never"]
    streamer = start("record", "--emulate", "-o", "rec", "--", *jvm)
    streamer.when_written(300 << 10)
    streamer.process.send_signal(signal.SIGTERM)
    ended = streamer.wait()
    streamer.check_gone()
    assert ended.status == 128 + signal.SIGTERM, ended.err
    assert "of trace in" in ended.err
    with Replay(root / "rec" / "trace.json") as recording:
        messages = list(recording.messages())
    assert sum(len(m.data) for m in messages if isinstance(m, Chunk)) > 300 << 10
    assert isinstance(messages[-1], EndOfStream)
