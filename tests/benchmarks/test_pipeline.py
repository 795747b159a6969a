"""The benchmark of the whole chain, and the density that it gives to a recording."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.branches import Branches
from benchmarks.density import CHUNK, dense, faster
from capture.live.drain import Message
from capture.recording.replay import Replay
from stages.messages import (
    SIDE_DTYPE,
    Chunk,
    Clock,
    EndOfStream,
    JitBatch,
    Loss,
    LossMark,
    PtConfig,
    Sideband,
    StreamKey,
    StreamOpen,
    Tick,
)
from tests.paths.made import Flow, flows, message, parts

KEYS = [StreamKey("h", 1, cpu, -1) for cpu in range(2)]
CLOCK = Clock(1 << 20, 20, 5, 7)


@st.composite
def recordings(draw: st.DrawFn) -> list[Message]:
    """Drains of two streams, with losses, gaps, records and code."""
    messages: list[Message] = [StreamOpen(key, PtConfig(), CLOCK) for key in KEYS]
    offset, number, records = dict.fromkeys(KEYS, 0), dict.fromkeys(KEYS, 0), 0
    for drain in range(1, draw(st.integers(1, 12)) + 1):
        tsc = 100 * drain
        if draw(st.booleans()):
            messages.append(JitBatch("h", 1, drain, np.full(8 * draw(st.integers(1, 3)), drain, np.uint8), drain, tsc))
        for key in draw(st.lists(st.sampled_from(KEYS), max_size=3)):
            records += 1
            messages.append(Sideband(key, records, np.full(1, records, np.uint64).astype(SIDE_DTYPE), tsc))
            lost = draw(st.booleans())
            offset[key] += 3 if lost else 0
            marks = (LossMark(offset[key], Loss.TRANSPORT, 0, tsc),) if lost else ()
            size = draw(st.integers(0, 5))
            data = np.arange(offset[key], offset[key] + size).astype(np.uint8)
            messages.append(Chunk(key, number[key], offset[key], data, marks, tsc))
            offset[key] += size
            number[key] += 1
        messages.append(Tick("h", 1, tsc))
    return [*messages, EndOfStream("x")]


def stream(messages: Sequence[Message], key: StreamKey) -> tuple[dict[int, int], list[LossMark]]:
    """Bytes by offset, and losses in order."""
    found, losses = dict[int, int](), list[LossMark]()
    for m in messages:
        if isinstance(m, Chunk) and m.stream == key:
            found |= dict(zip(range(m.offset, m.offset + len(m.data)), m.data.tolist(), strict=True))
            losses += m.losses
    return found, losses


@settings(deadline=None)
@given(flows())
def test_branches_are_the_blocks_that_were_passed(flow: Flow) -> None:
    expected = 0
    for row in flow.rows:
        last = 0
        for x in row.order:
            last, times = (x, 1) if x >= 0 else (last, -x)
            expected += times * len(parts(flow, last))
    assert Branches().of(message(flow)) == expected


@settings(deadline=None)
@given(recordings(), st.integers(1, 7))
def test_a_denser_recording_holds_the_same(messages: list[Message], times: int) -> None:
    made = list(dense(messages, times))
    for key in KEYS:
        assert stream(made, key) == stream(messages, key)
        numbers = [m.seq for m in made if isinstance(m, Chunk) and m.stream == key]
        assert numbers == list(range(len(numbers)))
        rows = [[m.records for m in part if isinstance(m, Sideband) and m.stream == key] for part in (messages, made)]
        assert [r.tolist() for side in rows[0] for r in side] == [r.tolist() for side in rows[1] for r in side]
    code = [b"".join(m.data.tobytes() for m in part if isinstance(m, JitBatch)) for part in (messages, made)]
    assert code[0] == code[1]
    tscs = [m.tsc for m in made if isinstance(m, Tick)]
    assert tscs == sorted(set(tscs))
    assert len(tscs) == -(-sum(isinstance(m, Tick) for m in messages) // times)
    assert made[-1] == EndOfStream("x")


def test_losses_stand_in_the_chunk_of_their_bytes() -> None:
    losses = tuple(LossMark(at, Loss.AUX_FULL, 0, 1) for at in (0, CHUNK - 1, CHUNK, 2 * CHUNK + 5))
    chunk = Chunk(KEYS[0], 0, 0, np.zeros(2 * CHUNK + 5, np.uint8), losses, 1)
    made = [m for m in dense([chunk], 1) if isinstance(m, Chunk)]
    assert [(m.offset, len(m.data)) for m in made] == [(0, CHUNK), (CHUNK, CHUNK), (2 * CHUNK, 5)]
    assert [[mark.offset for mark in m.losses] for m in made] == [[0, CHUNK - 1], [CHUNK], [2 * CHUNK + 5]]


@given(st.integers(1, (1 << 32) - 1), st.integers(0, 32), st.floats(1, 100))
def test_so_many_ticks_more_pass(mult: int, shift: int, times: float) -> None:
    clock = Clock(mult, shift, 5, 7)
    assert faster(clock, times).hz == pytest.approx(clock.hz * times, rel=0.5 * 101 / (256 * mult) + 1e-9)


def test_a_recording_is_not_made_slower() -> None:
    with pytest.raises(ValueError, match="faster"):
        list(dense([], 0.5))


@pytest.mark.slow
def test_the_benchmark_counts_every_byte() -> None:
    with as_file(files("streamer.demo")) as directory:
        with Replay(directory / "shop.json") as replay:
            size = sum(len(m.data) for m in replay.messages() if isinstance(m, Chunk))
        command = [
            sys.executable,
            "-m",
            "benchmarks.pipeline",
            str(directory / "shop.json"),
            "--speed-up",
            "15",
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    figures = json.loads(done.stdout)
    parts = figures["parts"]
    assert sum(part["trace_bytes"] for part in parts.values()) == size
    assert all(part["trace_bytes"] and part["cpu_seconds"] > 0 and part["pieces"] for part in parts.values())
    assert (
        figures["statistics"]["decode"]["decode_bytes"] + figures["statistics"]["decode"].get("decode_skipped_bytes", 0)
        == size
    )
