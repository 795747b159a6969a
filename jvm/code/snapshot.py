"""The code of a process as flat arrays, the form in which numba kernels read it.

A view is immutable: when code changes, `jvm.code.image` makes another with a higher `epoch`. Blobs are sorted by
address and disjoint (the code image evicts versions that a new load overlaps).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class CodeView(NamedTuple):
    epoch: int
    start: NDArray[np.uint64]  # (n,) first address of each blob, ascending
    end: NDArray[np.uint64]  # (n,) one past its last address
    data_at: NDArray[np.int64]  # (n,) where its bytes begin in `code`
    blob: NDArray[np.int32]  # (n,) the blob's id, stable over epochs
    code: NDArray[np.uint8]  # all bytes, blob after blob

    @classmethod
    def of(cls, blobs: list[tuple[int, bytes]], epoch: int = 0) -> CodeView:
        """From (address, bytes) pairs, disjoint, in any order; ids are positions in the argument."""
        order = sorted(range(len(blobs)), key=lambda i: blobs[i][0])
        start = np.array([blobs[i][0] for i in order], dtype=np.uint64)
        size = np.array([len(blobs[i][1]) for i in order], dtype=np.int64)
        end = start + size.astype(np.uint64)
        if len(start) and bool((start[1:] < end[:-1]).any()):
            raise ValueError("code blobs overlap")
        data_at = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))[:-1].astype(np.int64)
        code = np.frombuffer(b"".join(blobs[i][1] for i in order), dtype=np.uint8).copy()
        return cls(epoch, start, end, data_at, np.array(order, dtype=np.int32), code)
