"""Pieces of threads, in the order in which they go on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jvm.code.revisions import SETTLED
from stages.images import MOST_BYTES, Images
from stages.messages import (
    MARK_DTYPE,
    Arrival,
    Clock,
    JitBatch,
    Loss,
    LossMark,
    Pieces,
    PtConfig,
    Segment,
    StreamKey,
    StreamOpen,
    ThreadKey,
    Watermark,
)
from stages.ready.stage import Ready
from tests.jvm.exportwriter import Writer


def piece(cpu: int, tsc: int, tsc_end: int) -> Segment:
    stream = StreamKey("h", 42, cpu, -1)
    return Segment(
        ThreadKey("h", 42, 7), stream, 0, tsc, np.zeros(1, np.uint8), np.empty(0, MARK_DTYPE), 0, tsc, tsc_end, True
    )


def released(*releases: list[Segment]) -> list[tuple[int, int]]:
    """(time of its beginning, whether it continues the one before) of each piece, in the order in which they go on."""
    return [(int(row["tsc"]), int(row["continues"])) for row, _ in rows_of(*releases)]


def rows_of(*releases: list[Segment]) -> list[tuple[np.void, tuple[LossMark, ...]]]:
    """PIECE_DTYPE and the losses before it."""
    ready, out = Ready(), []
    for segments in releases:
        said = [message for segment in segments for message in ready.feed(segment)] + ready.flush()
        for message in said:
            if isinstance(message, Pieces):
                for k, row in enumerate(message.rows):
                    out.append((row, tuple(mark for at, mark in message.holes if at == k)))
    return out


def test_code_told_at_once_is_taken_in_in_steps() -> None:
    """As at a late attach. It is handed on once all of it is known."""
    writer = Writer()
    for k in range(300):
        writer.dynamic_code(0x10000 + 2048 * k, f"code {k}", bytes(2000))
    batch = JitBatch("h", 42, 0, np.frombuffer(writer.bytes(), np.uint8))
    images = Images(lateness_ticks=0)
    ready = Ready(images)
    known, said = [], []
    for out in ready.steps(batch):
        known.append(int(images.statistics()["code_versions"]))
        said.append(out)
    assert said == [None] * (len(said) - 1) + [batch]
    assert known[-1] == 300
    steps = np.diff([0, *known[:-1]])
    assert len(steps) == -(-len(writer.bytes()) // MOST_BYTES)
    assert steps.max() * 2000 <= MOST_BYTES
    assert ready.feed(batch) == [batch]
    assert images.statistics()["code_versions"] == 300  # it is recognised
    early, opened = Images(), StreamOpen(StreamKey("h", 42, 0, -1), PtConfig(), Clock(1 << 20, 20, 5, 7))
    assert list(early.steps(batch)) == []  # waits for the clock
    assert len(list(early.steps(opened))) == len(steps)
    assert early.statistics()["code_versions"] == 300


def test_patches_told_at_once_are_put_into_time_in_steps_before_code_is_forgotten() -> None:
    count = 5 * SETTLED
    writer = Writer()
    for k in range(count):
        writer.dynamic_code(0x10000 + 64 * k, f"code {k}", bytes(range(16, 48)))
    for k in range(count):
        writer.code_patch(0x10000 + 64 * k, 20_000, 30_000, b"\x90")
    images = Images(lateness_ticks=0)
    images.take(JitBatch("h", 42, 0, np.frombuffer(writer.bytes(), np.uint8)))
    assert list(images.steps(Watermark("h", 42, 2 * 10**9))) == [None] * 5
    assert list(images.steps(Watermark("h", 42, 4 * 10**9))) == []


def test_pieces_of_two_cpus_that_go_on_together_are_in_the_order_of_time() -> None:
    assert released([piece(1, 20, 30), piece(0, 10, 19)], [piece(1, 30, 40)]) == [(10, 1), (20, 1), (30, 1)]


def test_a_piece_that_comes_when_a_later_one_has_gone_on_continues_nothing() -> None:
    """Nor does the next one continue it: calls and returns in between are known, but not in their place. That nothing
    is lost there is said."""
    moved = [piece(0, 0, 10), piece(1, 20, 30)]
    rows = rows_of(moved, [piece(0, 10, 19)], [piece(1, 30, 40), piece(1, 40, 50)])
    assert [(row["tsc"], row["continues"], row["arrival"]) for row, _ in rows] == [
        (0, 1, Arrival.IN_ORDER), (20, 1, Arrival.IN_ORDER), (10, 0, Arrival.LATE), (30, 0, Arrival.BEHIND_LATE),
        (40, 1, Arrival.IN_ORDER),
    ]  # fmt: skip


def test_a_loss_before_a_late_piece_is_behind_the_late_ones() -> None:
    mark = LossMark(10, Loss.AUX_FULL, 0, 10)
    moved, lossy = [piece(0, 0, 10), piece(1, 20, 30)], replace(piece(0, 10, 19), continues=False, hole=(mark,))
    rows = rows_of(moved, [lossy], [piece(1, 30, 40), piece(1, 40, 50)])
    assert [(row["tsc"], row["continues"], row["arrival"], marks) for row, marks in rows[2:]] == [
        (10, 0, Arrival.LATE, ()), (30, 0, Arrival.IN_ORDER, (mark,)), (40, 1, Arrival.IN_ORDER, ()),
    ]  # fmt: skip


def test_times_that_overlap_say_nothing_about_the_order() -> None:
    """Where a switch was is known to lie between two time marks only."""
    assert released([piece(1, 20, 30)], [piece(0, 10, 20)]) == [(20, 1), (10, 1)]
