"""Versions that have ended, and those that stand: kept up to date, against a look at all versions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.code.ended import Ended
from jvm.code.image import CodeImage
from jvm.code.sites import SiteKind
from jvm.code.version import FOREVER, Kind, Version
from tests.jvm.exportwriter import Writer

STEPS = st.lists(
    st.tuples(st.sampled_from(("end", "end", "drop", "ask")), *[st.integers(0, 30)] * 3), min_size=1, max_size=120
)


@given(STEPS)
def test_the_last_end_at_a_place(steps: list[tuple[str, int, int, int]]) -> None:
    ended, versions = Ended(), dict[int, Version]()
    for step, a, size, tsc in steps:
        if step == "end":
            id_ = a + 31 * (size % 5)
            v = versions.setdefault(id_, Version(id_, Kind.NMETHOD, a, a + size + 1, "x", 0, 0))
            v.until = tsc
            ended.add(v)
        elif step == "drop":
            versions.pop(a, None)
            ended.drop(a)
        else:
            there = [v.until for v in versions.values() if v.start < a + size and v.end > a and v.until <= tsc]
            assert ended.before(tsc, a, a + size) == max(there, default=0)
        assert len(ended) == len(versions)


def stands(code: CodeImage) -> float:
    """How finely all compiled code that stands is described."""
    known = [
        (v.debug.detail, v.end - v.start)
        for v in code.versions()
        if v.debug is not None and v.until == FOREVER and v.site_kind in (SiteKind.C1, SiteKind.C2)
    ]
    return sum(d * n for d, n in known) / sum(n for _, n in known) if known else 0.0


LOADS = st.lists(
    st.tuples(
        st.sampled_from(("load", "load", "load", "unload", "blob", "forget", "replay")), st.integers(0, 12),
        st.integers(1, 300), st.integers(0, 4), st.lists(st.integers(1, 300), max_size=6),
    ),
    max_size=40,
)  # fmt: skip


@given(LOADS)
@settings(deadline=None)
def test_the_detail_of_the_code_that_stands(loads: list[tuple[str, int, int, int, list[int]]]) -> None:
    code = CodeImage(lateness=100)
    writer = Writer().method(1, "La/B;", "outer")
    for n, (step, at, size, level, pcs) in enumerate(loads):
        address = 0x1000 + 64 * at
        if step == "load":
            writer.nmethod_load(address, bytes(size), 1, [(pc, [(1, 0)]) for pc in pcs], level=level, compile_id=n + 1)
        elif step == "unload":
            writer.nmethod_unload(address, 1)
        elif step == "blob":
            writer.blob(address, "stub", bytes(size))
        elif step == "replay":
            writer.replay_begin(n).replay_end(n)
        code.feed(writer.bytes())
        writer = Writer(tsc=2000 + 100 * n)
        if step == "forget":
            code.forget_before(1900 + 100 * n)
        assert code.statistics()["code_detail"] == pytest.approx(stands(code), rel=1e-9)
    assert code.statistics()["code_detail"] == 0 or any(v.until == FOREVER for v in code.versions())
