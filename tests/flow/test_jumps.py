"""Where the indirect jumps of stubs lead."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jvm.code.image import CodeImage
from jvm.code.known import Extent
from jvm.code.version import Kind
from stages.follow.code.jumps import ANYWHERE, EITHER, INTO_COMPILED, NO_JUMPS, UPDATES_CALL, Jumps, OfImage
from stages.follow.walk import state
from tests.flow.helpers import addresses, breaks, segment
from tests.flow.test_choice import call, chosen, laid_out, patches
from tests.flow.test_going_back import _START, flow_over
from tests.jvm.exportwriter import Writer
from tests.pt import ptwriter as w
from tests.pt.machine import BASE

R11, RCX, TABLE = b"\x41\xff\xe3", b"\xff\xe1", b"\xff\x63\x40"  # jmp r11; jmp rcx; jmp [rbx + 0x40]
INTERPRETER = BASE + 0x200
DOOR = BASE + 0x80


def test_the_stubs_of_an_image() -> None:
    image = CodeImage()
    written = Writer().dynamic_code(0x3000, "Shared Runtime wrong_method_blob", bytes(32))
    written.dynamic_code(0x1000, "resolve_static_call", bytes(64)).dynamic_code(0x2000, "x", b"a")
    written.dynamic_code(0x4000, "I2C/C2I adapters(0xbabebabe)@0x12", bytes(32)).dynamic_code(
        0x5000, "vtable stub", b"ab"
    )
    written.blob(0x4000, "I2C/C2I adapters", bytes(48)).interpreter(0x8000, bytes(256))
    written.method(1, "LA;", "f", "()V").nmethod_load(0x6000, bytes(64), 1, entry=0x6000, verified_entry=0x6020)
    image.feed(written.bytes())
    jumps = OfImage(image).now()
    assert jumps.ranges.tolist() == [
        [0x1000, 0x1040, UPDATES_CALL],
        [0x3000, 0x3020, UPDATES_CALL],
        [0x4000, 0x4020, EITHER],
        [0x5000, 0x5002, INTO_COMPILED],
    ]
    assert jumps.interpreter.tolist() == [0x8000, 0x8100]
    assert jumps.entries.tolist() == [0x6000, 0x6020]
    assert OfImage(CodeImage()).now().ranges.shape == (0, 3)


class _Version(NamedTuple):
    id: int
    kind: Kind
    name: str
    start: int
    end: int
    entry: int
    verified_entry: int


class _Image:
    """Of versions only."""

    def __init__(self) -> None:
        self.there: list[_Version] = []
        self.dropped = 0

    def versions(self) -> list[_Version]:
        return self.there

    def changed_since(self, then: Extent) -> tuple[list[_Version], list[_Version], Extent]:
        came = [v for v in self.there if v.id > then.last]
        return came, [], Extent(max([then.last, *(v.id for v in came)]), self.dropped)


KINDS = (
    (Kind.NMETHOD, "a method"), (Kind.INTERPRETER, "Interpreter"), (Kind.DYNAMIC, "vtable stub"),
    (Kind.DYNAMIC, "another stub"), (Kind.BLOB, "I2C/C2I adapters"),
)  # fmt: skip
VERSIONS = st.tuples(st.sampled_from(KINDS), st.integers(1, 60), st.integers(1, 8))


@given(st.lists(st.tuples(st.lists(VERSIONS, max_size=4), st.sets(st.integers(0, 12))), max_size=6))
def test_what_came_and_went_is_all_that_changes(turns: list[tuple[list[Any], set[int]]]) -> None:
    """As if the image was looked at for the first time."""
    image = _Image()
    known = OfImage(image)  # type: ignore[arg-type]
    count = 0
    for come, go in turns:
        stay = [v for n, v in enumerate(image.there) if n not in go]
        image.dropped, image.there = image.dropped + len(image.there) - len(stay), stay
        for (kind, name), start, size in come:
            count += 1
            image.there.append(_Version(count, kind, name, start, start + size, start, start + size // 2))
        anew = OfImage(image).now()  # type: ignore[arg-type]
        for now, expected in zip(known.now(), anew, strict=True):
            assert np.array_equal(now, expected)
        nmethods = [v for v in image.there if v.kind == Kind.NMETHOD]
        assert set(anew.entries.tolist()) == {at for v in nmethods for at in (v.entry, v.verified_entry)}


def jumps(what: np.int64, interpreter: tuple[int, int] = (INTERPRETER, INTERPRETER + 0x40)) -> Jumps:
    ranges = np.array([(BASE + 0x100, BASE + 0x120, what)], np.int64)
    return Jumps(ranges, np.array(interpreter, np.int64), np.array([DOOR]))


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    ("jump", "known", "into_interpreter", "right"),
    [
        (R11, jumps(EITHER), False, True),
        (R11, jumps(EITHER), True, False),
        (RCX, jumps(EITHER), False, False),
        (RCX, jumps(EITHER), True, True),
        (TABLE, jumps(INTO_COMPILED), False, True),
        (TABLE, jumps(INTO_COMPILED), True, False),
        (TABLE, jumps(UPDATES_CALL), True, True),
        (TABLE, jumps(ANYWHERE), True, True),
        (RCX, jumps(EITHER, (0, 0)), False, True),
        (b"\xff\xd1", jumps(EITHER), False, True),  # a call
        (RCX, NO_JUMPS, False, True),
    ],
)
def test_a_jump_that_leads_where_it_never_does(
    jump: bytes, known: Jumps, into_interpreter: bool, right: bool, long: bool
) -> None:
    """In the fast part of the walker and in the exact one."""
    target = INTERPRETER + 8 if into_interpreter else BASE + 0x40
    code = laid_out((0, call(BASE, BASE + 0x100)), (0x40, b"\xff\xe0"), (0x100, jump), (0x208, b"\xff\xe0"))
    trace = _START + (w.tip(target) + w.tip(BASE)) * 3 + w.tip(target) + w.pad() * (48 if long else 0)
    flow = flow_over(code)
    flow.jumps = known
    outputs = flow.feed(segment(trace))
    assert breaks(outputs) == ([] if right else [state.B_WRONG_TARGET] * 4)
    assert addresses(outputs)[0] == (BASE if right else target)


def test_jumps_are_told_anew() -> None:
    code = laid_out((0, call(BASE, BASE + 0x100)), (0x40, b"\xff\xe0"), (0x100, RCX))
    trace = _START + w.tip(BASE + 0x40) + w.tip(BASE) + w.tip(BASE + 0x40)
    flow = flow_over(code)
    for known, wrong in ((NO_JUMPS, 0), (jumps(EITHER, (0, 0)), 0), (jumps(EITHER), 2), (NO_JUMPS, 0)):
        flow.jumps = known
        assert breaks(flow.feed(segment(trace))) == [state.B_WRONG_TARGET] * wrong


def test_a_search_knows_it_too() -> None:
    """Of two adapters that the call may lead to, one to the interpreter and one to compiled code, it is the latter."""
    loop = (0, call(BASE, BASE + 0x180)), (5, b"\x75\xf9"), (0x100, RCX), (0x110, R11), (0x40, b"\x75\xbe\xc3")
    code = laid_out(*loop, (0x180, b"\x75\xfe"))
    known = patches((BASE + 0x300, b"\x90", b"\x91", 1, 2))
    known = known._replace(resolved=np.array([BASE, BASE]), branch=np.array([[BASE + k, 0] for k in (0x100, 0x110)]))
    trace = (w.tip(BASE + 0x40) + w.tnt8("!")) * 20
    for at in (0x100, 0x110):
        guess = chosen(code, trace, known)
        assert guess is not None
        assert guess[0].code == call(BASE, BASE + at)
        ranges, interpreter, entries = jumps(EITHER)
        known = known._replace(jump=ranges.reshape(-1), interpreter=interpreter, method_entries=entries)


@pytest.mark.parametrize(
    ("to", "known", "right"),
    [
        (DOOR, jumps(ANYWHERE), False),
        (DOOR + 1, jumps(ANYWHERE), True),
        (DOOR - 1, jumps(ANYWHERE), True),
        (INTERPRETER, jumps(ANYWHERE), True),
        (DOOR, NO_JUMPS, True),
    ],
)
def test_a_return_leads_to_no_entry(to: int, known: Jumps, right: bool) -> None:
    code = laid_out((0, call(BASE, BASE + 0x40)), (0x40, b"\xc3"), (to - BASE, b"\xff\xe0"))
    flow = flow_over(code)
    flow.jumps = known
    outputs = flow.feed(segment(_START + (w.tip(to) + w.tip(BASE)) * 3))
    assert breaks(outputs) == ([] if right else [state.B_WRONG_TARGET] * 3)
    parts = (0x40, b"\xc3"), (0x60, b"\xff\xe0"), (0x180, b"\x75\xfe"), (to - BASE, b"\xff\xe0")
    fits = patches((BASE + 0x300, b"\x90", b"\x91", 1, 2))
    fits = fits._replace(jump=known.ranges.reshape(-1), interpreter=known.interpreter, method_entries=known.entries)
    fits = fits._replace(resolved=np.array([BASE, BASE]), branch=np.array([[BASE + k, 0] for k in (0x40, 0x60)]))
    choice = chosen(laid_out((0, call(BASE, BASE + 0x180)), *parts), (w.tip(to) + w.tip(BASE)) * 20, fits)
    assert choice is not None
    assert choice[0].code == call(BASE, BASE + (0x40 if right else 0x60))
