"""The counts of one pane, by site and thread."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

COLUMNS = ("hits", "instructions", "invocations", "ticks", "untold", "uncounted", "bytecodes")
ROW_DTYPE = np.dtype([("site", "<i4"), ("tid", "<i4"), *((name, "<u8") for name in COLUMNS)])
Rows = NDArray[np.void]  # ROW_DTYPE

_SUM_ROWS = 1 << 16


@dataclass(slots=True)
class Pane:
    rows: list[Rows] = field(default_factory=list)
    count: int = 0

    def add(self, rows: Rows) -> None:
        self.rows.append(rows)
        self.count += len(rows)
        if self.count > _SUM_ROWS and len(self.rows) > 1:
            self.rows = [self.sum()]
            self.count = len(self.rows[0])

    def sum(self) -> Rows:
        """One row a (site, thread)."""
        # np.concatenate compares the fields of each two arrays, in Python
        every = np.frombuffer(b"".join(rows.tobytes() for rows in self.rows), ROW_DTYPE)
        keys, where = np.unique(
            every["site"].astype(np.int64) << 32 | every["tid"].astype(np.uint32).astype(np.int64), return_inverse=True
        )
        out = np.zeros(len(keys), ROW_DTYPE)
        out["site"], out["tid"] = keys >> 32, (keys & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
        for column in COLUMNS:
            np.add.at(out[column], where, every[column])
        return out
