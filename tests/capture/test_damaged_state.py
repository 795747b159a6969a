"""Capture's state for its successor is damaged: it is told, the trace it explained is lost by name, and all goes on."""

from __future__ import annotations

import os
from pathlib import Path

from capture.live.source import told_file
from stages.messages import Chunk, Loss, Sideband, SideKind, StreamEnd
from streamer.pipeline.outcome import aux_heads
from tests.capture import perfwriter as w
from tests.capture.session import CPU0, Session, of

PSB = bytes.fromhex("0282" * 8 + "0223")


def test_records_that_were_damaged_are_lost_and_the_next_ones_are_not(tmp_path: Path) -> None:
    session = Session(tmp_path / "s")
    producer, drain = session.ring(), session.drain()
    producer.records(w.switch(7, 8, ns=1))
    producer.trace(PSB * 100, ns=2)
    drain.poll()
    drain.close()
    path = told_file(session.path, CPU0)
    damaged = bytearray(path.read_bytes())
    damaged[40] ^= 1
    path.write_bytes(damaged)

    successor = session.drain()
    producer.records(w.switch(7, 9, ns=3))
    producer.trace(PSB, ns=4)
    out = [message for _ in range(3) for message in successor.poll()]
    assert successor.faults == [
        f"{path}: the checksum of a record is wrong: {len(damaged) - 8} bytes are damaged from byte 8 on"
    ]
    assert successor.statistics()["faults"] == 1
    rows = [row for message in of(Sideband, out) for row in message.records]
    assert [int(row["tid"]) for row in rows if row["kind"] == SideKind.SWITCH_IN] == [9]
    assert Loss.SIDEBAND_LOST in [mark.cause for chunk in of(Chunk, out) for mark in chunk.losses]
    successor.close()

    healed = session.drain()
    healed.poll()
    assert healed.faults == []
    healed.close()


def test_a_ring_that_is_cut_is_given_up_and_all_others_go_on(tmp_path: Path) -> None:
    """Neither capture dies nor does it look at that ring again; so do rings that are none from the beginning."""
    session = Session(tmp_path / "s")
    (session.path / "pt" / "cpu7.ring").write_bytes(b"no ring")
    cut, other, drain = session.ring("cpu0"), session.ring("cpu1"), session.drain()
    for producer in (cut, other):
        producer.records(w.switch(7, 8, ns=1))
        producer.trace(PSB * 10, ns=2)
    drain.poll()
    os.truncate(cut.path, 100)
    other.trace(PSB, ns=3)
    out = [message for _ in range(4) for message in drain.poll()]
    assert b"".join(chunk.data.tobytes() for chunk in of(Chunk, out) if chunk.stream.cpu == 1) == PSB
    assert [end.stream.cpu for end in of(StreamEnd, out)] == [0]
    assert drain.statistics()["faults"] == 2
    assert sorted(fault.split("pt/")[1] for fault in drain.faults) == [
        "cpu0.ring: cut while it was read",
        "cpu7.ring: 7 bytes are no ring",
    ]
    heads = {key.cpu: head for key, head in aux_heads(session.path).items()}
    assert heads == {1: len(PSB) * 11}
    drain.close()
    successor = session.drain()
    for _ in range(3):
        successor.poll()
    assert successor.statistics()["faults"] == 2
    successor.close()
