"""Events that `perf record -z` packed (COMPRESSED, COMPRESSED2): one zstd stream goes through all of them.

An event's end need not be where a packed event ends, so the rest of one is kept for the next. The output has the limits
of packed files (`capture.recording.packed`): the stream is fed in small pieces, of which none can become much.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import zstandard

from capture.recording.packed import FREE, RATIO, WINDOW

_PIECE = 512  # bytes fed at once: a block of zstd, 3 bytes and more, holds at most 128 KiB
_HEADER = struct.Struct("<IHH")


class CompressedError(ValueError):
    """The events cannot be unpacked: the fault found."""


class Unpacker:
    """Of one file; events in the order in which they are packed."""

    def __init__(self, file_size: int) -> None:
        self._stream = self._new()
        self._rest = b""
        self._left = FREE + RATIO * file_size

    @staticmethod
    def _new() -> zstandard.ZstdDecompressionObj:
        return zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()

    def events(self, packed: memoryview) -> Iterator[memoryview]:
        """The whole events that end in the next `packed` bytes. Raises CompressedError."""
        for start in range(0, len(packed), _PIECE):
            data = self._rest + self._unpacked(bytes(packed[start : start + _PIECE]))
            at = 0
            while len(data) - at >= _HEADER.size:
                size = _HEADER.unpack_from(data, at)[2]
                if size < _HEADER.size or size % 8:
                    raise CompressedError(f"a packed event cannot have the size {size}")
                if size > len(data) - at:
                    break
                yield memoryview(data)[at : at + size]
                at += size
            self._rest = data[at:]

    def _unpacked(self, piece: bytes) -> bytes:
        out = b""
        try:
            while piece:
                if self._stream.eof:
                    self._stream = self._new()
                out += self._stream.decompress(piece)
                piece = self._stream.unused_data if self._stream.eof else b""
        except zstandard.ZstdError as error:
            raise CompressedError(f"packed events: {error}") from error
        self._left -= len(out)
        if self._left < 0:
            raise CompressedError("packed events: more than can be right")
        return out

    @property
    def whole(self) -> bool:
        """No event is cut."""
        return not self._rest
