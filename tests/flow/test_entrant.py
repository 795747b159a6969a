"""Versions of a method that follow one another, and the calls that led to them."""

from __future__ import annotations

import pytest

from jvm.calls.call_sites import CALL, JMP
from jvm.code.image import CodeImage
from stages.follow.code.jumps import OfImage
from stages.follow.flow import Flow
from stages.follow.repair.repair import Repair
from stages.follow.walk import path_sequence as orders
from stages.messages import PtConfig
from tests.flow.helpers import segment
from tests.flow.test_bindings import SITE, STUBS
from tests.flow.test_callees import CALLEE, CALLER, caller, written
from tests.flow.test_choice import call
from tests.jvm.exportwriter import Writer
from tests.pt import ptwriter as w

OLD, NEW = CALLEE, CALLEE + 0x4000  # of B.work()V
RESOLVER, REFUSAL = STUBS["resolve_static_call"], STUBS["wrong_method"]
ENTRY = 0x20
BACK = SITE + 5
SLACK = 1000  # ticks; 20 of them behind the time of the code image it is certain


def image_of(site: int, body: bytes, newer: int = 3000) -> CodeImage:
    """A.main's call leads to `site`, and behind it is JMP RAX; both versions have `body` behind their entry."""
    image = CodeImage()
    for name, at in STUBS.items():
        image.feed(Writer(tsc=10).dynamic_code(at, name, b"\xff\xe0".ljust(32, b"\x90")).bytes())
    image.feed(written("invokestatic").bytes())
    code = bytearray(caller(to=site))
    code[0x25:0x27] = b"\xff\xe0"
    image.feed(Writer(tsc=900).nmethod_load(CALLER, bytes(code), 1, [(0x25, [(1, 0)])], level=3).bytes())
    method = (b"\x90" * ENTRY + body).ljust(64, b"\x90")
    for tsc, at in ((910, OLD), (newer, NEW)):
        told = Writer(tsc=tsc).nmethod_load(at, method, 2, entry=at, verified_entry=at + ENTRY)
        image.feed(told.bytes())
    return image


class Walk:
    def __init__(self, image: CodeImage) -> None:
        self.image, self.flow = image, Flow(PtConfig())
        self.repair = Repair(self.flow, image, SLACK)
        self._offset = 0

    def __call__(self, trace: bytes, tsc: int) -> list[int]:
        """The addresses that ran in a piece from the call on, written about `tsc`."""
        self.flow.set_code(self.image.view(tsc))
        self.flow.jumps = OfImage(self.image).now()
        start = w.psb() + w.mode_exec(64) + w.fup(SITE) + w.psbend()
        piece = segment(start + trace, tsc=(tsc, tsc + 10), offset=self._offset)
        self._offset += len(start + trace)
        self.repair.begin(piece)
        outputs = self.flow.feed(piece)
        assert not any(len(out.breaks) for out in outputs)
        return [int(ip) for out in outputs for ip in orders.addresses(out.tables, out.order)]


def test_no_walk_goes_through_the_entry_of_what_is_not_entrant() -> None:
    """Both versions run alike, and nothing was read since: only that the old one cannot be entered tells."""
    walk = Walk(image_of(OLD + ENTRY, b"\xc3"))
    again = (w.tnt8("!") + w.tip(SITE)) * 20
    for tsc in (2000, 3010):  # as late as that it may be entered yet, for all that is known
        assert walk(again, tsc) == [SITE, OLD + ENTRY, BACK] * 20
    assert walk.repair.counts["shut"] == 0
    assert walk(again, 3030) == [SITE, NEW + ENTRY, BACK] * 20
    assert (walk.repair.counts["shut"], walk.repair.counts["searches"]) == (1, 1)
    assert walk.flow.bytes_at(OLD + ENTRY, 5) == call(OLD + ENTRY, REFUSAL, JMP)
    assert walk.flow.bytes_at(SITE, 5) == call(SITE, NEW + ENTRY, CALL)


def test_what_is_refused_goes_to_the_refusal() -> None:
    """The call was not bound anew yet: the jump at the entry leads to the stub that unbinds it."""
    walk = Walk(image_of(OLD + ENTRY, b"\xc3"))
    trace = w.tip(NEW + ENTRY) + w.tnt8("!") + w.tip(SITE) + w.tip(NEW + ENTRY) + w.tnt8("!") + w.tip(SITE)
    ran = [SITE, OLD + ENTRY, REFUSAL, NEW + ENTRY, BACK, SITE, RESOLVER, NEW + ENTRY, BACK]
    again = (w.tnt8("!") + w.tip(SITE)) * 2
    assert walk(trace + again, 3030) == ran + [SITE, NEW + ENTRY, BACK] * 2
    assert walk.repair.counts["searches"] == 0


@pytest.mark.parametrize("read", [True, False])
def test_a_call_that_is_found_unbound_again_is_not_taken_as_still_bound(read: bool) -> None:
    """It led to a resolver when it was read first; the trace bound it; all code was read once more, and it led to the
    resolver. The old version's body runs like the resolver."""
    walk = Walk(image_of(RESOLVER, b"\xff\xe0", newer=5000))
    first = w.tip(OLD + ENTRY) + w.tip(SITE) + w.tip(SITE)
    assert walk(first, 2000) == [SITE, RESOLVER, OLD + ENTRY, SITE, OLD + ENTRY]
    if read:
        walk.image.feed(Writer(tsc=4010).code_patch(0, 4000, 4010, b"").bytes())
    ran = walk(w.tip(NEW + ENTRY) + w.tip(SITE) + w.tip(SITE), 4900)
    assert ran == [SITE, RESOLVER if read else OLD + ENTRY, NEW + ENTRY, SITE, NEW + ENTRY if read else OLD + ENTRY]
    assert walk.repair.counts["restored"] == read


def test_what_was_bound_since_all_code_was_read_stays() -> None:
    walk = Walk(image_of(RESOLVER, b"\xff\xe0"))
    walk.image.feed(Writer(tsc=2000).code_patch(0, 1999, 2000, b"").bytes())
    for tsc in (2000, 2900):
        walk(w.tip(OLD + ENTRY) + w.tip(SITE), tsc)
    assert walk.flow.bytes_at(SITE, 5) == call(SITE, OLD + ENTRY, CALL)
    assert walk.repair.counts["restored"] == 0


def test_a_version_that_comes_back_at_its_place_is_entrant() -> None:
    walk = Walk(image_of(OLD + ENTRY, b"\xc3"))
    again = (w.tnt8("!") + w.tip(SITE)) * 20
    walk(again, 3030)
    method = (b"\x90" * ENTRY + b"\x90\xc3").ljust(64, b"\x90")
    told = Writer(tsc=6000).nmethod_load(OLD, method, 2, entry=OLD, verified_entry=OLD + ENTRY, compile_id=77)
    told.code_patch(SITE, 5990, 6010, call(SITE, OLD + ENTRY, CALL))
    walk.image.feed(told.bytes())
    assert walk(again, 6500) == [SITE, OLD + ENTRY, OLD + ENTRY + 1, BACK] * 20
    assert walk.repair.counts["shut"] == 2  # and the other one is not, since
