"""The longest part of a JVM recording that one state of the code explains.

Decoders are raced over one state of the code: where it differs from the code that ran, all of them lose their way, and
the race is about that. The pipeline follows the recording as `streamer run` does; a part is the run of one thread in
one stream without a contradiction, a patch, or a change of code that it has run over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capture.recording.replay import Replay
from jvm.code.snapshot import CodeView
from stages.follow.flow import Flow, FlowOutput
from stages.messages import Chunk, PtConfig, Segment, StreamKey, StreamOpen, ThreadKey
from streamer import config
from streamer.pipeline.topology import MIDDLE, Place, feed_chain, flush_chain, make_chain

_PSB = b"\x02\x82" * 8
_STAGES = MIDDLE["flow"][: MIDDLE["flow"].index("follow") + 1]


class Part(NamedTuple):
    stream: StreamKey
    config: PtConfig
    data: NDArray[np.uint8]  # from a PSB on
    code: CodeView


class _Search:
    def __init__(self, most: int) -> None:
        """Bytes looked for; not more."""
        self._most = most
        self._at: dict[StreamKey, tuple[ThreadKey, int, int]] = {}  # thread; where the part under way begins, and ends
        self._died = self._patches = 0.0  # blocks, and changes of bytes, by then
        self.best: tuple[StreamKey, int, int] | None = None
        self.code: list[tuple[int, bytes]] = []

    @property
    def found(self) -> int:
        return self.best[2] - self.best[1] if self.best else 0

    def walked(self, flow: Flow, piece: Segment, outputs: list[FlowOutput]) -> None:
        broken = any(len(output.breaks) for output in outputs)
        statistics = flow.statistics()
        begin, end = piece.offset, piece.offset + len(piece.data)
        patched, self._patches = statistics["patches"] != self._patches, statistics["patches"]
        died, self._died = statistics["died"] != self._died, statistics["died"]
        if died or patched:
            self._at.clear()  # no part of any stream that has begun is explained by the code as it is now
        if broken or patched:  # somewhere in this piece
            self._at.pop(piece.stream, None)
            return
        if piece.continues:
            thread, since, until = self._at.get(piece.stream, (piece.thread, begin, begin))
            if (thread, until) == (piece.thread, begin):
                begin = since
        self._at[piece.stream] = piece.thread, begin, end
        if end - begin > max(self.found, self._most // 8) * 1.1:
            self.best = piece.stream, begin, min(end, begin + self._most)
            c = flow.code
            rows = zip(c.start.tolist(), c.data_at.tolist(), (c.end - c.start).tolist(), strict=True)
            self.code = [(start, c.code[at : at + size].tobytes()) for start, at, size in rows]


def longest(recording: Path, most: int) -> Part | None:
    """At most about `most` bytes, at least an eighth of that; None: there is no such part."""
    search = _Search(most)
    chain = make_chain(_STAGES, Place(config.load(fidelity="flow"), recording.parent, 0))
    configs: dict[StreamKey, PtConfig] = {}
    with _listening(search.walked), Replay(recording) as replay:
        for message in replay.messages():
            if isinstance(message, StreamOpen):
                configs[message.stream] = message.config
            for _ in feed_chain(chain, message):
                pass
            if search.found >= most:
                break
        else:
            for _ in flush_chain(chain):
                pass
    if search.best is None:
        return None
    stream, begin, end = search.best
    data = _bytes(recording, stream, begin, end)
    start = data.find(_PSB)
    if start < 0:
        return None
    return Part(stream, configs[stream], np.frombuffer(data[start:], np.uint8), CodeView.of(search.code))


@contextmanager
def _listening(heard: Callable[[Flow, Segment, list[FlowOutput]], None]) -> Iterator[None]:
    """`heard` is told of each piece at the end of `Flow.steps`, while the code is as it was walked."""
    steps = Flow.steps

    def listened(flow: Flow, segment: Segment) -> Iterator[FlowOutput | None]:
        outputs: list[FlowOutput] = []
        for output in steps(flow, segment):
            if output is not None:
                outputs.append(output)
            yield output
        heard(flow, segment, outputs)

    Flow.steps = listened  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Flow.steps = steps  # type: ignore[method-assign]


def _bytes(recording: Path, stream: StreamKey, begin: int, end: int) -> bytes:
    out = bytearray()
    with Replay(recording) as replay:
        for message in replay.messages():
            if isinstance(message, Chunk) and message.stream == stream:
                lo, hi = max(begin - message.offset, 0), min(end - message.offset, len(message.data))
                if lo < hi:
                    out += bytes(message.data[lo:hi])
                if message.offset >= end:
                    break
    return bytes(out)
