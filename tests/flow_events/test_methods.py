"""Which methods the interpreter ran, and how many bytecodes of them: against a program of which that is known, and
against the JVM's own log of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.accuracy.counts import count
from capture.recording.replay import Replay
from stages.messages import Bytecodes, CodeKind, PaneReport
from streamer import config
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from tests.flow_events.methods import ROUNDS, WAIT, Interpreted, a_stream_a_thread
from tests.flow_events.test_inlined import run_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]
PREFIX = "Methods"


class Reports:
    """The whole chain's report of a recording."""

    def __init__(self, recording: Path, *, interpreted: bool = True) -> None:
        self.bytecodes = Counter[str]()
        self.invocations = Counter[str]()  # of the interpreter's rows
        self.all_invocations = Counter[str]()
        self.told = Counter[str]()  # bytecodes, in the profile
        names, labels = dict[int, str](), dict[int, str]()

        def hear(message: object) -> None:
            match message:
                case Bytecodes():
                    names.update(message.names)
                    for row in message.methods:
                        self.bytecodes[names[int(row["method"])]] += int(row["bytecodes"])
                case PaneReport():
                    labels.update(message.names)
                    for row in message.profile:
                        name = labels[int(row["method"])]
                        self.all_invocations[name] += int(row["invocations"])
                        self.told[name] += int(row["bytecodes"])
                        if row["kind"] == CodeKind.INTERPRETED:
                            self.invocations[name] += int(row["invocations"])
                case _:
                    pass

        settings = config.load(fidelity="flow", **{"flow.interpreted": interpreted})
        chain = make_chain(middle(settings), Place(settings, recording.parent, 0))
        cut = middle(settings).index("reconstruct" if interpreted else "follow") + 1
        with Replay(recording) as replay:
            for message in replay.messages():
                for between in feed_chain(chain[:cut], message):
                    hear(between)
                    for out in feed_chain(chain[cut:], between):
                        hear(out)
        for out in flush_chain(chain):
            hear(out)

    def own(self, counts: Counter[str]) -> dict[str, int]:
        """Of this program, but for `main`, which begins before all classes have been told."""
        mine = {name.removeprefix(PREFIX): n for name, n in counts.items() if name.startswith(PREFIX) and n}
        return {name: n for name, n in mine.items() if name != ".main"}


def executed(ran: Interpreted) -> dict[str, int]:
    """Executed bytecodes by method, in truth."""
    counts = count(ran.truth, ["main"])
    found = Counter[str]()
    for number, n in counts.bytecodes().items():
        method = counts.methods[number]
        if method.holder.startswith(PREFIX) and method.name != "main":
            found[f"{method.holder.removeprefix(PREFIX)}.{method.name}"] += n
    return dict(found)


INVOKED = {
    ".rounds": 1, ".round": ROUNDS, ".add": ROUNDS, ".pick": ROUNDS, ".locked": ROUNDS, ".thrower": ROUNDS,
    ".catcher": ROUNDS, ".through": ROUNDS, ".fib": 465, "$Square.area": ROUNDS // 2, "$Line.area": ROUNDS // 2,
    "$Square.<init>": 1, "$Line.<init>": 1,
}  # fmt: skip


@pytest.mark.parametrize("version", [17, 25])
def test_interpreted_methods_count_as_often_as_they_ran(
    version: int, interpreted_methods: Callable[[int], Interpreted]
) -> None:
    ran = interpreted_methods(version)
    found, templates = Reports(ran.recording), Reports(ran.recording, interpreted=False)
    assert found.own(found.invocations) == INVOKED
    assert found.own(found.bytecodes) == found.own(found.told) == executed(ran)
    assert found.told.total() == templates.told.total()


@pytest.mark.parametrize("version", [17, *(pytest.param(v, marks=pytest.mark.nightly) for v in (21, 25))])
def test_invocations_are_exact_where_methods_get_compiled(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter ran a part of each method's, called by itself and by compiled code."""
    a_stream_a_thread(monkeypatch)
    rounds = 20 * ROUNDS
    options = [
        "-XX:+UseSerialGC",
        "-Xbatch",  # else a machine with much to do may run all of it before anything is compiled
    ]
    found = Reports(run_of("Methods", version, options, [str(rounds), str(WAIT)], tmp_path))
    expected = {name: 20 * n for name, n in INVOKED.items() if name not in (".rounds", ".fib") and "init" not in name}
    interpreted, all_ = found.own(found.invocations), found.own(found.all_invocations)
    assert {name: interpreted[name] for name, n in expected.items() if not 100 < interpreted[name] < n} == {}
    assert {name: all_[name] for name, n in expected.items() if abs(all_[name] - n) > n / 100} == {}
    assert all_[".fib"] == INVOKED[".fib"]
    told = found.own(found.told)
    each = {".add": 4, ".locked": 8, ".through": 5, "$Square.area": 4, "$Line.area": 2}  # bytecodes of an invocation
    assert {
        name: told[name] for name, n in each.items() if abs(told[name] - n * all_[name]) > n * all_[name] / 50
    } == {}
