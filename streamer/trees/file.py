"""The project's own file of a calling-context tree (docs/cct.md).

    8 bytes   MAGIC
    u32       VERSION, little-endian as all that follows
    u32       CRC-32 of all bytes behind this field
    …         one zstd frame: u32 length of a msgpack map, the map, then each column of the rows

The map: `names` (of methods), `rows` (how many), `columns` (their names, in order), `hz` (ticks a second), `host`,
`pid`. A file from elsewhere is not trusted: sizes are limited, and every number is looked at before it is used.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import msgpack
import numpy as np
import zstandard

from stages.cct.merging import united
from stages.cct.tree import COLUMNS, Tree
from stages.messages.trees import TREE_DTYPE

MAGIC = b"JTSCCT\r\n"
VERSION = 1
MOST_PACKED, MOST_PLAIN = 1 << 28, 1 << 30
MOST_NAMES = 1 << 20
MOST_COUNT = 2.0**62
"""Of all nodes together: sums of two counts are numbers of 63 bits, as pprof has them."""
_COLUMNS = tuple(name for name in TREE_DTYPE.names or () if name != "_")
_HEAD = struct.Struct("<II")


class CctFileError(ValueError):
    """The bytes are no such file, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Saved:
    tree: Tree
    hz: float  # ticks a second
    host: str = ""
    pid: int = 0


def packed(saved: Saved) -> bytes:
    rows = saved.tree.nodes
    about = msgpack.packb(
        {"names": list(saved.tree.names), "rows": len(rows), "columns": list(_COLUMNS), "hz": float(saved.hz),
         "host": saved.host, "pid": saved.pid}
    )  # fmt: skip
    plain = b"".join(
        (struct.pack("<I", len(about)), about, *(np.ascontiguousarray(rows[name]).tobytes() for name in _COLUMNS))
    )
    frame = zstandard.ZstdCompressor(level=6).compress(plain)
    return MAGIC + _HEAD.pack(VERSION, zlib.crc32(frame)) + frame


def unpacked(data: bytes, most: int = MOST_PLAIN) -> Saved:
    """`most`: bytes, when it is unpacked. Raises CctFileError."""
    begin = len(MAGIC) + _HEAD.size
    if data[: len(MAGIC)] != MAGIC or len(data) < begin:
        raise CctFileError("not a file of a calling-context tree")
    version, checksum = _HEAD.unpack_from(data, len(MAGIC))
    if version != VERSION:
        raise CctFileError(f"version {version}, of which this one knows only {VERSION}")
    if zlib.crc32(data[begin:]) != checksum:
        raise CctFileError("damaged: the checksum is wrong")
    try:
        size = zstandard.frame_content_size(data[begin:])
        if not 0 <= size <= most:
            raise CctFileError(f"more than {most} bytes when unpacked")
        plain = zstandard.ZstdDecompressor().decompress(data[begin:], max_output_size=size or 1)
        (length,) = struct.unpack_from("<I", plain)
        about = msgpack.unpackb(plain[4 : 4 + length], strict_map_key=True, max_array_len=MOST_NAMES, max_map_len=64)
        names, count, hz = about["names"], about["rows"], about["hz"]
        host, pid = about["host"], about["pid"]
        if about["columns"] != list(_COLUMNS) or type(count) is not int or type(hz) is not float:
            raise CctFileError("damaged: not these columns")
        if not np.isfinite(hz) or hz <= 0:
            raise CctFileError("damaged: no frequency of the clock")
        if type(names) is not list or not all(type(name) is str for name in (*names, host)) or type(pid) is not int:
            raise CctFileError("damaged: names that are none")
        rows = _rows(plain, 4 + length, count, len(names))
    except CctFileError:
        raise
    except (zstandard.ZstdError, struct.error, msgpack.UnpackException, ValueError, LookupError, TypeError) as error:
        raise CctFileError(f"damaged: {error}") from None
    return Saved(united(rows, tuple(names)), hz, host, pid)


def _rows(plain: bytes, at: int, count: int, names: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    if count < 0 or len(plain) - at != count * sum(TREE_DTYPE[name].itemsize for name in _COLUMNS):
        raise CctFileError("damaged: not as many rows as it says")
    rows = np.zeros(count, TREE_DTYPE)
    for name in _COLUMNS:
        rows[name] = np.frombuffer(plain, TREE_DTYPE[name], count, at)
        at += count * TREE_DTYPE[name].itemsize
    parent, method = rows["parent"], rows["method"]
    if bool(((parent < -1) | (parent >= np.arange(count)) | (method < 0) | (method >= names)).any()):
        raise CctFileError("damaged: rows that lead nowhere")
    if any(float(rows[name].astype(np.float64).sum()) >= MOST_COUNT for name in COLUMNS):
        raise CctFileError("damaged: counts that no program reaches")
    return rows
