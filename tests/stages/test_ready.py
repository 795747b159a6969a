"""Pieces of threads, in the order in which they go on."""

from __future__ import annotations

import numpy as np

from stages.messages import MARK_DTYPE, Pieces, Segment, StreamKey, ThreadKey
from stages.ready.stage import Ready


def piece(cpu: int, tsc: int, tsc_end: int) -> Segment:
    stream = StreamKey("h", 42, cpu, -1)
    return Segment(
        ThreadKey("h", 42, 7), stream, 0, tsc, np.zeros(1, np.uint8), np.empty(0, MARK_DTYPE), 0, tsc, tsc_end, True
    )


def released(*releases: list[Segment]) -> list[tuple[int, int]]:
    """(time of its beginning, whether it continues the one before) of each piece, in the order in which they go on."""
    ready, out = Ready(), []
    for segments in releases:
        said = [message for segment in segments for message in ready.feed(segment)] + ready.flush()
        for message in said:
            if isinstance(message, Pieces):
                out += [(int(row["tsc"]), int(row["continues"])) for row in message.rows]
    return out


def test_pieces_of_two_cpus_that_go_on_together_are_in_the_order_of_time() -> None:
    assert released([piece(1, 20, 30), piece(0, 10, 19)], [piece(1, 30, 40)]) == [(10, 1), (20, 1), (30, 1)]


def test_a_piece_that_comes_when_a_later_one_has_gone_on_continues_nothing() -> None:
    """Nor does the next one continue it: calls and returns in between are known, but not in their place."""
    moved = [piece(0, 0, 10), piece(1, 20, 30)]
    assert released(moved, [piece(0, 10, 19)], [piece(1, 30, 40), piece(1, 40, 50)]) == [
        (0, 1), (20, 1), (10, 0), (30, 0), (40, 1),
    ]  # fmt: skip


def test_times_that_overlap_say_nothing_about_the_order() -> None:
    """Where a switch was is known to lie between two time marks only."""
    assert released([piece(1, 20, 30)], [piece(0, 10, 20)]) == [(20, 1), (10, 1)]
