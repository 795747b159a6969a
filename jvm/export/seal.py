"""Checksums of the records in an export file: damage there is found and told, and reaches no further than it is.

In the agent's ring a record's last header word is 0: a checksum made there would have to load code that may vanish
(SIGSEGV, in the JVM). The process that spools the ring seals the records: the word becomes the CRC-32 (zlib's) of all
their other bytes. PADs, which only fill a ring up to its end, are left out. So in a file everything is covered, and
after damage the next record is found again: it is where a plausible header's checksum is right.

Other files that capture keeps for its successor are made of the same records, with types of their own (`record`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from jvm.export.parse import octets, whole_records
from jvm.export.records import ALIGNMENT, HEADER, PAD, Buffer, ExportError, RecordType

_CHECKSUM = 20  # offset of the word in the header
_WINDOW = 1 << 20  # bytes looked through for headers at once
_MAX_TYPE = 255  # of a record that is believed in damaged surroundings: room for types of newer versions
_MAX_FLAGS = 0xFF
_MOST = 1000  # spans of a buffer; after so many the rest is damage


class Span(NamedTuple):
    """A run of bytes: whole records, or with `fault` none. `cut`: nothing follows, as where a writer died."""

    start: int
    end: int
    fault: str = ""
    cut: bool = False

    def told(self, base: int = 0) -> str:
        """One line on the damage, `base` being the file offset from which the offsets count."""
        return f"{self.fault}: {self.end - self.start} bytes are damaged from byte {base + self.start} on"


def sealed(records: Buffer) -> bytearray:
    """Whole records with their checksums, without PADs. Raises ExportError where they are none."""
    view = octets(records)
    out = bytearray()
    at, end = 0, len(view)
    if whole_records(view) != end:
        raise ExportError("a record is cut", whole_records(view))
    while at < end:
        size, kind = struct.unpack_from("<IH", view, at)
        if kind != PAD:
            out += view[at : at + size]
            struct.pack_into("<I", out, len(out) - size + _CHECKSUM, _checksum(view, at, size))
        at += size
    return out


def spans(buffer: Buffer, checked: bool = True) -> list[Span]:
    """All of `buffer` in order, whole records and damage by turns. `checked`: the records are sealed; of unsealed
    records only the sizes tell damage, and where the next one begins after it is not known.

    Its cost has a limit for any bytes: some passes over them."""
    view = octets(buffer)
    found: list[Span] = []
    budget = 4 * len(view) + _WINDOW  # bytes to be summed in search of a record
    at, end = 0, len(view)
    while at < end:
        start = at
        fault = ""
        while at < end and not fault:
            size, fault = _record(view, at, checked)
            at += size
        if at > start:
            found.append(Span(start, at))
        if fault:
            start = at
            at, budget = _next(view, start + ALIGNMENT, budget) if checked and len(found) < _MOST else (end, budget)
            found.append(Span(start, at, fault, cut=at == end and fault == _CUT))
    return found


_CUT = "a record is cut"


def _record(view: memoryview, at: int, checked: bool) -> tuple[int, str]:
    """Size of the record at `at`, or 0 and the fault."""
    left = len(view) - at
    if left < HEADER.size and (checked or left < ALIGNMENT):
        return 0, _CUT
    size, kind = struct.unpack_from("<IH", view, at)
    if size % ALIGNMENT or size < (ALIGNMENT if kind == PAD and not checked else HEADER.size):
        return 0, f"a record cannot have the size {size}"
    if size > left:
        return 0, _CUT
    if checked and _stored(view, at) != _checksum(view, at, size):
        return 0, "the checksum of a record is wrong"
    return size, ""


def _next(view: memoryview, at: int, budget: int) -> tuple[int, int]:
    """Where the next whole record begins, else the end of `view`; and the rest of the budget."""
    end = len(view)
    while end - at >= HEADER.size and budget > 0:
        words = np.frombuffer(view[at : at + (min(_WINDOW, end - at) & -ALIGNMENT)], "<u8")
        size, kind, flags = words & 0xFFFFFFFF, words >> 32 & 0xFFFF, words >> 48
        left = end - at - ALIGNMENT * np.arange(len(words))
        good = (size % ALIGNMENT == 0) & (size >= HEADER.size) & (size <= left)
        good &= (kind != PAD) & (kind <= _MAX_TYPE) & (flags <= _MAX_FLAGS)
        for candidate in np.flatnonzero(good).tolist():
            length = int(size[candidate])
            budget -= length
            if budget <= 0:
                break
            if not _record(view, at + ALIGNMENT * candidate, True)[1]:
                return at + ALIGNMENT * candidate, budget
        at += words.nbytes
    return end, budget


def _checksum(view: memoryview, at: int, size: int) -> int:
    return zlib.crc32(view[at + HEADER.size : at + size], zlib.crc32(view[at : at + _CHECKSUM]))


def _stored(view: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", view, at + _CHECKSUM)[0])


def lost(records: int, size: int) -> bytes:
    """The record (OVERFLOW) that stands for damage: from here on it is known that something was not told."""
    return record(RecordType.OVERFLOW, 0, struct.pack("<QQ", records, size))


def record(kind: int, value: int, body: bytes) -> bytes:
    """One sealed record; `value` stands where records of the export have their time, `body` is a multiple of 8 bytes.
    `kind` is not 0. Raises ExportError."""
    return bytes(sealed(HEADER.pack(HEADER.size + len(body), kind, 0, value, 0, 0) + body))


def values(whole: Buffer) -> Iterator[tuple[int, memoryview]]:
    """(value, body) of each of the whole records in a span without a fault."""
    view = octets(whole)
    at = 0
    while at < len(view):
        size, _, _, value, _, _ = HEADER.unpack_from(view, at)
        yield value, view[at + HEADER.size : at + size]
        at += size
