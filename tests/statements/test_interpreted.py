"""Counts of bytecodes and paths, against runs of which each step is known."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stages.messages import Bytecodes
from stages.messages.bytecodes import EVENT_DTYPE, KNOWN_DTYPE, METHOD_DTYPE, FrameEvent
from stages.statements.interpreted import Counted, Interpreted, told
from stages.statements.methods import Known
from tests.jvm.bytecode.graphs import cfgs
from tests.statements.programs import Program, Run, ends, runs


def message(
    rows: NDArray[np.void], bcis: NDArray[np.uint16], tids: list[int]
) -> tuple[NDArray[np.void], NDArray[np.uint16], NDArray[np.int32]]:
    of = np.zeros(0, METHOD_DTYPE), np.zeros(0, KNOWN_DTYPE)
    return *told(Bytecodes("h", 42, 0, 0, 0, *of, rows, (), bcis=bcis)), np.array(tids, np.int32)


@st.composite
def made(draw: st.DrawFn) -> tuple[Known, list[Run]]:
    """Methods, and the runs of two threads."""
    methods = draw(st.lists(cfgs(), min_size=1, max_size=3))
    known = Known()
    known.meet(np.arange(len(methods), dtype=np.int32), Program(methods), [])
    return known, [draw(runs(methods, *ends(methods))) for _ in range(2)]


@settings(deadline=None)
@given(made(), st.data())
def test_each_bytecode_and_each_path_is_counted_as_often_as_it_ran(
    program: tuple[Known, list[Run]], data: st.DataObject
) -> None:
    """However the threads' events are cut into messages."""
    known, threads = program
    interpreted, counted = Interpreted(known), Counted()
    left = [list(run.events) for run in threads]
    while any(left):
        parts = list[tuple[int, Run]]()
        for k, events in enumerate(left):
            n = data.draw(st.integers(0, len(events)))
            parts.append((k, Run(events[:n])))
            left[k] = events[n:]
        rows, bcis = zip(*(part.rows() for _, part in parts), strict=True)
        for (k, _), mine in zip(parts, rows, strict=True):
            mine["row"] = k
        interpreted.take(*message(np.concatenate(rows), np.concatenate(bcis), [7, 8]), counted)
        if not any(n for n in map(len, rows)):
            break
    for k, events in enumerate(left):  # nothing was drawn: the rest at once
        rows_, bcis_ = Run(events).rows()
        rows_["row"] = k
        interpreted.take(*message(rows_, bcis_, [7, 8]), counted)
    expected = sum((run.times for run in threads), Counter[tuple[int, int]]())
    times = Counter[tuple[int, int]]()
    ways = Counter[tuple[int, tuple[int, ...]]]()
    for m, method in enumerate(known.methods):
        ran = counted.times[method.nodes].tolist()
        times.update({(m, node): n for node, n in enumerate(ran) if n})
    for m, number, n in counted.paths().tolist():
        numbering = known.methods[m].numbering
        assert numbering is not None
        ways[m, tuple(numbering.nodes(number))] += n
    assert times == expected
    assert ways == sum((run.ways for run in threads), Counter[tuple[int, tuple[int, ...]]]())
    assert interpreted.strange == 0


def test_without_bytecodes_the_stack_is_forgotten() -> None:
    """There was no room to tell them all."""
    rows = np.zeros(2, EVENT_DTYPE)
    rows["kind"], rows["method"], rows["bytecodes"] = FrameEvent.ENTER, 0, 1
    known = Known()
    interpreted, counted = Interpreted(known), Counted()
    interpreted.take(*message(rows, np.zeros(1, np.uint16), [7]), counted)
    assert counted.paths().tolist() == []
    assert counted.times.tolist() == []


def test_frames_of_threads_that_have_ended_are_given_back() -> None:
    known = Known()
    interpreted, counted = Interpreted(known), Counted()
    rows = np.zeros(100, EVENT_DTYPE)
    rows["kind"], rows["method"] = FrameEvent.ENTER, -1
    for tid in range(50):
        interpreted.take(*message(rows, np.zeros(0, np.uint16), [tid]), counted)
        interpreted.forget(tid)
    assert len(interpreted._frames.method) <= 256
