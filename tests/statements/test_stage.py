"""The live stage, of messages in which each step is known: what its panes and the hub's windows add up to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.bytecode.cfg import Cfg, empty_nodes
from jvm.bytecode.opcodes import Kind
from stages.images import Images
from stages.messages import Bytecodes, Paths, StatementReport, ThreadEnd, ThreadKey, Watermark
from stages.messages.bytecodes import KNOWN_DTYPE, METHOD_DTYPE, FrameEvent
from stages.messages.paths import EMPTY, STOP_DTYPE, TAKEN_DTYPE
from stages.statements.coverage import concluded
from stages.statements.report import PATHS
from stages.statements.stage import StatementStage
from stages.statements.statements import Statements
from streamer.hub.statements import Statements as Kept
from streamer.hub.statements import executed, together
from tests.cct.made import STREAM, Dictionaries
from tests.jvm.bytecode.graphs import cfgs
from tests.statements.programs import Program, Run, ends, runs
from tests.statements.test_coverage import straight

TICKS = 100
HOST, PID = STREAM.host, STREAM.pid


def explained(threads: list[Run], cuts: list[list[int]], tsc: int) -> tuple[Bytecodes, Paths]:
    """A row a thread, from `tsc` on. `cuts`, by thread: a pane passes before these events."""
    paths = Dictionaries().message(7, [], (tsc, tsc), False)
    rows, parts, stops = np.zeros(len(threads), TAKEN_DTYPE), [], list[tuple[int, int]]()
    bcis = []
    order = 0
    for k, (run, cut) in enumerate(zip(threads, cuts, strict=True)):
        events, ran = run.rows()
        first, stop = order, len(stops)
        events["row"], events["order"] = k, first + np.searchsorted(cut, np.arange(len(events)), "right")
        order += len(cut) + 1
        stops += [(first + n, tsc + n * TICKS) for n in range(len(cut) + 2)]
        rows[k]["tid"], rows[k]["order"], rows[k]["order_end"] = k + 1, first, order
        rows[k]["stop"], rows[k]["stop_end"], rows[k]["tsc"] = stop, len(stops), tsc
        parts.append(events)
        bcis.append(ran)
    of = np.zeros(0, METHOD_DTYPE), np.zeros(0, KNOWN_DTYPE)
    told = replace(
        paths, rows=rows, order=np.full(order, EMPTY, np.int32), stops=np.array(stops, STOP_DTYPE),
    )  # fmt: skip
    said = Bytecodes(
        HOST, PID, paths.generation, paths.first_path, order, *of, np.concatenate(parts), (), bcis=np.concatenate(bcis)
    )
    return said, told


@st.composite
def told(draw: st.DrawFn) -> tuple[Program, list[object]]:
    """Messages of two threads, cut into panes anywhere."""
    methods = draw(st.lists(cfgs(), min_size=1, max_size=3))
    threads = [draw(runs(methods, *ends(methods))) for _ in range(2)]
    messages, tsc = list[object](), 0
    left = [run.events for run in threads]
    for last in (False, False, True):
        parts = [len(events) if last else draw(st.integers(0, len(events))) for events in left]
        cuts = [sorted(draw(st.lists(st.integers(0, n), max_size=3))) for n in parts]
        messages += explained([Run(events[:n]) for events, n in zip(left, parts, strict=True)], cuts, tsc)
        left = [events[n:] for events, n in zip(left, parts, strict=True)]
        tsc += draw(st.integers(0, 5 * TICKS))
        messages.append(Watermark(HOST, PID, tsc))
    return Program(methods), messages


def through(program: Program, messages: Iterable[object], **options: Any) -> Iterator[StatementReport]:
    stage = StatementStage(
        lambda host, pid: program,
        images=Images(lateness_ticks=0),
        pane_ticks=TICKS,
        **options,
    )
    for message in messages:
        out = stage.feed(message)
        assert out.pop() is message
        yield from (report for report in out if isinstance(report, StatementReport))
    yield from (report for report in stage.flush() if isinstance(report, StatementReport))
    assert stage.statistics()["statements_panes"] == 0


@settings(deadline=None, max_examples=25)
@given(told())
def test_panes_add_up_to_the_whole(made: tuple[Program, list[object]]) -> None:
    program, messages = made
    whole = Statements(lambda host, pid: program)
    for message in messages:
        whole.take(message)
    reports = list(through(program, messages))
    added = together(map(executed, reports))
    expected = {
        m.method.selector[1]: ((m.times > 0) | m.compiled, Counter({int(k): int(n) for k, n in m.paths}))
        for m in whole.executed()
    }
    assert {m.name for m, ran in added.methods.items() if ran.seen} == set(expected)
    for m, ran in added.methods.items():
        seen, paths = expected[m.name]
        assert [ran.seen >> k & 1 for k in range(m.bytecodes)] == seen.tolist()
        follows = concluded(program.methods[int(m.name[1:])], seen)
        assert [ran.ran >> k & 1 for k in range(m.bytecodes)] == follows.tolist()
        assert {number: way.times for (of, number), way in added.paths.items() if of == m} == paths
    hub = Kept([20])
    for report in reports:
        hub.feed(report)
    window = together(hub.parts())
    assert (window.methods, window.paths) == (added.methods, added.paths)


def test_a_bytecode_is_of_the_pane_of_the_event_before_it() -> None:
    program = Program([straight(["iconst_0", "istore_0", "iload_0", "return"])])
    run = Run([(FrameEvent.ENTER, 0, [0, 1]), (FrameEvent.GOES_ON, 0, [2, 3]), (FrameEvent.RETURN, -1, [])])
    first, second = through(program, [*explained([run], [[1]], 0), Watermark(HOST, PID, 5 * TICKS)])
    assert [(report.pane, report.seen.tolist()) for report in (first, second)] == [(0, [0b0011]), (1, [0b1100])]
    # all four follow from any of them, whichever pane it is in
    assert [report.ran.tolist() for report in (first, second)] == [[0b1111], [0b1111]]
    assert (len(first.paths), second.ways, second.paths["times"].tolist()) == (0, ("0 3",), [1])
    assert second.names == (("A", "m0", "()V"),)


def branches(n: int) -> Cfg:
    """A method with 2^n paths: node 2k goes on to the next, or over it."""
    nodes = empty_nodes(2 * n + 1)
    nodes.bci[:] = 3 * np.arange(2 * n + 1)
    nodes.kind[:] = [Kind.CONDITIONAL, Kind.PLAIN] * n + [Kind.RETURN]
    nodes.next[:-1] = np.arange(1, 2 * n + 1)
    nodes.target[:-1:2] = np.arange(2, 2 * n + 1, 2)
    return Cfg(nodes, np.empty(0, np.int32), np.empty((0, 4), np.int32), {})


def test_what_is_kept_and_told_is_bounded() -> None:
    """With too many methods all begins anew, and what was counted is told before."""
    program = Program([straight(["iconst_0", "return"]) for _ in range(6)])
    messages = list[object]()
    for m in range(6):
        run = Run([(FrameEvent.ENTER, m, [0, 1]), (FrameEvent.RETURN, -1, [])])
        messages += explained([run], [[]], 10)
    stage = StatementStage(lambda *_: program, images=Images(lateness_ticks=0), pane_ticks=TICKS, most_nodes=5)
    out = [report for message in messages for report in stage.feed(message) if isinstance(report, StatementReport)]
    out += [report for report in stage.flush() if isinstance(report, StatementReport)]
    assert [len(report.methods) for report in out] == [3, 3]
    assert stage.statistics()["statements_renewed"] == 2
    assert sorted(m.name for m in together(map(executed, out)).methods) == [f"m{m}" for m in range(6)]


def test_a_pane_tells_the_paths_taken_most_often() -> None:
    bits, run = 9, Run()
    program = Program([branches(bits)])
    for number in range(1 << bits):
        for _ in range(2 if number == 300 else 1):
            way = [3 * (2 * k + on) for k in range(bits) for on in range(1 + (number >> k & 1))]
            run.events += [(FrameEvent.ENTER, 0, [*way, 6 * bits]), (FrameEvent.RETURN, -1, [])]
    (report,) = through(program, explained([run], [[]], 0))
    assert len(report.paths) == len(report.ways) == PATHS
    assert report.paths["times"][0] == 2
    assert report.paths["times"].sum() + report.other_paths == (1 << bits) + 1


def test_a_thread_that_ended_leaves_no_frames() -> None:
    program = Program([straight(["iconst_0", "return"])])
    stage = StatementStage(lambda *_: program, images=Images(lateness_ticks=0), pane_ticks=TICKS)
    for message in explained([Run([(FrameEvent.ENTER, 0, [0])])], [[]], 0):
        stage.feed(message)
    stage.feed(ThreadEnd(ThreadKey(HOST, PID, 1), STREAM, 0))
    assert not stage._processes[HOST, PID].process.interpreted._top
