"""Bytecodes and paths of a real JVM, against the JVM's own log of its steps, which is counted here in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.accuracy.truth import Event, methods, threads
from capture.recording.replay import Replay
from jvm.bytecode.ball_larus import Numbering, number, successors
from jvm.bytecode.cfg import Cfg, cfg
from jvm.bytecode.class_file import ClassFile
from jvm.bytecode.opcodes import Kind
from stages.cct.tree import method_totals
from stages.messages import StatementReport
from stages.statements.statements import Executed
from streamer import config
from streamer.cli import cli
from streamer.crossprofile.table import load
from streamer.hub.statements import executed, together
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from streamer.statements.coverage import Covered
from streamer.statements.source import Recording
from streamer.trees.source import of_recording
from tests.flow_events.methods import ROUNDS, WAIT, Interpreted
from tests.flow_events.test_inlined import run_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("emulator")]
FOLDER = Path(__file__).parents[1] / "flow_events"
Key = tuple[str, str]  # class, method: no two of one name have the same here
ROUNDS_METHOD = ("Methods", "rounds")


class Truth:
    """Runs of each bytecode, and of each path, by the steps of the thread `main`."""

    def __init__(self, ran: Interpreted) -> None:
        self.runs = Counter[tuple[Key, int]]()
        self.paths = Counter[tuple[Key, tuple[int, ...]]]()
        names = methods(ran.truth)
        cfgs = dict[int, tuple[Key, Cfg, Numbering]]()
        self.cfgs = dict[Key, Cfg]()
        for number_, m in names.items():
            if m.holder.startswith("Methods") and m.name != "main":
                file = ClassFile.of((ran.classes / f"{m.holder}.class").read_bytes())
                found = cfg(file, m.name, m.descriptor)
                numbered = number(found) if found is not None else None
                if found is not None and numbered is not None:
                    cfgs[number_] = (m.holder, m.name), found, numbered
                    self.cfgs[m.holder, m.name] = found
        (main,) = [thread for thread in threads(ran.truth) if thread.name == "main"]
        stack = list[tuple[int, list[int]]]()  # method, nodes of the path so far
        for block in main.blocks():
            e = 0
            for k in range(len(block.bci) + 1):
                while e < len(block.at) and block.at[e] <= k:
                    if block.event[e] == Event.ENTRY:
                        stack.append((int(block.of[e]), []))
                    elif block.event[e] == Event.EXIT and stack:
                        self._left(cfgs, *stack.pop())
                    e += 1
                if k < len(block.bci) and stack and stack[-1][0] in cfgs:
                    self._step(*cfgs[stack[-1][0]], stack[-1][1], int(block.bci[k]))

    def _step(self, key: Key, method: Cfg, numbering: Numbering, path: list[int], bci: int) -> None:
        self.runs[key, bci] += 1
        node = method.nodes.bci.tolist().index(bci)
        if path and node not in successors(method)[path[-1]]:
            path.clear()  # an exception was caught
        elif path:
            edges = range(int(numbering.edge[path[-1]]), int(numbering.edge[path[-1] + 1]))
            if any(numbering.back[edge] and numbering.to[edge] == node for edge in edges):
                self.paths[key, (*path, node)] += 1
                path.clear()
        path.append(node)

    def _left(self, cfgs: dict[int, tuple[Key, Cfg, Numbering]], method: int, path: list[int]) -> None:
        key, found, _ = cfgs.get(method, (None, None, None))
        if key is not None and found is not None and path and found.nodes.kind[path[-1]] == Kind.RETURN:
            self.paths[key, tuple(path)] += 1


def own(executed: list[Executed]) -> dict[Key, Executed]:
    """Of this program, but for `main`, which begins before all classes have been told."""
    mine = [(e.method.selector[:2], e) for e in executed]
    return {key: e for key, e in mine if key[0].startswith("Methods") and key[1] != "main"}


@pytest.mark.parametrize("version", [17, 25])
def test_interpreted_bytecodes_and_paths_are_those_that_ran(
    version: int, interpreted_methods: Callable[[int], Interpreted]
) -> None:
    ran = interpreted_methods(version)
    path, truth = ran.recording, Truth(ran)
    runs, paths = Counter[tuple[Key, int]](), Counter[tuple[Key, tuple[int, ...]]]()
    whole = Recording(path, print).statements().executed()
    for key, e in own(whole).items():
        times = zip(e.method.cfg.nodes.bci.tolist(), e.times.tolist(), strict=True)
        runs.update({(key, bci): n for bci, n in times if n})
        assert e.method.numbering is not None
        paths.update({(key, tuple(e.method.numbering.nodes(k))): n for k, n in e.paths.tolist()})
    assert {at: n for at, n in runs.items() if _followed(*at)} == {
        at: n for at, n in truth.runs.items() if _followed(*at)
    }
    assert {(key, way): n for (key, way), n in paths.items() if _closed(key, way)} == {
        (key, way): n for (key, way), n in truth.paths.items() if _closed(key, way)
    }
    assert sum(n for (key, _), n in paths.items() if key[1] == "pick") == ROUNDS
    if version == 17:
        _live_is_the_same(path, whole)
        _cycles_are_those_of_the_bytecodes(path, truth)


def _followed(key: Key, bci: int) -> bool:
    """Whether a bytecode is compared. Classes are told a while after they are loaded: `rounds`, and the constructors
    that it calls, may not be known at first, nor what comes behind its call of println, which loads some. Its loop,
    up to that call, is."""
    return 27 <= bci <= 65 if key == ROUNDS_METHOD else key[1] != "<init>"


def _closed(key: Key, way: tuple[int, ...]) -> bool:
    """Whether a path is."""
    return way[0] == way[-1] if key == ROUNDS_METHOD else key[1] != "<init>"


def _live_is_the_same(recording: Path, whole: list[Executed]) -> None:
    """The live chain's panes add up to the recording: bytecodes seen, and concluded, source lines, and each path."""
    settings = config.load(None, fidelity="flow", **{"flow.statements": True, "flow.contexts": False})
    reports = list[StatementReport]()
    with Replay(recording) as replay:
        chain = make_chain(middle(settings), Place(settings, Path(), 0))
        for message in replay.messages():
            reports += [out for out in feed_chain(chain, message) if isinstance(out, StatementReport)]
        reports += [out for out in flush_chain(chain) if isinstance(out, StatementReport)]
    assert len({report.pane for report in reports}) > 2
    live = together(map(executed, reports))
    assert sorted(live.sums()) == sorted(Covered.of(e).sums() for e in whole)
    paths = {(e.method.selector, int(k)): int(n) for e in whole for k, n in e.paths}
    told = Counter[tuple[tuple[str, str, str], int]]()
    for (method, number_), way in live.paths.items():
        told[method[:3], number_] += way.times
    assert sum(told.values()) + live.other == sum(paths.values())
    assert all(n <= paths[key] for key, n in told.items())


