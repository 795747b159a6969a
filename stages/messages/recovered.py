"""Control flow in place of holes: copied from another time at which a thread came the same way, or guessed.

A `Recovered` speaks of the generation of the `Paths` before it. Observed control flow is in `Paths` and nowhere else:
a reader that wants observed only leaves these messages out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FILLING_DTYPE = np.dtype(
    [("tid", "<i4"), ("cause", "<i4"), ("provenance", "<i4"), ("before", "<i4"), ("behind", "<i4"), ("counted", "<i4"),
     ("offset", "<u8"), ("tsc", "<u8"), ("tsc_end", "<u8"), ("expected", "<i8"), ("step", "<i8"), ("step_end", "<i8")]
)  # fmt: skip
"""A hole in a thread's control flow, and its filling: thread, why (`Loss`), `Provenance` (0: it stays empty); so many
steps before the hole, and behind it, are those around the filling's source; where the thread's trace goes on in its
stream; the hole's time; how large its trace was expected to be (`stages.recover.trace_size`), and whether that is known
from the bytes that were lost (else: from the time); the filling's part of `steps`."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The holes of a process's threads that a release tells of, each once."""

    host: str
    pid: int
    generation: int
    fillings: NDArray[np.void] = field(metadata={"dtype": FILLING_DTYPE})
    steps: NDArray[np.int32]  # WAYS · block + way, in the order in which they are taken to have run
