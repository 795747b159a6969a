"""Which workers of the next group a message goes to.

Bulk data goes to one worker, by its stream: a stream's state lives in one worker. Threads of a process wander over its
per-CPU streams, and the accounts of a stream are joined by the worker that sees its segments; so all of a process goes
one way, unless each thread has a stream of its own.

Messages that all workers must know (streams, code, time, the end) go to all. `lane` says which of `lanes` senders we
are: the receivers of such a message are shared out among the lanes, so that each receiver hears it once. Between groups
of one size a key keeps its lane, so that code and trace come to a worker over one link, in order. The end comes from
every lane.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any

from stages.messages import (
    Account,
    Bytecodes,
    Chunk,
    Contradicted,
    Counts,
    Decoded,
    EndOfStream,
    JitBatch,
    OffDuty,
    PaneReport,
    Paths,
    Pieces,
    Recovered,
    Segment,
    Sideband,
    StatementReport,
    StreamEnd,
    StreamKey,
    StreamOpen,
    ThreadEnd,
    Tick,
    TreeReport,
    Watermark,
)

Key = tuple[str | int, ...]


@lru_cache(maxsize=4096)
def shard(key: Key, workers: int) -> int:
    """The worker of a key: the same in every process, host and release (Python's own `hash` is not)."""
    text = "\0".join(map(str, key)).encode(errors="surrogatepass")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) % workers


def worker_of(stream: StreamKey, workers: int) -> int:
    """A per-CPU stream belongs to its process, a per-thread stream to its thread. Threads of a pool are started one
    behind the other, so their ids are: taken in turn, each worker has as many of them."""
    return (shard((stream.host, stream.pid), workers) + max(stream.tid, 0)) % workers


FOR_ALL = (StreamOpen, StreamEnd, JitBatch, Tick)
"""The messages that every worker has to know. A worker that was not there is told by an introduction."""


def route(message: Any, lane: int, lanes: int, workers: int) -> tuple[int, ...]:
    """Indexes of the workers that `lane` sends `message` to. Raises TypeError for a message that has no rule here."""
    match message:
        case Chunk() | Sideband() | Decoded() | Segment() | ThreadEnd() | Account():
            return (worker_of(message.stream, workers),)
        case StreamOpen() | StreamEnd() | JitBatch() | Tick():
            return tuple(range(lane, workers, lanes))
        case EndOfStream():
            return tuple(range(workers))
        case (
            Pieces() | Paths() | Bytecodes() | Recovered() | Counts() | Contradicted() | Watermark() | TreeReport()
            | OffDuty() | StatementReport()
        ):  # fmt: skip
            # Messages of one worker go on in its lane: its keys are those of one worker of the next group, too.
            return (lane,) if lanes == workers else (shard((message.host, message.pid), workers),)
        case PaneReport():  # to the hub, which is one
            return (0,)
        case _:
            raise TypeError(f"nobody has said where a {type(message).__name__} goes")
