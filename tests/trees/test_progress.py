"""What is told while a recording is decoded, on a terminal and elsewhere."""

from __future__ import annotations

import io

from streamer.trees.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_every_five_seconds_with_the_share_and_the_rest() -> None:
    clock, err = Clock(), io.StringIO()
    progress = Progress("a\x1b.json", 1000, err, clock)
    for _ in range(10):  # of 12 s
        clock.seconds += 1.2
        progress.passed(100)
    assert err.getvalue().splitlines() == [
        "streamer: decoding a?.json: 50%, 6 s left",
        "streamer: decoding a?.json: 100%, 0 s left",
    ]
    progress.ended(kept=False)
    assert err.getvalue().splitlines()[2:] == [
        "streamer: decoded a?.json in 12 s; to read its tree at once the next time, keep it: "
        "streamer cct RECORDING --save FILE"
    ]


def test_no_rest_is_told_before_some_of_it_is_done() -> None:
    clock, err = Clock(), io.StringIO()
    progress = Progress("a", 1000, err, clock)
    clock.seconds += 6
    progress.passed(0)
    clock.seconds += 6
    progress.passed(20)
    assert err.getvalue().splitlines() == ["streamer: decoding a: 0%", "streamer: decoding a: 2%"]


def test_a_terminal_has_one_line_that_goes() -> None:
    clock, err = Clock(), Terminal()
    progress = Progress("a", 10, err, clock)
    for _ in range(10):
        clock.seconds += 0.25
        progress.passed(1)
    progress.ended(kept=False)
    told = err.getvalue()
    assert "\n" not in told  # of a fast one no advice either
    assert told.startswith("\rstreamer: decoding a: 10%, 2 s left\x1b[K\rstreamer: decoding a: 20%")
    assert told.endswith("\r\x1b[K")


def test_who_keeps_the_tree_gets_no_advice() -> None:
    clock, err = Clock(), io.StringIO()
    progress = Progress("a", 10, err, clock)
    clock.seconds += 60
    progress.ended(kept=True)
    assert err.getvalue() == ""


def test_more_than_was_expected_is_all() -> None:
    clock, err = Clock(), io.StringIO()
    progress = Progress("a", 0, err, clock)
    clock.seconds += 6
    progress.passed(5)
    assert err.getvalue() == "streamer: decoding a: 100%, 0 s left\n"
