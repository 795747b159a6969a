"""Exact trees of a program at its ordinary speed: all of its methods compiled, as far as the compilers go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stages.cct.tree import NAMES, VIRTUAL_NAME
from stages.cct.views import View
from streamer.trees.source import of_recording
from tests.cct import known
from tests.flow_events.test_inlined import COMPILED_ALONE, run_of
from tests.jdks import JDKS

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]
WARM, COUNTED = 12_000, 1000
MODES = {
    "tiered": ["-Xbatch"], "C1": ["-Xbatch", "-XX:TieredStopAtLevel=1"], "C2": ["-Xbatch", "-XX:-TieredCompilation"],
}  # fmt: skip
"""-Xbatch: what is hot is compiled before it goes on, so that all of it is compiled when the counting begins."""
EACH_TIME = ("tiered", 25), ("C2", 17)
NOT_INLINED = ["-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Known*::*"]
TRAPPED = {"C2": ("round", "fresh", "made")}
"""C2 makes no code of it any more behind the trap that its first code ran into: it is interpreted."""
SLIPS = 1e-3
"""Share of a virtual thread's calls that may be wrong: it is counted from its beginning, while code is compiled. The
first call through a site, which binds it, may be taken for bound; a call that has moved may be read late."""

UNTOLD = 5e-2
"""Share of rounds that are interpreted, in part, behind a yield, before it is found out again what is."""
FEW = 2e-5
"""Share of calls that may be wrong while code is compiled: the callee of a method handle is not named."""


@pytest.mark.parametrize(
    ("mode", "version"),
    [
        pytest.param(mode, version, marks=() if (mode, version) in EACH_TIME else pytest.mark.nightly)
        for mode in MODES
        for version in (17, 21, 25)
    ],
)
def test_calls_of_each_context_are_exact(version: int, mode: str, tmp_path: Path) -> None:
    """Recursion, exceptions, callbacks by the JDK, constructors, receivers of several classes: each call a real one."""
    options = ["-XX:+UseSerialGC", *MODES[mode], *NOT_INLINED]
    recording = run_of("Known", version, options, [str(WARM), str(COUNTED)], tmp_path, Path(__file__).parent)
    tree = of_recording(recording, print, **COMPILED_ALONE).tree
    threads = known.found(tree, "Known")
    rounds = {tid: sum(n for stack, n in c.items() if stack[-1] == "round") for tid, c in threads.items()}
    tid = next(tid for tid, n in rounds.items() if n == COUNTED)
    assert [tree.names[row["method"]] for row in tree.nodes if row["parent"] < 0 and row["bci"] == tid] == [
        "[thread] counted"
    ]
    expected = {stack: COUNTED * n for stack, n in known.of_a_round().items() if stack != TRAPPED.get(mode)}
    assert known.from_a_round_on(threads[tid]) == expected
    assert known.from_a_round_on(known.found(tree, "Known", recursion=False)[tid]) == known.folded(Counter(expected))


@pytest.mark.parametrize("version", [pytest.param(17, marks=pytest.mark.nightly), 25])
def test_calls_are_right_while_code_takes_the_place_of_other_code(version: int, tmp_path: Path) -> None:
    """All is C1's when the counting begins; C2 compiles it meanwhile. So a call goes to a version that is not entrant
    any more, and the first call through each new site is not bound yet: it has its frame, and one."""
    options = ["-XX:+UseSerialGC", *MODES["tiered"], *NOT_INLINED]
    rounds = WARM
    recording = run_of("Known", version, options, ["2000", str(rounds)], tmp_path, Path(__file__).parent)
    threads = known.found(of_recording(recording, print).tree, "Known")
    found = next(c for c in threads.values() if sum(n for stack, n in c.items() if stack[-1] == "round") == rounds)
    got, expected = known.from_a_round_on(found), known.of_a_round()
    wrong = {stack: got[stack] - rounds * expected[stack] for stack in {*got, *expected}}
    assert sum(map(abs, wrong.values())) < FEW * rounds * expected.total(), wrong


VIRTUAL = {
    ("tasks", "task"): 1, ("tasks", "task", "inner"): 1, ("tasks", "task", "inner", "before"): 1,
    ("tasks", "task", "inner", "before", "leaf"): 1, ("tasks", "task", "inner", "after"): 1,
    ("tasks", "task", "inner", "after", "leaf"): 2, ("tasks", "task", "leaf"): 1,
}  # fmt: skip
"""A round of a virtual thread: it yields between `before` and `after`."""


@pytest.mark.parametrize("version", JDKS[1:])
def test_virtual_threads_that_yield_have_their_contexts_whatever_carrier_they_run_on(
    version: int, tmp_path: Path
) -> None:
    """Each stands below its callers from its beginning on, in a tree that is no carrier's."""
    compiled = ["-Xcomp", "-XX:TieredStopAtLevel=1", "-XX:CompileCommand=compileonly,Virtual*::*", "-XX:-Inline"]
    options = ["-XX:+UseSerialGC", *NOT_INLINED[:1], *compiled]
    recording = run_of("Virtual", version, options, [str(COUNTED), "4", str(COUNTED)], tmp_path, Path(__file__).parent)
    tree = of_recording(recording, print).tree
    threads = {tid: c for tid, c in known.found(tree, "Virtual").items() if any(stack[-1] == "task" for stack in c)}
    assert list(threads) == [0]
    assert NAMES[VIRTUAL_NAME] in {tree.names[row["method"]] for row in tree.nodes if row["parent"] < 0}
    calls = {stack[1:]: n for stack, n in threads[0].items() if stack[0] == "lambda$run$0" and len(stack) > 2}
    rounds = 5 * COUNTED
    assert calls.keys() == VIRTUAL.keys()
    assert {stack: n for stack, n in calls.items() if abs(n - VIRTUAL[stack] * rounds) > SLIPS * rounds} == {}


