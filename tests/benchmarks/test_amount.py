"""More and less of a recording, and the table of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.amount import APART, copies, first
from benchmarks.linearity import row
from capture.live.drain import Message
from stages.messages import SIDE_DTYPE, Chunk, EndOfStream, Sideband, StreamKey
from tests.benchmarks.test_pipeline import recordings


def size(messages: list[Message]) -> int:
    return sum(len(m.data) for m in messages if isinstance(m, Chunk))


def pid(message: Any) -> int:
    return int(message.stream.pid if hasattr(message, "stream") else message.pid)


@given(recordings(), st.integers(1, 4))
def test_copies_are_of_other_processes(messages: list[Message], times: int) -> None:
    more, messages = list(copies(messages, times)), messages[:-1]
    assert more[-1] == EndOfStream("x")
    assert len(more) == times * len(messages) + 1
    assert size(more) == times * size(messages)
    for n in range(times):
        part = more[n * len(messages) : (n + 1) * len(messages)]
        assert [type(m) for m in part] == [type(m) for m in messages]
        assert [pid(m) for m in part] == [pid(m) + APART * n for m in messages]
        assert [m.tsc for m in part if isinstance(m, Chunk)] == [m.tsc for m in messages if isinstance(m, Chunk)]


def test_switches_are_those_of_the_copy() -> None:
    records = np.zeros(3, SIDE_DTYPE)
    records["pid"], records["tid"] = [7, 0, 9], [8, 0, 9]  # its own, the idle task, another's
    (_, copy) = copies([Sideband(StreamKey("h", 7, 0, -1), 1, records, 5)], 2)
    assert isinstance(copy, Sideband)
    assert copy.stream == StreamKey("h", 7 + APART, 0, -1)
    assert copy.records["pid"].tolist() == [7 + APART, 0, 9]
    assert copy.records["tid"].tolist() == [8, 0, 9]
    assert records["pid"].tolist() == [7, 0, 9]


@given(recordings(), st.sampled_from([0.0, 0.125, 0.5, 1.0]))
def test_the_beginning_has_that_share_of_the_trace(messages: list[Message], share: float) -> None:
    less = first(messages, share)
    assert [id(m) for m in less[:-1]] == [id(m) for m in messages[: len(less) - 1]]
    assert less[-1] is messages[-1]
    assert size(less) <= share * size(messages)
    if len(less) < len(messages):
        following = messages[len(less) - 1]
        assert isinstance(following, Chunk)
        assert size([*less, following]) > share * size(messages)


def test_a_row_is_of_both_parts() -> None:
    parts = {
        "warm-up": {
            "trace_bytes": 6_000_000, "cpu_seconds": 1.5,
            "stages": {"decode": {"memory_bytes": 3_000_000, "longest_ms": 7.4}},
        },
        "steady": {
            "trace_bytes": 2_000_000, "cpu_seconds": 0.5,
            "stages": {"decode": {"memory_bytes": 1_000_000, "longest_ms": 12.6}},
        },
    }  # fmt: skip
    assert row("2 × Shop", {"parts": parts}, 2) == "| 2 × Shop | 8.0 | 2.00 | 4.0 | 4 | 2 | 13 |"
