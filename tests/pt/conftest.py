from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def wrapping_arithmetic() -> Iterator[None]:
    """Kernels count modulo 2^64 as the machine does; run as Python (NUMBA_DISABLE_JIT=1) numpy would warn of it."""
    with np.errstate(over="ignore"):
        yield
