"""Mounts of virtual threads that the agent tells, against the program's own counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from jvm.agent.build import library
from jvm.export import records as export
from jvm.export.ring import STATE_RUNNING, RingReader
from tests.jdks import JDKS
from tests.jvm.agent.java_process import Subject, attach, eventually
from tests.jvm.agent.known import Known

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("jvm-agent")]

with_virtual_threads = pytest.mark.parametrize("version", JDKS[1:])
MOST = 100


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return tmp_path / "session" / "jit.ring"


@contextmanager
def mounts(version: int, ring: Path, more: str = "", main: str = "Mounts") -> Iterator[tuple[Subject, RingReader]]:
    agent = f"-agentpath:{library()}=ring={ring}{more}"
    with Subject(version, [agent], main=main) as jvm, RingReader(ring) as reader:
        yield jvm, reader


def replayed(known: Known, reader: RingReader) -> None:
    """Until the agent's thread has been at work."""
    number = reader.request_replay()
    eventually("a replay", lambda: (known.read(reader), reader.replay_done == number)[1])
    known.read(reader)


def each_is_told(jvm: Subject, reader: RingReader, known: Known) -> None:
    warm = {
        int(line.split()[0]) for line in jvm.tell("each 5")
    }  # a thread may have to wait for a class, and leave for it
    said = jvm.tell("each 10 200 50")
    made = {int(thread): 1 + int(yields) for thread, yields in (line.split() for line in said)}
    known.read(reader)
    told = [mount for mount in known.of(export.Mount) if mount.thread not in warm]
    assert Counter(mount.thread for mount in told) == made
    assert {known.threads[mount.tid].rpartition("-")[0] for mount in told} == {"ForkJoinPool-1-worker"}
    assert all(before.tsc < after.tsc for before, after in pairwise(told))


@with_virtual_threads
def test_each_mount_is_told_on_its_carrier(version: int, ring: Path) -> None:
    with mounts(version, ring) as (jvm, reader):
        each_is_told(jvm, reader, Known())


@with_virtual_threads
def test_an_agent_that_is_attached_tells_them_too(version: int, ring: Path) -> None:
    with Subject(version, main="Mounts") as jvm:
        jvm.tell("each 3")
        attach(jvm.pid, ring)
        with RingReader(ring) as reader:
            known = Known()
            eventually("the replay", lambda: (known.read(reader), known.of(export.ReplayEnd))[1])
            each_is_told(jvm, reader, known)


def ended(known: Known, reader: RingReader) -> list[export.Mount]:
    """The records that say that the telling has ended."""
    known.read(reader)
    return [mount for mount in known.of(export.Mount) if not mount.thread]


@with_virtual_threads
def test_of_many_mounts_few_are_told_and_then_all_again(version: int, ring: Path) -> None:
    begin = time.monotonic()
    with mounts(version, ring, f",mounts={MOST}") as (jvm, reader):
        known = Known()
        (made,) = jvm.tell("fast 2500")
        assert ended(known, reader)
        told = [mount for mount in known.of(export.Mount) if mount.thread]
        assert 0 < len(told) <= MOST * (time.monotonic() - begin + 1)
        assert int(made) > 10 * len(told)
        assert len({mount.thread for mount in told}) == 1

        def told_again() -> bool:
            thread = int(jvm.tell("each 0")[0].split()[0])
            known.read(reader)
            return any(mount.thread == thread for mount in known.of(export.Mount))

        eventually("mounts are told again", told_again)
        last = known.of(export.Mount)[-1]
        assert last.thread
        assert last.tsc > ended(known, reader)[-1].tsc


@with_virtual_threads
def test_half_of_the_ring_is_left_to_the_rest(version: int, ring: Path) -> None:
    with mounts(version, ring, ",mounts=10000000,size=2m,classes=off") as (jvm, reader):
        known = Known()
        replayed(known, reader)
        dropped = reader.dropped
        jvm.tell("fast 1000")
        assert reader.dropped == dropped
        assert ended(known, reader)
        assert 100 << 10 < 32 * len(known.of(export.Mount)) < 1100 << 10


@pytest.mark.parametrize("version", JDKS)
def test_mounts_can_be_left_out(version: int, ring: Path) -> None:
    with mounts(version, ring, ",mounts=0") as (jvm, reader):
        if version > 17:
            jvm.tell("each 100 100")
        known = Known()
        replayed(known, reader)
        assert not known.of(export.Mount)
        assert reader.state == STATE_RUNNING


def test_without_virtual_threads_there_is_nothing_to_tell(ring: Path) -> None:
    with mounts(17, ring) as (jvm, reader):
        known = Known()
        replayed(known, reader)
        assert not known.of(export.Mount)
        assert "main" in known.threads.values()
        assert jvm.finish() == 0


@with_virtual_threads
def test_another_session_may_want_them(version: int, tmp_path: Path) -> None:
    """Though the agent was loaded without; and the next one may not."""
    with Subject(version, main="Mounts") as jvm:
        for session, most in (("one", 0), ("two", 20000), ("three", 0)):
            attach(jvm.pid, tmp_path / session / "jit.ring", mounts=most)
            with RingReader(tmp_path / session / "jit.ring") as reader:
                known = Known()
                replayed(known, reader)
                if most:
                    each_is_told(jvm, reader, known)
                else:
                    jvm.tell("each 20")
                    replayed(known, reader)
                    assert not [mount for mount in known.of(export.Mount) if mount.thread]
