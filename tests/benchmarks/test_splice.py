"""Fillings in their places: the steps are those of a trace without holes, whatever numbers the paths have then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.accuracy.splice import Splice
from benchmarks.recovery.control_flow import expanded
from stages.messages import Paths, Recovered
from stages.messages.paths import FIRST_PATH, LINK_DTYPE, PATH_DTYPE, PathKind, Provenance, Way
from stages.messages.recovered import FILLING_DTYPE
from stages.paths.dictionary import Dictionary
from tests.recover.made import BLOCKS, STREAM, Row, paths, step

THREADS = (1, 2)


def steps(messages: list[Paths]) -> dict[int, list[int]]:
    """By thread."""
    out: dict[int, list[int]] = {tid: [] for tid in THREADS}
    d = Dictionary()
    for message in messages:
        d.take(message)
        for row in message.rows:
            room = np.zeros(1000, np.int32)
            n = expanded(message.order, row["order"], row["order_end"], d.paths.rows, d.links.rows, room)
            out[int(row["tid"])] += room[:n].tolist()
            assert message.stops["order"][row["stop"] : row["stop_end"]].tolist() == [row["order"], row["order_end"]]
    return out


def grown(message: Paths, pairs: list[tuple[int, int]], before: int) -> Paths:
    """With a path of its own for two paths before it, each as many; they come at the end of its last row."""
    made, links = np.zeros(len(pairs), PATH_DTYPE), np.zeros(2 * len(pairs), LINK_DTYPE)
    made["links"], made["kind"] = 2, PathKind.OF_PATHS
    made["link"] = BLOCKS + 2 * before + 2 * np.arange(len(pairs))
    links["number"], links["way"] = FIRST_PATH + np.array(pairs, np.int32).reshape(-1), Way.TAKEN
    first = FIRST_PATH + BLOCKS + before
    rows, stops = message.rows.copy(), message.stops.copy()
    order = np.append(message.order, first + np.arange(len(pairs))).astype(np.int32)
    rows["order_end"][-1] = stops["order"][-1] = len(order)
    return replace(message, rows=rows, stops=stops, order=order, first_path=first, paths=made, links=links)


PIECE = st.tuples(st.sampled_from(THREADS), st.booleans(), st.lists(st.integers(0, 9), min_size=1, max_size=6))
MESSAGE = st.tuples(st.lists(PIECE, min_size=1, max_size=6), st.lists(st.tuples(*[st.integers(0, 9)] * 2), max_size=3))


@given(st.lists(MESSAGE, min_size=1, max_size=4))
@settings(deadline=None)
def test_the_steps_are_those_without_holes(
    told: list[tuple[list[tuple[int, bool, list[int]]], list[tuple[int, int]]]],
) -> None:
    """A piece that is marked was lost: it fills the hole before its thread's next."""
    whole: list[Paths] = []
    kept: list[Paths] = []
    fillings, filled = [], list[int]()
    lost: dict[int, list[int]] = {}
    offset, before = 0, 0
    for k, (pieces, pairs) in enumerate(told):
        pieces = [(1, False, [0]), *pieces, (1, False, [0]), (2, False, [0])]
        rows, rest = list[Row](), list[Row]()
        for tid, hole, numbers in pieces:
            offset += 10
            rows.append(Row(tid, True, numbers, offset, offset + 5, offset, offset + 5))
            if hole:
                lost.setdefault(tid, []).extend(numbers)
                continue
            missing = lost.pop(tid, [])
            rest.append(rows[-1]._replace(continues=not missing))
            if missing:
                f = np.zeros(1, FILLING_DTYPE)
                f["tid"], f["offset"], f["provenance"] = tid, offset, Provenance.RECOVERED
                f["step"], f["step_end"] = len(filled), len(filled) + len(missing)
                f["tsc"], f["tsc_end"] = offset - 5, offset
                fillings.append(f)
                filled += [step(block) for block in missing]
        for out, those in ((whole, rows), (kept, rest)):
            message = paths(those, k == 0)
            if k:
                message = grown(message, pairs, before)
            out.append(message)
        before += len(pairs) if k else 0
    recovered = Recovered(
        STREAM.host, STREAM.pid, 1, np.concatenate([np.zeros(0, FILLING_DTYPE), *fillings]), np.array(filled, np.int32)
    )
    splice = Splice([recovered])
    spliced = [splice(message) for message in kept]
    assert steps(spliced) == steps(whole)
    made = [row for message in spliced for row in message.rows if row["provenance"] == Provenance.RECOVERED]
    assert len(made) == len(fillings)
    assert all(row["continues"] for message in spliced for row in message.rows)
