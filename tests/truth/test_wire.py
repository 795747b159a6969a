"""Control flow is told whole: a reader in another process, with the messages alone, tells the way block by block."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

from benchmarks.flow_truth.evaluate import STAGES, Evaluation
from benchmarks.flow_truth.record import NAME
from capture.recording.replay import Replay
from stages.messages import Chunk, Paths
from streamer.config import Settings, TransportConfig
from streamer.pipeline.supervisor import Supervisor
from streamer.pipeline.topology import topology
from tests.jdks import java, tool
from tests.truth.recorded import recorded

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]

PROGRAM = """
public class Sum {
    static int step(int i, int n) { return (i & 3) == 0 ? n * 31 + i : n ^ i; }

    public static void main(String[] args) {
        int n = 0;
        for (int i = 0; i < 200_000; i++) n = step(i, n);
        System.out.println(n);
    }
}
"""


class Reading:
    """The last group: everything it hears goes to the evaluation."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self.heard: Counter[str] = Counter()

    def feed(self, message: Any) -> Iterable[Any]:
        self.heard[type(message).__name__] += 1
        if isinstance(message, Paths):
            assert not message.order.flags.writeable  # a view of a frame
        self._evaluation.take(message)
        return ()

    def flush(self) -> Iterable[Any]:
        return ()

    def statistics(self) -> dict[str, int]:
        return dict(self.heard)


def run_of(tmp_path: Path) -> Path:
    (tmp_path / "Sum.java").write_text(PROGRAM)
    subprocess.run([tool("javac"), "--release", "17", "-d", tmp_path, tmp_path / "Sum.java"], check=True, timeout=120)
    recorded([java(17), "-XX:+UseSerialGC", "-cp", str(tmp_path), "Sum"], tmp_path / "run")
    return tmp_path / "run"


async def test_a_reader_in_another_process_says_block_by_block_what_ran(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    there = Evaluation(run)
    with Replay(run / f"{NAME}.json") as replay:
        for message in replay.messages():
            if isinstance(message, Chunk):
                there.trace(message)
    reading = Reading(there)
    settings = Settings(fidelity="flow", transport=TransportConfig(mode="ipc"), runtime_dir=tmp_path)
    session = tmp_path / "s"
    session.mkdir(mode=0o700)
    plan = topology(settings, "replay", STAGES, "reader", path=str(run / f"{NAME}.json"))
    supervisor = Supervisor(settings, plan, session, here={"reader": [reading]})
    with trio.fail_after(300):
        await supervisor.run()
    statistics = supervisor.statistics()
    assert (statistics["restarts"], statistics["given_up"], statistics["killed"]) == (0, [], [])
    members = statistics["members"]
    assert os.getpid() not in [members[name]["pid"] for name in ("replay/0", "decode/0")]
    assert members["decode/0"]["statistics"]["output"]["sent_bytes"] > 0
    assert members["reader/0"]["statistics"]["input"]["missing"] == 0
    assert reading.heard["Paths"] > 1
    told = there.finish()
    assert told.blocks > 1_000_000
    assert told.right > 0.999 * told.blocks
    here = Evaluation(run).evaluate()
    assert (told.right, told.blocks) == (here.right, here.blocks)
    assert told.counts.tolist() == here.counts.tolist()
    assert told.holes == here.holes
    assert told.breaks == here.breaks
