"""A cycle without a packet that is cut at a PSB: its blocks are told with that end, whatever becomes of the code."""

from __future__ import annotations

import pytest

from jvm.code.image import CodeImage
from stages.follow.numbering import Numbering
from stages.follow.walk import state
from stages.follow.walk.segment_walk import Piece
from stages.messages import ThreadKey
from stages.messages.paths import BlockEnd
from tests.flow.helpers import addresses, breaks, segment
from tests.flow.test_choice import call, laid_out
from tests.flow.test_going_back import _START, flow_over
from tests.pt import ptwriter as w
from tests.pt.machine import BASE

STUB = 0x100
SEEN = w.psb() + w.mode_exec(64)


@pytest.mark.parametrize("seen", [0, 1, 2])
def test_the_code_is_found_to_be_other_behind_it(seen: int) -> None:
    """A call was not bound yet that was read as one of its own method: the way behind the PSB shows it."""
    flow = flow_over(laid_out((0, b"\x90\x90" + call(BASE + 2, BASE)), (STUB, b"\xff\xe0")))
    causes: list[int] = []

    def search(_: ThreadKey, piece: Piece) -> bool:
        causes.append(piece.cause)
        flow.patch(BASE + 2, call(BASE + 2, BASE + STUB))
        piece.settle()
        return True

    flow.search = search
    trace = _START + SEEN + w.fup(BASE + seen) + w.psbend() + w.tip(BASE)
    (out,) = flow.feed(segment(trace))
    assert causes == [state.B_STUCK]
    assert not breaks([out])
    assert addresses([out]) == [*range(BASE, BASE + seen), *range(BASE + seen, BASE + 3), BASE + STUB]
    numbering = Numbering(out.tables, CodeImage(), 1)
    numbering.number(out.tables, out.order, 100)
    told = numbering.take().blocks
    assert told["start"].tolist() == [BASE, BASE + seen]
    assert told["ends"].tolist() == [BlockEnd.LOOP, BlockEnd.INDIRECT]
