"""Mounts of virtual threads that the agent tells, against the program's own counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from jvm.agent.build import library
from jvm.export import records as export
from jvm.export.ring import RingReader
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
    said = jvm.tell("each 10 200 50")
    made = {int(thread): 1 + int(yields) for thread, yields in (line.split() for line in said)}
    known.read(reader)
    told = known.of(export.Mount)
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
