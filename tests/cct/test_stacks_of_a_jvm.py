"""Stacks that the agent reads, of a real JVM: where they belong, and the callers behind a hole that never return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from benchmarks.accuracy.losses import Duty
from capture.live.drain import Message
from capture.recording.replay import Replay
from stages.cct.views import View
from streamer import config
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from streamer.trees.source import of_recording
from tests.flow_events.test_inlined import run_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]
SECONDS = 6
BELOW = ("Server.main", "Server.outer", "Server.inner", "Server.serve")
MODES = {"interpreted": ["-Xint"], "compiled": ["-Xbatch", "-XX:CompileCommand=dontinline,Server::*"]}


def statistics(recording: Path) -> Counter[str]:
    settings = config.load(None, fidelity="flow")
    chain = make_chain(middle(settings), Place(settings, recording.parent, 0))
    with Replay(recording) as replay:
        for message in replay.messages():
            list(feed_chain(chain, message))
        list(flush_chain(chain))
    out = Counter[str]()
    for stage in chain:
        out.update({name: int(n) for name, n in stage.statistics().items() if "stacks" in name})
    return out


@pytest.mark.parametrize(
    ("mode", "version"),
    [
        pytest.param(mode, version, marks=() if version == 17 else pytest.mark.nightly)
        for mode in MODES
        for version in (17, 21, 25)
    ],
)
def test_behind_each_hole_the_callers_are_those_of_a_stack(
    mode: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fifth of each second is traced: calls are found below their callers, which never return, from the first stack
    of a window on. So stacks are read often enough for one to come early in each, on a busy machine too."""
    monkeypatch.setenv("STREAMER_AGENT__STACKS_MS", "20")
    options = ["-XX:+UseSerialGC", "-XX:CompileCommand=quiet", *MODES[mode]]
    recording = run_of("Server", version, options, [str(1000 * SECONDS)], tmp_path, Path(__file__).parent)
    counts = statistics(recording)
    placed = counts["reconstruct_stacks_placed"]
    assert placed > 5 * SECONDS / 2, counts
    assert placed > 4 * (counts["reconstruct_stacks_nowhere"] + counts["reconstruct_stacks_several"]), counts
    assert counts["cct_stacks_refused"] + counts["reconstruct_stacks_refused"] < placed / 5, counts
    tree = View(sites=False, named=("main",)).of(of_recording(recording, print, through=duty).tree)
    calls = Counter[tuple[str, ...]]()
    for n in tree.nodes:
        path, up = list[str](), n
        while up["parent"] >= 0:
            path.append(tree.names[up["method"]])
            up = tree.nodes[up["parent"]]
        if path and path[0] == "Server.handle":
            calls[tuple(reversed(path))] += int(n["observed_invocations"])
    right = sum(n for path, n in calls.items() if path[-5:-1] == BELOW and not path[0].startswith("[unknown"))
    assert right > 0.8 * calls.total() > 0, calls
    wrong = sum(n for path, n in calls.items() if path[-2] not in ("Server.serve", "[interpreter]", "[unknown caller]"))
    assert wrong < 0.01 * calls.total(), calls


def duty(messages: Iterable[Message]) -> Iterator[Message]:
    yield from Duty(0.2)(messages)
