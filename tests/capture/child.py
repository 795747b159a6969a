"""Processes for test_processes: a source that writes rings, and a capture that drains them into a log.

python -m tests.capture.child produce SESSION        until SESSION/stop exists
python -m tests.capture.child capture SESSION LOG
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path

import numpy as np

from capture.live import ring
from capture.live.drain import Drain
from stages.messages import Chunk
from tests.capture import jitwriter
from tests.capture import perfwriter as w

LINE = struct.Struct("<QQ?Q")  # offset, size, content right, causes as bits


def content(offset: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Byte i of the stream: a mix of i, so that a byte in the wrong place is seen."""
    at = np.arange(offset, offset + size, dtype=np.uint64)
    return (at * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(56)).astype(np.uint8)


def produce(session: Path) -> None:
    (session / "pt").mkdir(parents=True)
    state = {"version": 1, "state": "running", "pid": os.getpid(), "filter": [1, 2], "sample_type": 0x10086}

    def write_state() -> None:
        (session / "pt/new").write_text(json.dumps(state))
        (session / "pt/new").rename(session / "pt/emulator.json")

    producer = w.Producer(session / "pt/cpu0.ring", data_pages=8, aux_pages=16)
    agent = jitwriter.Agent(session / f"jit-{os.getpid()}.ring", os.getpid())
    write_state()
    number = 0
    while not (session / "stop").exists():
        producer.trace(content(producer.get(ring.AUX_HEAD), 3000).tobytes(), ns=number)
        producer.records(w.switch(1, number, ns=number))
        agent.write(jitwriter.thread_start(number, "t"))
        number += 1
        time.sleep(0.001)
    state["state"] = "ended"
    write_state()


def capture(session: Path, log: Path) -> None:
    drain = Drain(session, host="h", chunk_bytes=8192)
    with log.open("ab", buffering=0) as file:
        while not drain.ended:
            for message in drain.poll():
                if isinstance(message, Chunk):
                    right = bool((message.data == content(message.offset, len(message.data))).all())
                    causes = sum({1 << mark.cause for mark in message.losses})
                    file.write(LINE.pack(message.offset, len(message.data), right, causes))
            time.sleep(0.001)
    drain.close()


if __name__ == "__main__":
    if sys.argv[1] == "produce":
        produce(Path(sys.argv[2]))
    else:
        capture(Path(sys.argv[2]), Path(sys.argv[3]))
