"""Trees of a program whose calls are known, on a real JVM under the emulated PT."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from capture.recording.replay import Replay
from stages.cct.merging import merged
from stages.cct.tree import Tree, method_totals
from stages.cct.views import View
from stages.messages import Bytecodes, PaneReport, TreeReport
from stages.messages.bytecodes import FrameEvent
from streamer import config
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from streamer.trees.source import of_recording
from tests.flow_events.test_inlined import COMPILED_ALONE, run_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]
ROUNDS = 500
APART = ["-XX:+UseSerialGC", "-Xcomp", "-XX:TieredStopAtLevel=1", "-XX:CompileCommand=compileonly,Calls*::*",
         "-XX:-Inline"]  # fmt: skip
"""Each method is compiled when it is first called, and no call is inlined."""


def calls(tree: Tree) -> Counter[tuple[str, ...]]:
    """Invocations by the names of the frames from the nearest that is no method."""
    out: Counter[tuple[str, ...]] = Counter()
    stacks: list[tuple[str, ...]] = []
    for row in tree.nodes:
        name = tree.names[row["method"]]
        above = stacks[row["parent"]] if row["parent"] >= 0 else ()
        stacks.append((*above, name) if not name.startswith("[") else ())
        if row["observed_invocations"]:
            out[stacks[-1]] += int(row["observed_invocations"])
    return out


def test_every_context_has_its_calls(tmp_path: Path) -> None:
    recording = run_of("Calls", 17, APART, [str(ROUNDS)], tmp_path, Path(__file__).parent)
    tree = of_recording(recording, print, **COMPILED_ALONE).tree
    found = calls(View(sites=False).of(tree))
    expected = of_a_round()
    often = {stack: n for stack, n in found.items() if n > ROUNDS // 2 and "".join(stack).startswith("Calls")}
    assert often.keys() == expected.keys()
    # in the first round calls are bound, and the walk may take one of them for bound already
    assert {stack: n for stack, n in often.items() if not 0 <= expected[stack] * ROUNDS - n <= 2} == {}


def of_a_round() -> dict[tuple[str, ...], int]:
    """Calls of a round, and of the other thread's, by context."""
    rounds = ("Calls.main", "Calls.round")
    down = [(*rounds, *["Calls.down"] * k) for k in range(1, 7)]
    even = [(*rounds, *(("Calls.even", "Calls.odd")[k % 2] for k in range(n))) for n in range(1, 6)]
    thrower = [(*rounds, "Calls.caught", *["Calls.thrower"] * k) for k in range(1, 4)]
    made = (*rounds, "Calls$Derived.<init>", "Calls$Derived.<init>", "Calls$Base.<init>")
    caught = (*rounds, "Calls.caught")
    return {
        rounds: 1, (*rounds, "Calls.twice"): 1, (*rounds, "Calls.twice", "Calls.leaf"): 2, **dict.fromkeys(down, 1),
        (*down[-1], "Calls.leaf"): 1, **dict.fromkeys(even, 1), caught: 1, **dict.fromkeys(thrower, 1),
        (*caught, "Calls.leaf"): 1, (*rounds, "Calls.applied"): 1,
        (*rounds, "Calls.applied", "Calls$$Lambda.applyAsInt"): 1,
        (*rounds, "Calls.applied", "Calls$$Lambda.applyAsInt", "Calls.leaf"): 1,
        made[:3]: 1, made[:4]: 1, made: 1, (*made, "Calls.leaf"): 1,
        ("Calls.lambda$main$0", "Calls.twice"): 1, ("Calls.lambda$main$0", "Calls.twice", "Calls.leaf"): 2,
    }  # fmt: skip


INTERPRETED = 1000


def test_interpreted_calls_that_are_told_have_their_contexts(tmp_path: Path) -> None:
    """From when on the interpreter's methods are known is a matter of time: calls are told from there on. The tree has
    as many instructions as the profile, to the last one, and besides those that are suspect. The JVM's last handlers of
    native methods' arguments are known too."""
    recording = run_of("Calls", 17, ["-XX:+UseSerialGC", "-Xint"], [str(INTERPRETED)], tmp_path, Path(__file__).parent)
    settings = config.load(fidelity="flow", **{"flow.interpreted": True, "flow.contexts": True})
    names = middle(settings)
    behind = names.index("cct") + 1
    chain = make_chain(names, Place(settings, tmp_path, 0))
    said: list[object] = []
    with Replay(recording) as replay:
        for message in replay.messages():
            said += feed_chain(chain[:behind], message)
    said += flush_chain(chain[:behind])
    reports = [*(report for message in said for report in feed_chain(chain[behind:], message))]
    reports += flush_chain(chain[behind:])
    told, method = Counter[str](), dict[int, str]()
    for bytecodes in (m for m in said if isinstance(m, Bytecodes)):
        method |= dict(bytecodes.names)
        entered = bytecodes.events[bytecodes.events["kind"] == FrameEvent.ENTER]
        told.update(method[m] for m in entered["method"].tolist() if m >= 0)
    tree = merged(Tree(m.nodes, m.names) for m in said if isinstance(m, TreeReport))
    profiled = sum(int(m.profile["instructions"].sum()) for m in reports if isinstance(m, PaneReport))
    assert tree.total("observed_instructions") == profiled > 0
    contradictions = [place for m in reports if isinstance(m, PaneReport) for place in m.contradictions]
    assert tree.total("suspect_instructions") == sum(place.suspect for place in contradictions)
    assert [place for place in contradictions if "native signature handlers" in place.code] == []
    mine = {name: n for name, n in told.items() if name.startswith("Calls")}
    counted = Counter(method_totals(tree, "observed_invocations"))
    counted.update(method_totals(tree, "suspect_invocations"))
    assert {name: counted[name] for name in mine} == mine
    assert max(mine.values()) > INTERPRETED
    known = of_a_round()
    main = ("Calls.main", "Calls.round")
    for stack, n in calls(View(sites=False).of(tree)).items():
        if n > INTERPRETED // 10 and stack[:2] == main and all(name.startswith("Calls") for name in stack):
            assert n <= known[stack] * INTERPRETED
