"""Complete segments wait for others, but neither long nor as many bytes as may be held."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jvm.export.records import RecordFlag
from stages.images import Images
from stages.messages import MARK_DTYPE, Account, Pieces, Segment, StreamKey, ThreadKey, Tick, Watermark
from stages.ready.stage import ENOUGH, Ready
from tests.jvm.exportwriter import Writer

HZ = 1e9  # of an image without a clock
STREAM = StreamKey("h", 1, 0, -1)


def piece(tsc: int, size: int = 4, begin: int = -1) -> Segment:
    data, begin = np.zeros(size, np.uint8), tsc - 1 if begin < 0 else begin
    return Segment(ThreadKey("h", 1, 5), STREAM, 0, 0, data, np.zeros(0, MARK_DTYPE), 0, begin, tsc, True)


def released(ready: Ready, tsc: int) -> list[int]:
    """The ends of the segments that go on once the drains before `tsc` are complete."""
    out = [*ready.feed(Tick("h", 1, tsc)), *ready.feed(Tick("h", 1, tsc + 1))]
    return [end for m in out if isinstance(m, Pieces) for end in m.rows["tsc_end"].tolist()]


def fed(*segments: Segment, max_held: int = 1 << 30, pane: float = math.inf) -> Ready:
    images = Images(lateness_ticks=100)
    images.of("h", 1).image.primed_at = 0
    ready = Ready(images, max_held=max_held, hold_seconds=50 / HZ, pane_seconds=pane / HZ)
    ready.feed(Tick("h", 1, 1))
    for segment in segments:
        assert not ready.feed(segment)
    return ready


def test_one_message_for_the_segments_of_several_drains() -> None:
    ready = fed(piece(1000), piece(1020))
    assert released(ready, 1120) == []  # complete, both
    assert released(ready, 1149) == []
    assert released(ready, 1150) == [1000, 1020]


def test_a_segment_waits_until_its_code_is_known() -> None:
    ready = fed(piece(1000), piece(1060))
    assert released(ready, 1155) == [1000]
    assert released(ready, 1210) == [1060]


def test_what_completes_a_pane_does_not_wait() -> None:
    ready = fed(piece(980), piece(990), piece(1010), pane=1000)
    assert released(ready, 1099) == []
    assert released(ready, 1100) == [980, 990]
    assert released(ready, 1159) == []
    assert released(ready, 1160) == [1010]


def test_a_pane_is_complete_with_what_begins_in_it() -> None:
    ready = fed(piece(980), piece(1010, begin=980), piece(1020), pane=1000)
    assert released(ready, 1109) == []
    assert released(ready, 1110) == [980, 1010]


def test_many_bytes_do_not_wait() -> None:
    ready = fed(piece(1000), piece(1020, ENOUGH))
    assert released(ready, 1119) == []
    assert released(ready, 1120) == [1000, 1020]


def test_nothing_complete_is_lost_for_want_of_room() -> None:
    ready = fed(piece(1000, 60), max_held=100)
    assert released(ready, 1100) == []
    out = ready.feed(piece(1050, 60))
    assert [m.rows["tsc_end"].tolist() for m in out if isinstance(m, Pieces)] == [[1000]]
    assert not [m for m in out if isinstance(m, Account)]


def beginning(told: Writer, patience_seconds: float) -> Ready:
    """With a segment of a JVM of which `told` is told."""
    images = Images(lateness_ticks=100)
    images.of("h", 1).image.feed(told.bytes())
    ready = Ready(images, patience_seconds=patience_seconds)
    ready.feed(Tick("h", 1, 1))
    assert not ready.feed(piece(1000))
    return ready


def interpreter(told: Writer) -> Writer:
    return told.interpreter(0x1000, bytes(64)).codelet(0x1000, 0x1010, 182, "invokevirtual")


def test_what_a_jvm_does_in_its_beginning_waits_for_its_end_but_not_for_long() -> None:
    ready = beginning(interpreter(Writer()), 50 / HZ)
    assert released(ready, 1149) == []
    assert released(ready, 1150) == [1000]


def test_a_recording_waits_for_the_end_of_the_beginning() -> None:
    ready = beginning(interpreter(Writer()), math.inf)
    assert released(ready, 1 << 40) == []
    ready.images.of("h", 1).image.feed(Writer(tsc=2000).thread_start(7, "main", flags=RecordFlag.REPLAYED).bytes())
    assert released(ready, 1 << 41) == [1000]


@pytest.mark.parametrize("told", [Writer(), interpreter(Writer().replay_begin(1))])
def test_nothing_goes_on_without_an_interpreter_or_while_all_is_told_again(told: Writer) -> None:
    assert released(beginning(told, 50 / HZ), 1 << 40) == []


def test_panes_stay_open_for_those_that_wait() -> None:
    ready = fed(piece(1000))
    out = [*ready.feed(Tick("h", 1, 1140)), *ready.feed(Tick("h", 1, 1145))]
    assert [m.tsc for m in out if isinstance(m, Watermark)] == [999]


def test_watermarks_are_told_at_the_ends_of_panes_and_now_and_then() -> None:
    images = Images(lateness_ticks=0)
    images.of("h", 1).image.primed_at = 0
    second = round(HZ)
    ready = Ready(images, pane_seconds=0.25)
    marks = []
    for tsc in range(0, second + 1, second // 100):
        marks += [m.tsc for m in ready.feed(Tick("h", 1, tsc)) if isinstance(m, Watermark)]
    assert [round(100 * mark / HZ) for mark in marks] == [10, 20, 25, 35, 45, 50, 60, 70, 75, 85, 95]
