"""Has numba compile the kernels of `stages.statements`."""

from __future__ import annotations

import numpy as np


def compile_statements() -> None:
    """By a method without code, of which nothing ran."""
    from stages.messages.bytecodes import EVENT_DTYPE, FrameEvent
    from stages.statements.coverage import conclude, dominators
    from stages.statements.interpreted import Counted, Interpreted
    from stages.statements.methods import Known

    interpreted, thread = Interpreted(Known()), np.full(1, 1, np.int32)
    events = np.zeros(1, EVENT_DTYPE)
    events["kind"], events["method"] = FrameEvent.ENTER, -1
    interpreted.take(events, np.zeros(0, np.uint16), thread, Counted())
    interpreted.forget(1)
    nothing = np.full(1, -1, np.int64)
    dominators(np.zeros(2, np.int64), nothing[:0])
    conclude(np.zeros(1, np.bool_), nothing, nothing)
