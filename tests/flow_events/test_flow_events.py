"""Events that are hard to follow, on stock JVMs: each really happened, and the code there is decoded right or flagged.

One run a JDK makes all events (Events.java) under the emulated PT, and everything that ran is compared with the
decoder's output (docs/flow-truth.md).
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.flow_truth import FlowTruthError, compare
from benchmarks.flow_truth.evaluate import Evaluation
from benchmarks.flow_truth.record import record
from benchmarks.flow_truth.result import FLAGGED, Place, Result
from capture.emulator.options import EmulatorError
from capture.emulator.truth import Mark
from jvm.code.sites import SiteKind
from tests.jdks import java, tool

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]

ROUNDS = 4000
COMPILED = SiteKind.C1, SiteKind.C2
STUB = (SiteKind.STUB,)

# event: in code of which kind and name (as a whole), and how many blocks of it at least
EVENTS: dict[str, list[tuple[tuple[SiteKind, ...], str, int]]] = {
    "exceptions": [
        (COMPILED, r"Events\.(exceptionCaught|exceptionAcrossFrames|thrower)", 10_000),
        (STUB, r".*handle_exception_from_callee.*", 1000),
        (STUB, r".*unwind_exception.*", 1000),
        (STUB, r".*forward.exception.*", 100),
    ],
    "deoptimisation": [
        (STUB, r".*(UncommonTrapBlob|DeoptimizationBlob|uncommon_trap|deopt).*", 1),
        (STUB, r".*wrong_method.*", 4),  # called a version not entrant any more
        ((SiteKind.C2,), r"Events\.(speculative|hierarchy)", 1000),
    ],
    "on-stack replacement": [(COMPILED, r"Events\.(loop|counted)", 1000)],
    "implicit null checks": [
        (COMPILED, r"Events\.implicitNull", 1000),
        (STUB, r".*throw_null_pointer_exception.*", 10),
    ],
    "safepoints": [(STUB, r".*(SafepointBlob|polling_page|safepoint).*", 1)],
    "native wrappers": [((SiteKind.NATIVE_WRAPPER,), r"java\.lang\.Runtime\.freeMemory", 1000)],
    "method-handle linkers": [
        ((SiteKind.NATIVE_WRAPPER,), r"java\.lang\.invoke\.MethodHandle\.linkToStatic.*", 1000),
        (COMPILED, r"Events\.methodHandle", 1000),
    ],
    "adapters": [(STUB, r".*I2C/C2I adapters", 10_000)],
    "virtual and interface calls": [(STUB, r".*vtable stub", 1000), (STUB, r".*itable stub", 1000)],
}
SILENT = 5e-3
"""Of an event's blocks; and as many as `FEW`, for a wrong way shows at the first call through a site only."""
FEW = 30


@dataclass
class Ran:
    evaluation: Evaluation
    result: Result

    def of(self, kinds: tuple[SiteKind, ...], name: str) -> Counter[int]:
        """Blocks of a kind of code, by fate."""
        out: Counter[int] = Counter()
        assert self.evaluation.places is not None
        for (place, what), n in self.evaluation.places.items():
            if place is not None and place.kind in kinds and re.fullmatch(name, place.name):
                out[what] += n
        return out


@pytest.fixture(scope="module", params=[(17, "-XX:+UseSerialGC"), (25, "-XX:+UseG1GC")], ids=["17", "25"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    version, collector = request.param
    place = tmp_path_factory.mktemp("events")
    source = Path(__file__).parent / "Events.java"
    subprocess.run([tool("javac"), "--release", "17", "-d", str(place), str(source)], check=True, timeout=120)
    options = collector, "-XX:CompileCommand=BackgroundCompilation,Events::polled,false"
    try:
        run = record([java(version), *options, "-cp", str(place), "Events", str(ROUNDS)], place / "run")
    except FlowTruthError as error:
        if isinstance(error.__cause__, EmulatorError):
            pytest.skip(str(error))
        raise
    assert run.status == 0
    assert run.aux_full == 0
    evaluation = Evaluation(place / "run", by_place=True)
    return Ran(evaluation, evaluation.evaluate())


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_decoded_or_flagged(event: str, ran: Ran) -> None:
    for kinds, name, least in EVENTS[event]:
        blocks = ran.of(kinds, name)
        right, wrong, flagged = blocks[compare.RIGHT], blocks[compare.WRONG], blocks[FLAGGED]
        total = blocks.total() - blocks[compare.IC]
        assert total >= least, f"{name}: it did not happen"
        assert wrong <= SILENT * total + FEW, f"{name}: {wrong} of {total} silently wrong"
        assert right + wrong + flagged + blocks[compare.SUSPECT_RIGHT] + blocks[compare.SUSPECT_WRONG] == total
        if total > 1000:
            assert right > 0.95 * total


def test_code_was_entered_by_on_stack_replacement(ran: Ran) -> None:
    assert ran.evaluation.places is not None
    entered = Counter[Place]()
    for (place, what), n in ran.evaluation.places.items():
        if place is not None and place.osr_entry and what == compare.RIGHT:
            entered[place] += n
    assert {place.name for place in entered} & {"Events.loop", "Events.counted"}


def test_faults_interrupted_blocks(ran: Ran) -> None:
    """Implicit null checks and polls of a protected page: the block ran up to the faulting instruction."""
    faults = sum(int((thread.marks["kind"] == Mark.PARTIAL).sum()) for thread in ran.evaluation.truth.threads)
    assert faults > 10


def test_the_whole_run(ran: Ran) -> None:
    result = ran.result
    assert result.blocks > 5_000_000
    assert result.right > 0.999 * result.blocks
    assert result.silent < 1e-4 * result.blocks
    assert result.counts[compare.FOREIGN] == 0


def test_a_truth_that_is_not_the_trace_is_noticed(ran: Ran, tmp_path: Path) -> None:
    """One block of the busiest thread's is said to have been another."""
    directory = ran.evaluation.directory
    for name in ("run.json", "run.perf.data", "emulator.json", "flow-truth.json"):
        (tmp_path / name).symlink_to(directory / name)
    for export in directory.glob("run-*"):
        (tmp_path / export.name).symlink_to(export)
    (tmp_path / "truth").mkdir()
    busiest = max((directory / "truth").glob("*.ran"), key=lambda path: path.stat().st_size)
    for path in (directory / "truth").iterdir():
        if path != busiest:
            (tmp_path / "truth" / path.name).symlink_to(path)
    blocks = np.fromfile(busiest, "<u4")
    at = len(blocks) // 3
    blocks[at] = next(b for b in blocks[at:] if b != blocks[at])
    blocks.tofile(tmp_path / "truth" / busiest.name)
    with pytest.raises(FlowTruthError, match="truth and trace disagree"):
        Evaluation(tmp_path).evaluate()
