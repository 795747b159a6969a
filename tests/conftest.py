"""With NUMBA_DISABLE_JIT=1 kernels run as plain Python, where coverage and a debugger can look into them."""

from __future__ import annotations

import numpy as np
from numba.core import config

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    np.seterr(over="ignore")  # hashes wrap around, as in compiled code
