"""Every byte that was written is decoded or in a hole of a named cause, however little of it could be handled."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from capture.recording.replay import Replay
from stages.messages import Chunk
from streamer.pipeline.topology import MIDDLE
from tests.e2e.harness import DROPPED, OVERFLOWS, TIMES_FULL, Streamer, until

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]
Run = Callable[..., Streamer]
NO_LIMIT = {"STREAMER_TRANSPORT__HWM": "100000"}


def test_the_recording_says_what_the_live_run_said(run: Run, start: Run, root: Path) -> None:
    """As far as it is followed: how much that is depends on the machine, so here nothing is shed."""
    live = run("Shop 1 60", "--record", "rec", env={**NO_LIMIT, "STREAMER_FLOW__MOST_BEHIND_SECONDS": "0"})
    ended = live.wait()
    ended.check_books()
    live.check_gone()
    assert "transport" not in ended.holes
    assert "served" in ended.out
    with Replay(root / "rec" / "trace.json") as recording:
        recorded = sum(len(m.data) for m in recording.messages() if isinstance(m, Chunk))
    assert recorded == ended.written
    (root / "summary.json").unlink()

    replay = start("replay", "rec/trace.json", "--pace", "max", "--port", "0", "--summary", "summary.json")
    again = replay.wait()
    assert again.status == 0, again.err
    replay.check_gone()
    assert len(again.methods) > 100  # the same program always runs through more
    assert again.methods == ended.methods
    assert again.summary["run"]["run"] == ended.summary["run"]["run"]
    assert again.holes == ended.holes


@pytest.mark.nightly
def test_each_stage_in_processes_of_its_own(run: Run) -> None:
    """A ring a thread, two workers for each stage, over tcp; the processor overflows."""
    options = [
        "--per-thread",
        "--workers",
        "2",
        "--transport",
        "tcp",
        *(word for stage in MIDDLE["flow"][1:] for word in ("--split", stage)),
    ]
    streamer = run("Tiny enough", *options, "--ovf-mb-s", "0.1", env=NO_LIMIT)
    streamer.when_counter(OVERFLOWS)
    streamer.when_decoded(100 << 10)
    streamer.enough()
    ended = streamer.wait()
    ended.check_books()
    streamer.check_gone()
    assert sum(s["streams"] for s in ended.summary["streams"]) > 3  # a thread's goes into its process's sum at its end
    assert ended.holes["overflow"] > 0
    ended.check_seen()


def test_in_one_process_with_a_small_ring(run: Run) -> None:
    streamer = run("Tiny enough", "--transport", "inproc", "--aux-kib", "16", env=NO_LIMIT)
    streamer.when_decoded(200 << 10)
    os.kill(streamer.process.pid, signal.SIGSTOP)
    try:
        streamer.when_counter(TIMES_FULL)
    finally:
        os.kill(streamer.process.pid, signal.SIGCONT)
    streamer.when_decoded(200 << 10)
    streamer.enough()
    ended = streamer.wait()
    ended.check_books()
    streamer.check_gone()
    assert ended.holes["aux_full"] > 0
    assert ended.summary["run"]["unwritten"]["aux_full"] > 0
    ended.check_seen()


def test_stopped_processes(run: Run) -> None:
    """Capture stops: the ring is full. The worker stops: the socket is full. Neither stops the JVM."""
    streamer = run("Tiny enough", "--aux-kib", "64", env={"STREAMER_TRANSPORT__HWM": "1"})
    streamer.when_decoded(100 << 10)
    capture, worker = streamer.pid("capture/0"), streamer.pid("decode/0")
    os.kill(capture, signal.SIGSTOP)
    streamer.when_counter(DROPPED, streamer.counter(DROPPED) + 1)  # it may have been full before
    os.kill(capture, signal.SIGCONT)
    os.kill(worker, signal.SIGSTOP)
    until(lambda: streamer.component("capture/0")["statistics"]["stages"]["refused_bytes"], "a full socket")
    os.kill(worker, signal.SIGCONT)
    streamer.when_decoded()
    streamer.enough()
    ended = streamer.wait()
    ended.check_books()
    streamer.check_gone()
    assert set(ended.summary["restarts"].values()) == {0}
    assert ended.holes["aux_full"] > 0
    assert ended.lost["transport"] > 0