def _cycles_are_those_of_the_bytecodes(recording: Path, truth: Truth) -> None:
    """By a cost table: each bytecode that the JVM says it ran, times the cycles of its opcode, wherever it stands."""
    table, expected = load("jop"), Counter[str]()
    for (key, bci), times in truth.runs.items():
        if key == ROUNDS_METHOD or not _followed(key, bci):
            continue
        nodes = truth.cfgs[key].nodes
        opcode = int(nodes.opcode[nodes.bci.tolist().index(bci)])
        expected[".".join(key)] += times * int(table.cycles[opcode])
    tree = of_recording(recording, print, options={"costs": table.cycles}).tree
    spent = method_totals(tree, "observed_bytecodes")
    assert {name: spent.get(name, 0) for name in expected} == dict(expected)
    assert len(expected) > 5


def test_coverage_of_compiled_code_names_what_ran(
    tmp_path: Path, interpreted_methods: Callable[[int], Interpreted]
) -> None:
    """Compiled from the first call on: what was seen and concluded did run by the truth; and lcov reads the file."""
    options = ["-XX:+UseSerialGC", "-Xcomp", "-XX:TieredStopAtLevel=1", "-XX:CompileCommand=compileonly,Methods*::*"]
    path = run_of("Methods", 17, options, [str(ROUNDS), str(WAIT)], tmp_path)
    truth = Truth(interpreted_methods(17))
    compiled = seen = all_ = 0
    whole = Recording(path, print).statements().executed()
    for key, e in own(whole).items():
        covered = Covered.of(e)
        found = set(e.method.cfg.nodes.bci[covered.ran].tolist())
        ran = {bci for of, bci in truth.runs if of == key}
        assert found <= ran, key
        compiled, seen, all_ = compiled + bool(e.compiled.any()), seen + len(found), all_ + len(ran)
    assert compiled >= 10
    assert seen > 0.6 * all_, f"{seen} of {all_}"
    _live_is_the_same(path, whole)
    file = tmp_path / "methods.info"
    done = CliRunner().invoke(cli, ["flow", "coverage", str(path), "--include", "Methods*", "--lcov", "-o", str(file)])
    assert done.exit_code == 0, done.output
    lines = file.read_text().splitlines()
    assert "SF:Methods.java" in lines
    hit = {int(line[3:].split(",")[0]) for line in lines if line.startswith("DA:") and not line.endswith(",0")}
    source = (FOLDER / "Methods.java").read_text().splitlines()
    assert {k for k, text in enumerate(source, 1) if "static int fib" in text or "total += pick" in text} <= hit


@pytest.mark.nightly  # a million lines
def test_a_thread_is_listed_step_by_step(tmp_path: Path) -> None:
    path = run_of("Methods", 17, ["-Xint", "-XX:+UseSerialGC"], ["3", str(WAIT)], tmp_path)
    done = CliRunner().invoke(cli, ["flow", "trace", str(path), "--limit", "1000000"])
    assert done.exit_code == 0, done.output
    adds = [line.split("Methods.add ")[1] for line in done.stdout.splitlines() if "I   Methods.add " in line]
    assert adds == ["0 1 2 3"] * 3
    cut = CliRunner().invoke(cli, ["flow", "trace", str(path), "--limit", "5"])
    assert len(cut.stdout.splitlines()) == 5
    assert "stopped at 5 lines" in cut.stderr
