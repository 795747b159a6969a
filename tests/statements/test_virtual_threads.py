"""Virtual threads in a listing of control flow: where one leaves its frames, and where it goes on in them."""

from __future__ import annotations

import numpy as np

from stages.messages import Bytecodes
from stages.messages.bytecodes import EVENT_DTYPE, KNOWN_DTYPE, METHOD_DTYPE, FrameEvent
from stages.messages.paths import DISABLED, BlockEnd
from streamer.statements.listing import Listing
from tests.cct.made import SPACING, Block, Dictionaries, Range

TID = 7


def test_frames_that_are_left_and_gone_on_in_have_one_number() -> None:
    """Between two blocks, in the order in which they come; the bytecodes behind the mount stand behind it."""
    d = Dictionaries()
    some = [Block((Range(SPACING + at, SPACING + at + 1, False, ()),), BlockEnd.INDIRECT) for at in range(2)]
    order = [d.path(some), DISABLED, d.path(some)]
    message = d.message(TID, order, (0, 9), True)
    events = np.zeros(3, EVENT_DTYPE)
    events["kind"] = FrameEvent.ENTER, FrameEvent.UNMOUNT, FrameEvent.MOUNT
    events["order"], events["block"] = (0, 0, 2), (0, 1, 1)
    events["method"], events["bci"], events["bytecodes"] = (0, -1, -1), (-1, 5, 4), (2, 0, 1)
    none = np.zeros(0, METHOD_DTYPE), np.zeros(0, KNOWN_DTYPE)
    bcis = np.array([0, 3, 6], np.uint16)
    said = Bytecodes("h", 42, message.generation, message.first_path, 3, *none, events, ((0, "A.a"),), bcis=bcis)
    listing = Listing(1.0, frozenset())
    assert list(listing.take(said)) == []
    assert [(line.kind, line.text) for line in listing.take(message)] == [
        ("I", "A.a 0 3"), ("--", "unmount 5"), ("--", "off"), ("--", "mount 4"), ("I", "A.a 6"),
    ]  # fmt: skip
