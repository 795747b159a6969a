"""One perf event's ring as the kernel maps it: control page, data ring, AUX area (linux/perf_event.h).

The same bytes come from a real event (mmap of its descriptor) or from a file that the emulated PT writes, so one
reader serves both. Protocol: the producer advances `*_head` after writing, we advance `*_tail` after copying; both
count bytes since the ring was made and are never wrapped. A head is loaded with acquire and a tail stored with
release semantics; on x86 every aligned 8-byte load and store has them, and numpy makes exactly one of each.

A ring lives in memory that another process writes: each value is checked before it is used, and nonsense is a
`RingError`, never an access outside the mapping.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from jvm.guarded import Guarded, any_cut
from stages.messages import U8

PAGE = 4096
MAX_RING = 1 << 36  # 64 GiB: larger than any machine's trace buffer; refuses a size that is only garbage

# byte offsets in struct perf_event_mmap_page
CAPABILITIES, TIME_SHIFT, TIME_MULT, TIME_ZERO = 40, 50, 52, 64
DATA_HEAD, DATA_TAIL, DATA_OFFSET, DATA_SIZE = 1024, 1032, 1040, 1048
AUX_HEAD, AUX_TAIL, AUX_OFFSET, AUX_SIZE = 1056, 1064, 1072, 1080

CAP_USER_TIME_ZERO = 1 << 4
PSB = b"\x02\x82" * 8  # no other packets have these bytes (SDM vol. 3, "Packet Stream Boundary")
NO_WORDS: NDArray[np.uint64] = np.zeros(0, np.uint64)

# The emulated PT's own counters, where the kernel has nothing (docs/emulator.md); words of 8 bytes.
COUNTERS, COUNTERS_MAGIC = 2048, 0x31544E5543545054
NOT_WRITTEN, ENDED, OFF = 3, 11, 14


class RingError(Exception):
    """The ring is not one, or its producer wrote nonsense."""


class PerfRing:
    """A mapped ring. Not thread-safe; one consumer at a time."""

    base = 0
    """Offset in the stream of the ring's first byte."""

    def __init__(self, name: str, base: mmap.mmap, aux: mmap.mmap | None, guards: Sequence[Guarded] = ()) -> None:
        """`base` maps the control page and the data area, `aux` the AUX area (None: the event has none); `name` is
        for messages. `guards`: of these mappings, if a file has them. Raises RingError when the control page
        contradicts the mappings; they are closed with it."""
        self.name = name
        self._maps: Sequence[mmap.mmap | Guarded] = guards or ([base] if aux is None else [base, aux])
        self._guards = guards
        self._page: NDArray[np.uint64] = np.frombuffer(base, np.uint64, PAGE // 8)
        data_offset, data_size, _, _ = _geometry(name, self._page.tobytes())
        if data_offset + data_size > len(base):
            raise RingError(f"{name}: the data area ends at {data_offset + data_size}, its mapping at {len(base)}")
        self._data: U8 = np.frombuffer(base, np.uint8, data_size, data_offset)
        self._aux: U8 = np.frombuffer(aux, np.uint8) if aux is not None else np.zeros(0, np.uint8)

    @classmethod
    def open(cls, path: Path) -> Self:
        """The ring in a file. Raises RingError, also when the file cannot be opened for reading and writing."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise RingError(f"{path}: {error.strerror}") from error
        try:
            data_offset, data_size, aux_offset, aux_size = _geometry(str(path), os.pread(fd, PAGE, 0))
            length = os.fstat(fd).st_size
            if max(data_offset + data_size, aux_offset + aux_size) > length:
                raise RingError(f"{path}: {length} bytes, cut short")
            # Two mappings, as the kernel wants it for an event: the AUX area is a mapping of its own.
            areas = [(data_offset + data_size, 0), *([(aux_size, aux_offset)] if aux_size else [])]
            guards = [Guarded(fd, size, offset) for size, offset in areas]
            return cls(str(path), guards[0].map, guards[1].map if aux_size else None, guards)
        except OSError as error:
            raise RingError(f"{path}: cannot map: {error.strerror}") from error
        finally:
            os.close(fd)

    def close(self) -> None:
        empty = np.zeros(0, np.uint8)
        self._page, self._data, self._aux = empty.view(np.uint64), empty, empty
        for area in self._maps:
            area.close()

    def _check(self) -> None:
        """Behind each access to a mapping."""
        if any_cut(self._guards):
            raise RingError(f"{self.name}: cut while it was read")

    @property
    def aux_size(self) -> int:
        return len(self._aux)

    @property
    def time_conversion(self) -> tuple[int, int, int]:
        """(mult, shift, zero) of the control page, zero signed; RingError when the producer has not set them."""
        words = int(self._page[TIME_SHIFT // 8])  # pmc_width u16, time_shift u16, time_mult u32
        shift, mult = words >> 16 & 0xFFFF, words >> 32
        zero = int(self._page[TIME_ZERO // 8].astype(np.int64))
        if not int(self._page[CAPABILITIES // 8]) & CAP_USER_TIME_ZERO or mult == 0 or shift > 32:
            raise RingError(f"{self.name}: no conversion from TSC to time (mult {mult}, shift {shift})")
        return mult, shift, zero

    @property
    def aux_tail(self) -> int:
        return self.base + int(self._page[AUX_TAIL // 8])

    @property
    def data_head(self) -> int:
        return int(self._page[DATA_HEAD // 8])

    @property
    def data_tail(self) -> int:
        return int(self._page[DATA_TAIL // 8])

    def counter(self, word: int) -> int:
        """A counter of the emulated PT; 0 in a ring of the kernel, or a cut file."""
        emulated = int(self._page[COUNTERS // 8]) == COUNTERS_MAGIC
        return int(self._page[COUNTERS // 8 + word]) if emulated else 0

    def switch(self, on: bool) -> bool:
        """Switch tracing on or off; it is on when a ring is made, and stays as it is when its reader dies. True: it is
        off, and the trace ends at `aux_head`; the emulated PT says so itself, in a record, when it has seen it."""
        if int(self._page[COUNTERS // 8]) == COUNTERS_MAGIC:
            self._page[COUNTERS // 8 + OFF] = not on
        return False

    def aux_head(self) -> int:
        """How far the trace has been written. RingError if that is behind the tail or more than a ring ahead."""
        return self.base + self._head("aux", AUX_HEAD, AUX_TAIL, len(self._aux))

    def take_aux(self, head: int, most: int) -> tuple[int, U8]:
        """(offset, copy) of the trace from the tail to `head` (a value `aux_head` gave), at most `most` bytes; frees
        them in the ring. If there is more than `most`, it ends before a PSB if there is one: `aux_head` is at the end
        of a packet, a cut elsewhere might be inside one, and perf cannot join the halves."""
        tail = self.aux_tail
        size = min(head - tail, most)
        if size < 0 or size > len(self._aux):
            raise RingError(f"{self.name}: aux_tail {tail} was moved by another reader")
        data = _copy(self._aux, tail - self.base, size)
        if size < head - tail:
            data = data[: _last_psb(data)]
        self._page[AUX_TAIL // 8] = tail - self.base + len(data)
        self._check()
        return tail, data

    def records(self) -> tuple[NDArray[np.uint64], int]:
        """Everything in the data ring as 8-byte words (records are multiples of them), unwrapped, and where it ends:
        to be freed by `free_records`."""
        tail = self.data_tail
        head = self._head("data", DATA_HEAD, DATA_TAIL, len(self._data))
        if tail % 8 or head % 8:
            raise RingError(f"{self.name}: data_head {head} or data_tail {tail} inside a word")
        if head == tail:
            return NO_WORDS, head
        words = _copy(self._data, tail, head - tail).view(np.uint64)
        self._check()
        return words, head

    def free_records(self, head: int) -> None:
        """The records before `head` have been read."""
        self._page[DATA_TAIL // 8] = head

    def take_records(self) -> NDArray[np.uint64]:
        """`records`, freed at once."""
        words, head = self.records()
        self.free_records(head)
        return words

    def _head(self, what: str, head_at: int, tail_at: int, size: int) -> int:
        head, tail = int(self._page[head_at // 8]), int(self._page[tail_at // 8])
        self._check()
        if not 0 <= head - tail <= size:
            raise RingError(f"{self.name}: {what}_head {head} against {what}_tail {tail} in a ring of {size} bytes")
        return head


def drained_ring(path: Path) -> int | None:
    """How many bytes were written to the ring in a file, if its producer has ended and all has been read, records too;
    else None."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        page = os.pread(fd, PAGE, 0)
    finally:
        os.close(fd)
    if len(page) < PAGE:
        return None
    words = struct.unpack(f"<{PAGE // 8}Q", page)
    if words[COUNTERS // 8] != COUNTERS_MAGIC or not words[COUNTERS // 8 + ENDED]:
        return None
    head = words[AUX_HEAD // 8]
    drained = words[AUX_TAIL // 8] == head and words[DATA_TAIL // 8] == words[DATA_HEAD // 8]
    return head if drained else None


def _last_psb(data: U8) -> int:
    """Where the last PSB begins; the end, if there is none but at the beginning."""
    for size in (min(8192, len(data)), len(data)):  # PSBs are 2 to 64 KiB apart, mostly near to 2
        start = len(data) - size
        found = start + data[start:].tobytes().rfind(PSB)
        if found >= max(start, 1):
            return found
    return len(data)


def _copy(ring: U8, tail: int, size: int) -> U8:
    """`size` bytes from the absolute position `tail` on, in a fresh array; the ring is a power of two."""
    at = tail & (len(ring) - 1)
    copy = np.empty(size, np.uint8)
    first = min(size, len(ring) - at)
    copy[:first] = ring[at : at + first]
    copy[first:] = ring[: size - first]
    return copy


def _geometry(name: str, page: bytes) -> tuple[int, int, int, int]:
    """(data_offset, data_size, aux_offset, aux_size) of a control page, each checked for itself."""
    if len(page) < PAGE:
        raise RingError(f"{name}: {len(page)} bytes are no ring")
    data_offset, data_size = struct.unpack_from("<2Q", page, DATA_OFFSET)
    aux_offset, aux_size = struct.unpack_from("<2Q", page, AUX_OFFSET)
    for what, offset, size in (("data", data_offset, data_size), ("aux", aux_offset, aux_size)):
        if what == "aux" and size == 0:
            continue
        if size & (size - 1) or not PAGE <= size <= MAX_RING:
            raise RingError(f"{name}: {what}_size {size} is no power of two of pages")
        if offset % PAGE or not PAGE <= offset <= MAX_RING:
            raise RingError(f"{name}: {what}_offset {offset} is no page after the first")
    if aux_size and data_offset < aux_offset + aux_size and aux_offset < data_offset + data_size:
        raise RingError(f"{name}: data and AUX area overlap")
    return data_offset, data_size, aux_offset, aux_size
