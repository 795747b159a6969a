"""Events in inline-cache stubs, whose code is not known."""

from __future__ import annotations

import numpy as np
import pytest

from jvm.code.snapshot import CodeView
from stages.follow.code.jumps import NO_JUMPS, PASSES_ON
from stages.follow.flow import Flow
from stages.messages import Break
from tests.flow.helpers import decode
from tests.flow.test_choice import call, laid_out
from tests.pt import ptwriter as w
from tests.pt.machine import BASE

CALLEE, STUB = 0x100, 0x200
CODE = laid_out((0, call(BASE, BASE + CALLEE)), (CALLEE, b"\x90\x74\x01\x90\xc3"), (STUB, b"\x00" * 0x10))


def flow(stubs: bool) -> Flow:
    it = Flow()
    it.set_code(CodeView.of([(BASE, CODE)]))
    if stubs:
        it.jumps = NO_JUMPS._replace(ranges=np.array([[BASE + STUB, BASE + STUB + 0x10, PASSES_ON]], np.int64))
    return it


@pytest.mark.parametrize("at", [STUB, STUB + 10])
def test_an_event_in_the_stub_comes_between_the_call_and_its_callee(at: int) -> None:
    trace = w.tip_pge(BASE) + w.fup(BASE + at) + w.tip_pgd() + w.tip_pge(BASE + at) + w.tnt8("!") + w.tip_pgd()
    ran = [BASE, BASE + CALLEE, BASE + CALLEE + 1, BASE + CALLEE + 4]
    assert decode(flow(True), trace) == (ran, [])


def test_elsewhere_it_contradicts() -> None:
    trace = w.tip_pge(BASE) + w.fup(BASE + STUB) + w.tip_pgd()
    assert decode(flow(False), trace) == ([], [Break.FUP_OFF_PATH])
