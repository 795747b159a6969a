"""Arrays of records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def joined(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """(n,) arrays of one structured dtype, one behind the other, as one; at least one. The result is that of
    `np.concatenate`, but that compares the fields of each part with those of the one before, in Python."""
    if len(parts) == 1:
        return parts[0].copy()
    return np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts]).view(parts[0].dtype)
