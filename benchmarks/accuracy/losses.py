"""Losses of a recording's trace, made: the bytes that a reader which does not keep up, or look, would not have had.

none                what was recorded
model=BYTES_PER_S   each stream is read at that rate, out of a buffer of MODEL_BUFFER bytes: what does not fit is lost
buffer=BYTES        each stream's buffer has so many bytes, and is empty after each drain
duty=SHARE          of each second, by the drains' times, only the beginning is traced
bursts=SHARE        bursts of BURST bytes on average, at random, until about that share is lost

Times are the recording's, in which the program runs some 15 times slower than without emulation. Each loss goes on to
the next PSB, where a decoder can begin again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random

from benchmarks.recovery.bursts import PSB, Bursts
from capture.live.drain import Message
from stages.messages import Chunk, StreamKey, StreamOpen, Tick

Loss = Callable[[Iterable[Message]], Iterable[Message]]
BURST, DUTY_SECONDS = 4096, 1.0
MODEL_BUFFER = 64 << 10


class LossError(ValueError):
    """A --loss that is none: one line."""


class Filled:
    """Buffers of `size` bytes, a stream each, read at `rate` bytes a second (infinite: emptied by each drain)."""

    def __init__(self, size: float, rate: float) -> None:
        self._size, self._rate = size, rate
        self._hz = 1.0
        self._used: dict[StreamKey, tuple[float, int]] = {}  # bytes in it, at that time
        self._lost: set[StreamKey] = set()  # until the next PSB

    def __call__(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, StreamOpen):
                self._hz = message.clock.hz
            if isinstance(message, Chunk):
                yield from self._through(message)
            else:
                yield message

    def _through(self, chunk: Chunk) -> Iterator[Chunk]:
        """The part of it for which there is room."""
        used, then = self._used.get(chunk.stream, (0.0, chunk.tsc))
        if chunk.tsc > then:
            used = max(0.0, used - self._rate * (chunk.tsc - then) / self._hz)
        begin = bytes(chunk.data).find(PSB) if chunk.stream in self._lost else 0
        part = chunk.data[begin : begin + int(max(0.0, self._size - used))] if begin >= 0 else chunk.data[:0]
        self._used[chunk.stream] = used + len(part), chunk.tsc
        if begin < 0 or begin + len(part) < len(chunk.data):
            self._lost.add(chunk.stream)
        else:
            self._lost.discard(chunk.stream)
        if len(part):
            low = chunk.offset + begin
            losses = tuple(m for m in chunk.losses if low <= m.offset <= low + len(part))
            yield replace(chunk, offset=low, data=part, losses=losses)


class Duty:
    """The trace is cut out but for `part` of each DUTY_SECONDS: a stretch that is kept begins at a PSB."""

    def __init__(self, part: float) -> None:
        self._part = part

    def __call__(self, messages: Iterable[Message]) -> Iterator[Message]:
        ticks, now, first = 0.0, 0, 0
        resumed: dict[StreamKey, bool] = {}
        for message in messages:
            if isinstance(message, StreamOpen):
                ticks = DUTY_SECONDS * message.clock.hz
            if isinstance(message, Tick):
                first, now = first or message.tsc, message.tsc
            if not isinstance(message, Chunk):
                yield message
                continue
            if ticks and (now - first) % ticks >= self._part * ticks:
                resumed[message.stream] = False
                continue
            begin = 0 if resumed.get(message.stream, True) else bytes(message.data).find(PSB)
            if begin >= 0:
                resumed[message.stream] = True
                yield replace(message, offset=message.offset + begin, data=message.data[begin:])


def made(text: str) -> Loss | None:
    """Of a `--loss`. Raises LossError."""
    mode, _, value = text.partition("=")
    if text == "none":
        return None
    try:
        number = float(value.rstrip("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        raise LossError(f"--loss {text}: {value or 'nothing'} is no number") from None
    if mode in ("model", "buffer") and number > 0:
        return Filled(MODEL_BUFFER, number) if mode == "model" else Filled(number, float("inf"))
    if mode in ("duty", "bursts") and 0 < number < 1:
        return Duty(number) if mode == "duty" else Bursts(number, BURST, Random(1))
    raise LossError(f"--loss {text}: one of none, model=BYTES_PER_S, buffer=BYTES, duty=SHARE, bursts=SHARE")
