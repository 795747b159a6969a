"""Calls of the VM: they lead where the address says that was loaded, and tracing comes back to the code that called."""

from __future__ import annotations

import numpy as np
import pytest

from jvm.code.snapshot import CodeView
from stages.follow.flow import Flow
from stages.follow.walk import state
from stages.follow.walk.segment_walk import Piece
from stages.messages import PtConfig, ThreadKey
from tests.flow.helpers import addresses, breaks, segment
from tests.flow.test_choice import LIMITS, call, chosen, laid_out, patches
from tests.flow.test_going_back import _START
from tests.pt import ptwriter as w
from tests.pt.machine import BASE

ONE, OTHER, FAR_AWAY = 0x100, 0x140, BASE + 0x5000
BY_REGISTER = b"\x41\xff\xd2\xc3"  # call r10; ret
INLINE = b"\x90\x90\x90\xc3"
LOOP = b"\x75\xf9"  # jne to the call


def code(to: int, one: bytes = BY_REGISTER, other: bytes = BY_REGISTER) -> bytes:
    return laid_out((0, call(BASE, BASE + to)), (5, LOOP), (ONE, one), (OTHER, other))


def near(at: int) -> bytes:
    return call(BASE + at, FAR_AWAY) + b"\xc3"


def rounds(back: int, n: int = 20) -> bytes:
    return (w.tip_pgd() + w.tip_pge(BASE + back) + w.tnt8("!!")) * n


def limited(code: bytes) -> Flow:
    flow = Flow(PtConfig(filter_lo=LIMITS[0], filter_hi=LIMITS[1]), context=False)
    flow.set_code(CodeView.of([(BASE, code)]))
    return flow


@pytest.mark.parametrize("padding", [0, 1])  # the fast part of the walker takes all it can
@pytest.mark.parametrize(
    ("one", "other", "back", "doubted"),
    [
        (BY_REGISTER, BY_REGISTER, OTHER + 3, True),
        (near(ONE), near(OTHER), OTHER + 5, True),
        (near(ONE), BY_REGISTER, OTHER + 3, True),
        (BY_REGISTER, BY_REGISTER, ONE + 3, False),  # where it was made
        (near(ONE), near(OTHER), ONE + 5, False),
        (BY_REGISTER, INLINE, OTHER + 3, False),  # the VM begins something else there
        (BY_REGISTER, call(BASE + OTHER, BASE) + b"\xc3", OTHER + 5, False),  # and behind a call that stays
    ],
)
def test_behind_another_call_that_leaves(one: bytes, other: bytes, back: int, doubted: bool, padding: int) -> None:
    flow = limited(code(ONE, one, other))
    found: list[int] = []

    def search(thread: ThreadKey, piece: Piece) -> bool:
        assert piece.cause == state.B_NOT_DISABLED
        found.append(piece.contradicted)
        flow.patch(BASE, call(BASE, BASE + OTHER))
        piece.settle()
        return True

    flow.search = search
    on = w.tnt8("!.") if doubted or back < OTHER else b""
    outputs = flow.feed(segment(_START + w.tip_pgd() + w.pad() * padding + w.tip_pge(BASE + back) + on))
    assert not breaks(outputs)
    assert bool(found) == doubted
    if doubted:
        assert BASE + OTHER in addresses(outputs)
        assert BASE + ONE not in addresses(outputs)


def test_nothing_else_fits() -> None:
    """Then it is believed: the VM may have called something else meanwhile."""
    flow = limited(code(ONE))
    asked: list[int] = []

    def search(_thread: object, piece: Piece) -> bool:
        asked.append(piece.contradicted)
        return False

    flow.search = search
    outputs = flow.feed(segment(_START + w.tip_pgd() + w.tip_pge(BASE + OTHER + 3)))
    assert len(asked) == 1
    assert not breaks(outputs)
    assert BASE + ONE in addresses(outputs)


def test_a_search_knows_it_too() -> None:
    """Of two functions that call the VM alike, the call leads to the one to which the VM came back."""
    known = patches((BASE + 0x300, b"\x90", b"\x91", 1, 2))
    known = known._replace(resolved=np.array([BASE, BASE]), branch=np.array([[BASE + k, 0] for k in (ONE, OTHER)]))
    for back in (ONE, OTHER):
        found = chosen(code(0x200), rounds(back + 3), known)  # there a jump, say, that takes an address
        assert found is not None
        assert found[0].code == call(BASE, BASE + back)


def to(address: int, register: int = 10) -> bytes:
    """MOV r64, imm64; CALL r64; RET."""
    high = register >> 3
    call = (b"\x41" if high else b"") + bytes((0xFF, 0xD0 | register & 7))
    return bytes((0x48 | high, 0xB8 | register & 7)) + address.to_bytes(8, "little") + call + b"\xc3"


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(
    ("one", "ip", "right"),
    [
        (to(FAR_AWAY), FAR_AWAY, True),
        (to(FAR_AWAY), FAR_AWAY + 8, False),
        (to(FAR_AWAY, 0), FAR_AWAY + 8, False),
        (to(FAR_AWAY, 0), FAR_AWAY, True),
        (to(FAR_AWAY), None, True),  # a TIP.PGD need not say it
        (b"\x49\xba" + bytes(8) + b"\xff\xd0\xc3", FAR_AWAY, True),  # loads R10 and calls RAX
        (near(ONE), FAR_AWAY, True),
        (near(ONE), FAR_AWAY + 8, False),
    ],
)
def test_a_call_leads_where_the_loaded_address_says(one: bytes, ip: int | None, right: bool, padding: int) -> None:
    flow = limited(code(ONE, one))
    out = w.tip_pgd() if ip is None else w.tip_pgd(ip, 3)
    outputs = flow.feed(segment(_START + w.pad() * padding + out))
    assert breaks(outputs) == ([] if right else [state.B_WRONG_TARGET])
    known = patches((BASE + 0x300, b"\x90", b"\x91", 1, 2))
    known = known._replace(resolved=np.array([BASE, BASE]), branch=np.array([[BASE + k, 0] for k in (ONE, OTHER)]))
    found = chosen(code(0x200, one, BY_REGISTER), out, known)
    assert found is not None
    assert found[0].code == call(BASE, BASE + (ONE if right else OTHER))
