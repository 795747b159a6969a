"""The fillings of a `Recovered`, by thread and pane, as they would have been counted if they had been observed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.messages import Recovered
from stages.messages.paths import Provenance
from stages.paths.counts import WAYS, Executed
from stages.paths.dictionary import Dictionary, spans
from stages.paths.groups import GROUP_DTYPE


def filled(
    message: Recovered, pane_ticks: int, d: Dictionary, provenance: Provenance = Provenance.RECOVERED
) -> tuple[NDArray[np.void], Executed]:
    """The distinct (pane, thread) of the holes that were filled so, and the execution in them. A hole belongs to the
    pane in which it begins."""
    those = message.fillings["provenance"] == provenance
    fillings = message.fillings[those & (message.fillings["step_end"] > message.fillings["step"])]
    keys = np.zeros(len(fillings), GROUP_DTYPE)
    keys["pane"], keys["tid"] = fillings["tsc"] // np.uint64(pane_ticks), fillings["tid"]
    groups, group = np.unique(keys, return_inverse=True)
    lengths = fillings["step_end"] - fillings["step"]
    where, hole = spans(fillings["step"], lengths)
    step = message.steps[where].astype(np.int64)
    instructions = d.blocks.rows["instructions"][step // WAYS].astype(np.float64)
    lasted = np.maximum(fillings["tsc_end"].astype(np.int64) - fillings["tsc"].astype(np.int64), 0)
    total = np.bincount(hole, instructions, len(fillings))
    spent = (lasted / np.maximum(total, 1))[hole] * instructions
    key, where = np.unique(group[hole].astype(np.int64) << 32 | step, return_inverse=True)
    step = key & 0xFFFFFFFF
    return groups, Executed(
        (key >> 32).astype(np.int32), step // WAYS, (step % WAYS).astype(np.int32),
        np.bincount(where, minlength=len(key)).astype(np.int64), np.bincount(where, spent, len(key)).astype(np.float64),
    )  # fmt: skip