@pytest.mark.nightly
@pytest.mark.parametrize("version", JDKS[1:])
def test_frames_of_virtual_threads_are_told_once_while_they_are_compiled(version: int, tmp_path: Path) -> None:
    """The frames below, which the interpreter runs at first, may not be known. No call stands within its own."""
    options = ["-XX:+UseSerialGC", "-Xbatch", *[o.replace("Known*", "Virtual") for o in NOT_INLINED]]
    recording = run_of("Virtual", version, options, [str(WARM), "4", str(COUNTED)], tmp_path, Path(__file__).parent)
    calls = known.Contexts()
    for stack, n in sum(known.found(of_recording(recording, print).tree, "Virtual").values(), known.Contexts()).items():
        if "task" in stack:
            calls["tasks", *stack[len(stack) - 1 - stack[::-1].index("task") :]] += n
    rounds = WARM + 4 * COUNTED
    inner = {stack: n for stack, n in calls.items() if abs(n - VIRTUAL.get(stack, 0) * rounds) > UNTOLD * rounds}
    assert inner == {}


DEEP, DEEP_ROUNDS, WARM_DEPTH = 100_001, 20, 11


def test_each_frame_of_a_deep_recursion_is_called_once_a_round(tmp_path: Path) -> None:
    options = ["-XX:+UseSerialGC", "-Xbatch", *[o.replace("Known*", "Deep") for o in NOT_INLINED]]
    recording = run_of("Deep", 17, options, [str(WARM), str(DEEP_ROUNDS)], tmp_path, Path(__file__).parent)
    tree = of_recording(recording, print, **COMPILED_ALONE).tree
    parent, method = tree.nodes["parent"].tolist(), tree.nodes["method"].tolist()
    calls = tree.nodes["observed_invocations"].tolist()
    down, depth, each = tree.names.index("Deep.down"), [0] * len(parent), Counter[int]()
    for n, (up, name) in enumerate(zip(parent, method, strict=True)):
        depth[n] = (depth[up] if up >= 0 else 0) + (name == down)
        each[depth[n]] += calls[n] if name == down else 0  # the caller may be interpreted at first, and then compiled
    wrong = {level: n for level, n in each.items() if level > WARM_DEPTH and n != DEEP_ROUNDS}
    assert sum(wrong.values()) < SLIPS * DEEP * DEEP_ROUNDS, len(wrong)
    assert DEEP <= max(each) < (1 + SLIPS) * DEEP
    folded = View(sites=False, recursion=False).of(tree)
    of_down = folded.nodes[folded.nodes["method"] == folded.names.index("Deep.down")]["observed_invocations"]
    assert int(of_down.sum()) == sum(each.values())
