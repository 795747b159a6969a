"""Readers that look at the changes of a code image alone know what they would by looking at all of it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.code.changes import Changes
from jvm.code.image import CodeImage
from stages.profile.entries import Entries
from tests.jvm.exportwriter import Writer

PLACES = st.integers(0, 5)
STEPS = st.lists(
    st.tuples(st.sampled_from(["load", "load", "unload", "patch", "forget", "look"]), PLACES, st.integers(0, 30)),
    max_size=30,
)
SIZE = 32


@settings(deadline=None, max_examples=50)
@given(STEPS)
def test_what_came_was_patched_and_has_gone(history: list[tuple[str, int, int]]) -> None:
    image = CodeImage(lateness=0)
    changes, entries = Changes(image), Entries(image)
    known: dict[int, bytes] = {}
    for now, (what, place, size) in enumerate([*history, ("look", 0, 0)], 1):
        address, tsc = 0x1000 + place * SIZE, now * 10
        match what:
            case "load":
                code = bytes([now]) * (SIZE + size)
                image.feed(Writer(tsc).nmethod_load(address, code, now, verified_entry=address + 4).bytes())
            case "unload":
                image.feed(Writer(tsc).nmethod_unload(address, 0).bytes())
            case "patch":
                image.feed(Writer(tsc).code_patch(address + 8, tsc - 5, tsc, bytes([255 - now])).bytes())
            case "forget":
                image.forget_before(tsc - size)
            case _:
                came, patched, kept = changes.look()
                if kept is not None:
                    known = {id_: code for id_, code in known.items() if id_ in kept}
                known |= {v.id: image.code(v).tobytes() for v in (*came, *patched)}
                assert known == {v.id: image.code(v).tobytes() for v in image.versions()}
                anew = Entries(image)
                at = np.arange(0x1000, 0x1000 + 8 * SIZE, 4, dtype=np.uint64)
                for then in range(0, tsc + 10, 5):
                    assert entries.verified(then).tolist() == anew.verified(then).tolist()
                    for one, other in zip(entries.at(then, at), anew.at(then, at), strict=True):
                        assert one.tolist() == other.tolist()
