"""Losses, made: bursts of trace bytes cut out of a recording's streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random

from capture.live.drain import Message
from stages.messages import Chunk, StreamKey

PSB = b"\x02\x82" * 8


class Bursts:
    """Where a stream loses bytes: alternately exponentially distributed stretches that are kept and cut."""

    def __init__(self, share: float, burst: int, rng: Random) -> None:
        self._share, self._burst, self._rng = share, burst, rng
        self.cut = 0
        self.all = 0
        self._at: dict[StreamKey, tuple[int, bool]] = {}  # where the stretch under way ends; whether it is cut
        self._chunks: dict[StreamKey, int] = {}  # numbers given out, one of them to each burst

    def __call__(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, Chunk):
                yield from self._chunk(message)
            else:
                yield message

    def _kept(self) -> int:
        return 1 + int(self._rng.expovariate(self._share / (self._burst * (1 - self._share))))

    def _chunk(self, chunk: Chunk) -> Iterator[Chunk]:
        self.all += len(chunk.data)
        data, at, stream = bytes(chunk.data), chunk.offset, chunk.stream
        end, cutting = self._at.get(stream) or (at + self._kept(), False)
        begin = at
        while at < chunk.offset + len(data):
            if at < end:
                step = min(end, chunk.offset + len(data)) - at
            elif cutting:  # to the next PSB
                found = data.find(PSB, at - chunk.offset)
                step = (found if found >= 0 else len(data)) - (at - chunk.offset)
                if found >= 0:
                    self.cut += step
                    at = begin = chunk.offset + found
                    end, cutting = at + self._kept(), False
                    continue
            else:
                if at > begin:
                    yield self._part(chunk, begin, at)
                end, cutting = at + 1 + int(self._rng.expovariate(1 / self._burst)), True
                self._number(stream)
                continue
            at += step
            self.cut += step if cutting else 0
        if (not cutting and at > begin) or not len(data):
            yield self._part(chunk, begin, at)
        self._at[stream] = end, cutting

    def _number(self, stream: StreamKey) -> int:
        number = self._chunks[stream] = self._chunks.get(stream, -1) + 1
        return number

    def _part(self, chunk: Chunk, begin: int, end: int) -> Chunk:
        return replace(
            chunk, seq=self._number(chunk.stream), offset=begin,
            data=chunk.data[begin - chunk.offset : end - chunk.offset],
            losses=tuple(m for m in chunk.losses if begin <= m.offset <= end),
        )  # fmt: skip
