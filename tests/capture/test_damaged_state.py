"""What capture keeps for its successor is damaged: it is told, what it explained is lost by name, and all goes on."""

from __future__ import annotations

from pathlib import Path

from capture.live.source import told_file
from stages.messages import Chunk, Loss, Sideband, SideKind
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
