"""The kernels that look through an nmethod's pcs, against plain Python."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.code.debug_info import DebugInfo
from jvm.code.inner_methods import FINE, fine_bytes
from jvm.export.parse import iter_records
from jvm.export.records import NmethodLoad
from tests.jvm.exportwriter import Writer

METHODS = st.integers(0, 6) | st.integers(0, (1 << 32) - 1)


@given(st.lists(st.integers(0, 400), max_size=20), st.booleans())
@settings(deadline=None)
def test_bytes_that_are_described_finely(pcs: list[int], ascending: bool) -> None:
    pcs = sorted(pcs) if ascending else pcs
    runs = [b - a for a, b in zip([0, *pcs], pcs, strict=False)]
    expected = sum(run for run in runs if run <= FINE) if pcs == sorted(pcs) else -1
    assert fine_bytes(np.array(pcs, np.uint32)) == expected


@given(st.lists(st.lists(METHODS, max_size=3), max_size=40), METHODS)
@settings(deadline=None)
def test_innermost_methods_each_once(stacks: list[list[int]], own: int) -> None:
    pcs = [(4 * n + 4, [(m, 0) for m in stack]) for n, stack in enumerate(stacks)]
    (load,) = iter_records(Writer().nmethod_load(0x1000, bytes(200), own, pcs).bytes())
    assert isinstance(load, NmethodLoad)
    debug = DebugInfo.of(load)
    inner = [stack[0] if stack else own for stack in stacks]
    methods, which = debug.distinct_inner_methods()
    assert methods == sorted(set(inner))
    assert [methods[k] for k in which.tolist()] == inner == debug.inner_methods().tolist()
