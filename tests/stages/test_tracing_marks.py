"""Whether code is being traced behind marks: the kernel against the rule, read forwards."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages import MARK_DTYPE, MarkKind
from stages.segment.stream import is_tracing


def read_forwards(marks: list[tuple[MarkKind, int]], before: bool) -> bool:
    for kind, ip in marks:
        match kind:
            case MarkKind.PSB:
                before = ip != 0  # with a FUP in its PSB+
            case MarkKind.PGE | MarkKind.OVF:
                before = True
            case MarkKind.PGD:
                before = False
    return before


@given(st.lists(st.tuples(st.sampled_from(list(MarkKind)), st.sampled_from([0, 0x1000]))), st.booleans())
@settings(deadline=None)
def test_as_read_forwards(marks: list[tuple[MarkKind, int]], before: bool) -> None:
    rows = np.zeros(len(marks), MARK_DTYPE)
    rows["kind"] = [int(kind) for kind, _ in marks]
    rows["ip"] = [ip for _, ip in marks]
    assert is_tracing(rows, before) == read_forwards(marks, before)
