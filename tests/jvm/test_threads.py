"""Names of threads in time: ids come again, ends are lost, names are told again."""

from __future__ import annotations

from jvm.code.image import CodeImage
from jvm.export.records import RecordFlag
from jvm.threads import LONGEST, MOST, OF_AN_ID, ThreadNames
from tests.jvm.exportwriter import Writer


def test_an_id_is_the_thread_of_that_time() -> None:
    names = ThreadNames()
    names.start(7, "main", 0)
    names.end(7, 100)
    names.start(7, "pool-1-thread-1", 200)
    names.start(7, "pool-1-thread-1", 200)  # a spool is read again
    names.start(7, "main", 0)
    assert [names.at(7, t) for t in (0, 99, 100, 199, 200, 300)] == ["main", "main", "", "", *["pool-1-thread-1"] * 2]
    assert names.at(7, 190, early=10) == "pool-1-thread-1"
    assert names.at(8, 50) == ""


def test_a_thread_whose_end_was_not_told_ends_with_the_next_of_its_id() -> None:
    names = ThreadNames()
    names.start(7, "a", 10)
    names.start(7, "b", 20)
    assert [names.at(7, t) for t in (10, 19, 20)] == ["a", "a", "b"]


def test_a_thread_that_is_found_again_was_there_before_it_was_told() -> None:
    names = ThreadNames()
    names.start(7, "main", 100)  # when the JVM was initialised
    names.start(7, "main", 0)
    assert names.at(7, 10) == "main"


def test_ended_threads_are_forgotten_and_the_others_are_not() -> None:
    names = ThreadNames()
    for tid in (1, 2):
        names.start(tid, f"t{tid}", 10)
    names.end(1, 20)
    names.forget_before(20)
    assert (names.at(1, 15), names.at(2, 15)) == ("", "t2")


def test_it_does_not_grow() -> None:
    names = ThreadNames()
    for k in range(2 * MOST):
        names.start(k, "x" * 1000, k + 1)
    for k in range(100):
        names.start(2 * MOST, f"n{k}", 3 * MOST + k)
    assert len(names._told) == MOST
    assert len(names._told[2 * MOST]) == OF_AN_ID
    assert names.at(2 * MOST - 1, 2 * MOST) == "x" * LONGEST


def test_the_image_is_told_by_the_agent() -> None:
    image = CodeImage(0)
    told = Writer(tsc=1000, step=10).thread_start(7, "main", flags=RecordFlag.REPLAYED)
    image.feed(told.thread_start(8, "pool-1-thread-1").at(2000).thread_end(8).bytes())
    assert [image.threads.at(tid, 500) for tid in (7, 8)] == ["main", ""]
    assert image.threads.at(8, 1500) == "pool-1-thread-1"
    image.forget_before(3000)
    assert [image.threads.at(tid, 1500) for tid in (7, 8)] == ["main", ""]
