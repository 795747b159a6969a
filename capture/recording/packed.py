"""Packed files (.zst): unpacked into a temporary file, within limits.

A few bytes can claim to be terabytes. So there are three limits: the size that a packed file may unpack to (`MOST`),
how many times its own size (`RATIO`; real recordings have some 60, see docs/recording.md), and the decompressor's
window.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import zstandard

from jvm.inputfile import map_descriptor, map_input, open_input
from jvm.private import new_file

MOST = 8 << 30  # bytes; also of the packed file
RATIO, FREE = 1000, 64 << 20  # unpacked bytes for a packed one, beyond the first FREE
WINDOW = 1 << 27
MOST_PLAIN = 1 << 42  # bytes of a file that is mapped as it is


def map_file(path: Path, most: int = MOST) -> memoryview:
    """The bytes of a file, mapped; of a .zst file, its unpacked contents, at most `most` bytes. Raises OSError, also
    where a file is not packed right, or too much when unpacked."""
    return _map_packed(path, most) if path.suffix == ".zst" else map_input(path, MOST_PLAIN)


def _map_packed(path: Path, most: int) -> memoryview:
    with os.fdopen(open_input(path, MOST), "rb") as packed, tempfile.TemporaryFile() as file:
        limit = min(most, FREE + RATIO * os.fstat(packed.fileno()).st_size)
        too_much = _error(path, f"more than {limit} bytes when unpacked; if that is right, unpack it with zstd -d")
        unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW)
        try:
            expected = zstandard.frame_content_size(packed.read(18))
            packed.seek(0)
            if expected > limit:
                raise too_much
            for block in unpacker.read_to_iter(packed, write_size=1 << 20):
                if file.tell() + len(block) > limit:
                    raise too_much
                file.write(block)
        except zstandard.ZstdError as error:
            raise _error(path, f"no zstd file: {error}") from error
        if expected not in (-1, file.tell()):
            raise _error(path, f"cut: {file.tell()} of {expected} bytes")
        file.flush()
        return map_descriptor(file.fileno())


def _error(path: Path, text: str) -> OSError:
    return OSError(errno.EINVAL, text, str(path))


def pack_file(path: Path, level: int = 19) -> Path:
    """Packs a file with zstd beside itself (`.zst` appended) and removes it; the new path."""
    packed = path.with_name(path.name + ".zst")
    with path.open("rb") as source, os.fdopen(new_file(packed), "wb") as target:
        zstandard.ZstdCompressor(level=level, write_checksum=True).copy_stream(source, target, path.stat().st_size)
    shutil.copymode(path, packed)
    path.unlink()
    return packed
