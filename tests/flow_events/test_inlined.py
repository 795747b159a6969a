"""Invocations of methods that exist only inlined: a stock JVM's own records of its code are enough to count them."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.flow_truth import FlowTruthError
from benchmarks.flow_truth.record import NAME, record
from capture.emulator.options import EmulatorError
from capture.recording.replay import Replay
from stages.messages import CodeKind, PaneReport
from streamer import config
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from tests.jdks import java, tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]
CALLS = 20_000
COMPILED_ALONE: dict[str, Any] = {"flow.interpreted": False}
"""Settings for what compiled code does: the interpreter's methods are not told apart."""


def invocations(recording: Path, kinds: tuple[CodeKind, ...]) -> Counter[str]:
    """By method, in code of these kinds."""
    settings = config.load(fidelity="flow", **COMPILED_ALONE)
    chain = make_chain(middle(settings), Place(settings, recording.parent, 0))
    out: Counter[str] = Counter()
    names: dict[int, str] = {}
    with Replay(recording) as replay:
        said = [report for message in replay.messages() for report in feed_chain(chain, message)]
    for report in (*said, *flush_chain(chain)):
        if isinstance(report, PaneReport):
            names |= dict(report.names)
            for row in report.profile:
                if row["kind"] in kinds:
                    out[names[int(row["method"])]] += int(row["invocations"])
    return out


def run_of(
    program: str, version: int, options: list[str], arguments: list[str], tmp_path: Path,
    folder: Path = Path(__file__).parent,
) -> Path:  # fmt: skip
    """The recording of a program of a folder."""
    source = folder / f"{program}.java"
    subprocess.run([tool("javac"), "--release", "17", "-d", str(tmp_path), str(source)], check=True, timeout=120)
    try:
        run = record([java(version), *options, "-cp", str(tmp_path), program, *arguments], tmp_path / "run")
    except FlowTruthError as error:
        if isinstance(error.__cause__, EmulatorError):
            pytest.skip(str(error))
        raise
    assert run.status == 0
    return tmp_path / "run" / f"{NAME}.json"


def test_inlined_methods_are_counted_as_often_as_they_were_called(tmp_path: Path) -> None:
    options = ["-XX:+UseSerialGC", "-Xcomp", "-XX:TieredStopAtLevel=1", "-XX:CompileCommand=compileonly,Inlined::*"]
    counted = invocations(run_of("Inlined", 17, options, [str(CALLS)], tmp_path), (CodeKind.C1,))
    assert counted["Inlined.main"] == 1
    expected = {"outer": CALLS, "get": CALLS, "branching": CALLS, "looping": CALLS // 4}
    for name, calls in expected.items():
        assert 0.99 * calls <= counted[f"Inlined.{name}"] <= calls, name


ROUNDS, EACH = 1200, 2500  # so many calls that those which are interpreted at the beginning do not matter


@pytest.mark.parametrize("version", [17, pytest.param(25, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "options",
    [
        [],
        *(pytest.param([o], marks=pytest.mark.nightly) for o in ("-XX:TieredStopAtLevel=1", "-XX:-TieredCompilation")),
    ],
    ids=" ".join,
)
def test_calls_are_counted_however_they_were_inlined(version: int, options: list[str], tmp_path: Path) -> None:
    arguments = [str(ROUNDS), str(EACH)]
    batch = "-Xbatch"  # else the load of the machine decides how many calls the interpreter makes
    recording = run_of("Ways", version, ["-XX:+UseSerialGC", batch, *options], arguments, tmp_path)
    counted = invocations(recording, (CodeKind.C1, CodeKind.C2))
    calls = ROUNDS * EACH
    own = ROUNDS * sum(1 for i in range(EACH) if i & 3)
    expected = {
        "$Base.<init>": calls, "$Derived.<init>": 2 * calls, ".same": 2 * calls, ".straight": calls, ".element": calls,
        ".own": own, ".down": 4 * calls, ".within": calls, ".rare": calls, ".thrower": calls,
    }  # fmt: skip
    shares = {name: counted[f"Ways{name}"] / n for name, n in expected.items()}
    shares |= {name: counted[name] / calls for name in ("java.lang.Math.max", "java.lang.Integer.bitCount")}
    assert {name: share for name, share in shares.items() if not 0.99 <= share <= 1.01} == {}


@pytest.mark.parametrize("version", [17, pytest.param(25, marks=pytest.mark.nightly)])
def test_receivers_methods_are_counted_apart(version: int, tmp_path: Path) -> None:
    """C2 inlines those of two at a call; of `Line.area` nothing is left, and `one` is called if it is not the first."""
    rounds = 12_000
    options = ["-XX:+UseSerialGC", "-Xbatch"]
    run = run_of("Receivers", version, options, [str(rounds)], tmp_path)
    counted = invocations(run, (CodeKind.C1, CodeKind.C2))
    expected = {
        "Square.area": 1 / 4, "Line.area": 3 / 4, "Big.size": 1 / 4, "Small.size": 3 / 4, "Left.by": 24, "Right.by": 40,
        "Often.one": 38 / 40, "Seldom.one": 1 / 40, "Never.one": 1 / 40,
    }  # fmt: skip
    wrong = {name: counted[f"Receivers${name}"] for name, each in expected.items()
             if not 0 <= rounds * each - counted[f"Receivers${name}"] <= 260}  # fmt: skip
    assert wrong == {}
