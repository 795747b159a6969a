"""How the kernels here are compiled: cached on disk, without the GIL.

`inner` is for those that only other kernels call. They get no entry from Python, which is a third of the time that
compiling a small kernel takes.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_NO_ENTRY: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

kernel = njit(cache=True, nogil=True)
inner = njit(cache=True, nogil=True, **_NO_ENTRY)
