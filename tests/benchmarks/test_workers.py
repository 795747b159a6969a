"""How a recording is dealt to workers."""

from __future__ import annotations

import numpy as np

from benchmarks.workers import Row, _steady_from, shares
from capture.live.drain import Message
from stages.messages import Chunk, JitBatch, StreamKey, Tick

EMPTY = np.zeros(0, np.uint8)


def test_each_worker_has_all_code_and_its_own_threads() -> None:
    threads: list[Message] = [Chunk(StreamKey("h", 7, -1, tid), 0, 0, EMPTY) for tid in range(10, 14)]
    code: list[Message] = [JitBatch("h", 7, 0, EMPTY), Tick("h", 7, 1)]
    each = shares([*code, *threads], 2)
    assert [[m for m in share if not isinstance(m, Chunk)] for share in each] == [code, code]
    of = [{m.stream.tid for m in share if isinstance(m, Chunk)} for share in each]
    assert sorted(map(sorted, of)) == [[10, 12], [11, 13]]


def test_efficiency_is_of_the_busiest() -> None:
    assert Row("steady", 4, (1.0,) * 4, (0.5, 0.5, 0.4, 0.5), 3.2, 4.0).efficiency == 0.8


def test_the_steady_part_begins_with_its_first_bytes() -> None:
    key = StreamKey("h", 7, -1, 10)
    messages: list[Message] = [Chunk(key, n, 10 * n, np.zeros(10, np.uint8), tsc=100 + n) for n in range(5)]
    assert [_steady_from(messages, size) for size in (10, 11, 50, 51)] == [104, 103, 100, 0]
