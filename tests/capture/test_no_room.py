"""Capture on a full disk, and on rings whose target goes on although it was left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from capture.live.jit import JitSpool
from jvm.export.parse import iter_records
from jvm.export.records import ThreadStart
from stages.messages import Chunk, EndOfStream, JitBatch
from tests.capture import jitwriter as j
from tests.capture.session import Session, of
from tests.disk import fill, small_disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 1 << 20) as path:
        yield path


def threads(spool: JitSpool) -> list[str]:
    """The names in all that it has to send."""
    names = []
    while (batch := spool.batch(0)) is not None:
        names += [record.name for record in iter_records(batch.data) if isinstance(record, ThreadStart)]
    return names


def test_code_that_cannot_be_spooled_stays_in_the_ring(tmp_path: Path, disk: Path) -> None:
    agent = j.Agent(tmp_path / "jit-7.ring", 7)
    spool = JitSpool(disk / "jit-7.export", "host", 7)
    spool.attach(tmp_path / "jit-7.ring")
    agent.write(j.thread_start(1, "before"))
    spool.fill()
    ballast = fill(disk)
    large = [j.dynamic_code(0x1000, bytes(3000)) for _ in range(5)]
    agent.write(j.thread_start(2, "without room"), *large)  # a part of them would fit into the file's last page
    spool.fill()
    assert "No space left on device" in spool.faults[0]
    assert threads(spool) == ["before"]
    assert spool.unsent == 0
    ballast.unlink()
    agent.write(j.thread_start(3, "after"))
    spool.fill()
    assert threads(spool) == ["without room", "after"]
    assert spool.dropped == 0
    spool.close()
    agent.close()


def test_the_end_does_not_wait_for_a_target_that_goes_on(tmp_path: Path) -> None:
    """It writes trace, and tells of code, at every look: everything there at the first look after `stop` is drained."""
    session = Session(tmp_path)
    ring, agent = session.ring(), session.agent()
    drain = session.drain()

    def goes_on() -> None:
        ring.trace(b"\x02\x82" * 8 + bytes(1000))
        agent.write(j.thread_start(9, "one more"))

    goes_on()
    messages = drain.poll()
    goes_on()
    drain.stop()
    for _ in range(20):
        messages += drain.poll()
        if drain.ended:
            break
        goes_on()
    assert isinstance(messages[-1], EndOfStream)
    assert sum(len(chunk.data) for chunk in of(Chunk, messages)) == 2 * 1016
    assert of(JitBatch, messages)
    drain.close()
