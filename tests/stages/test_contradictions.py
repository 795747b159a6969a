"""Places where the trace contradicted the code, from made-up breaks; on a real recording in test_reconstruct.py."""

from __future__ import annotations

import numpy as np

from jvm.code.image import CodeImage
from stages.follow.contradictions import OTHER, Contradictions
from stages.follow.walk.state import BREAK_NAMES
from stages.messages import Break, Contradiction
from stages.messages.paths import BREAK_DTYPE
from tests.jvm.exportwriter import Writer

OVERFLOW = 10
LATER = 5000


def image() -> CodeImage:
    made = CodeImage()
    pcs = [(4, [(2, 7), (1, 3)]), (8, [(1, -1)])]
    writer = Writer().method(1, "La/A;", "outer").method(2, "La/B;", "inner")
    writer.nmethod_load(0x1000, bytes(16), 1, pcs, compile_id=12, blob=0xFC0)
    made.feed(writer.dynamic_code(0x2000, "I2C/C2I adapters(0xbaab)@0x2000", bytes(16)).bytes())
    return made


def breaks(*rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """(cause, address) of each, and of the nth n instructions in doubt."""
    out = np.zeros(len(rows), BREAK_DTYPE)
    out["cause"], out["at"] = [r[0] for r in rows], [r[1] for r in rows]
    return out, np.arange(len(rows))


def test_causes_are_those_of_the_walker() -> None:
    names = {n: name for n, name in enumerate(BREAK_NAMES, 1) if n != OVERFLOW}
    assert {int(b): b.name.lower() for b in Break} == names
    assert BREAK_NAMES[OVERFLOW - 1] == "overflow"


def test_a_place_is_named_by_blob_offset_and_bytecode() -> None:
    found = Contradictions()
    found.add(*breaks((1, 0x1002), (2, 0x2008), (1, 0x1002), (OVERFLOW, 0x1002), (1, 0x1004)), image(), LATER)
    found.add(*breaks((1, 0x1002), (5, 0x9000)), image(), LATER)
    assert found.take() == (
        Contradiction(Break.TNT_AT_TIP, "a.A.outer (C2 #12)", 0x1000, 2, "a.B.inner @ 7", 3, 2),
        Contradiction(Break.TNT_AT_TIP, "a.A.outer (C2 #12)", 0x1000, 4, "a.A.outer", 1, 4),
        Contradiction(Break.TIP_AT_TNT, "[stub] I2C/C2I adapters", 0x2000, 8, "", 1, 1),
        Contradiction(Break.OFF_CODE, "[unknown code]", 0, 0x9000, "", 1, 1),
    )
    assert found.take() == ()


def test_addresses_of_the_upper_half() -> None:
    found = Contradictions()
    found.add(*breaks((5, (1 << 64) - 4096)), image(), LATER)
    assert found.take() == (Contradiction(Break.OFF_CODE, "[unknown code]", 0, (1 << 64) - 4096, "", 1),)


def test_beyond_the_limit_only_causes_are_told_apart() -> None:
    found = Contradictions(limit=3)
    found.add(*breaks(*((1 + n % 2, 0x1000 + n) for n in range(10)), (1, 0x1000)), image(), LATER)
    told = found.take()
    assert sum(c.times for c in told) == 11
    named = [c for c in told if c.code != OTHER]
    assert len(named) == 3
    assert {c.cause for c in told if c.code == OTHER} == {Break.TNT_AT_TIP, Break.TIP_AT_TNT}
    assert len(told) == 5
