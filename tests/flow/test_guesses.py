"""Several stubs give the same packets: which of them a call leads to is told as guessed until it is known."""

from __future__ import annotations

import pytest

from benchmarks.flow_truth.reader import WHOLE, Reader
from jvm.code.image import CodeImage
from stages.follow.batch import Batch
from stages.follow.follower import Follower
from stages.messages import PtConfig
from tests.flow.helpers import segment
from tests.flow.test_callees import CALLEE, CALLER, caller
from tests.flow.test_choice import call
from tests.jvm.exportwriter import Writer
from tests.jvm.test_classfile import METHODREF, OPCODES, Made
from tests.jvm.test_classfile import call as invoke
from tests.pt import ptwriter as w

SITE = CALLER + 0x20
OTHER_CALLER, CLAIMER, INLINE = 0x60000, 0x68000, 0x70000
FIRST, SECOND = 0x71000, 0x72000
LOOKS_UP = b"\x74\x00\x90\xff\xe3".ljust(0x20, b"\x90")  # je; nop; jmp rbx
RETURNS = b"\x90" * 0x20 + b"\xc3" + b"\x90" * 0x1F


def buffer(to: int) -> bytes:
    """A stub that leads to `to`."""
    return (b"\x48\xb8" + bytes(8) + call(INLINE + 10, to, 0xE9)).ljust(0x20, b"\x90")


class World:
    """A.main calls B.work()V through the inline-cache buffer, whose stub leads to the FIRST of two stubs of a kind."""

    def __init__(self, stub: str, claimed: bool = True) -> None:
        """`claimed`: a call of another method was read to lead to the FIRST."""
        made = Made()
        made.method("main", "()V", invoke(OPCODES["invokevirtual"], made.ref("work", "()V", "B", METHODREF)))
        made.method("rest", "()V", invoke(OPCODES["invokevirtual"], made.ref("idle", "()V", "B", METHODREF)))
        self.image = CodeImage(lateness=0)
        told = Writer(tsc=100, step=0).class_def(1, "A", made.bytes()).class_(1, "LA;", 1)
        told.method(1, "LA;", "main").method(3, "LA;", "rest").method(2, "LB;", "work", "()V", class_id=0)
        told.dynamic_code(INLINE, "InlineCacheBuffer", buffer(FIRST))
        told.dynamic_code(FIRST, stub, LOOKS_UP).dynamic_code(SECOND, stub, LOOKS_UP)
        told.nmethod_load(CALLEE, RETURNS, 2, entry=CALLEE, verified_entry=CALLEE + 0x20)
        self.load(told, CALLER, INLINE)
        if claimed:
            self.load(told, CLAIMER, FIRST, 3)
        self.image.feed(told.bytes())
        self.follower = Follower(self.image, PtConfig(), 10)
        self.batch, self.reader = Batch(("here", 1), self.image, self.follower.repair.guesses), Reader()

    @staticmethod
    def load(told: Writer, at: int, to: int, method: int = 1) -> None:
        code = bytearray(caller(at, to, checks=True))
        code[0x25:0x27] = b"\xff\xe0"  # jmp rax
        told.nmethod_load(at, bytes(code), method, [(0x25, [(method, 0)])], level=3, entry=at, verified_entry=at)

    def tell(self, told: Writer) -> None:
        self.image.feed(told.bytes())

    def call(self, tsc: int) -> list[tuple[int, int]]:
        """It is called at `tsc`: the blocks as handed on, and how many of their ranges are doubtful."""
        trace = w.psb() + w.mode_exec(64) + w.fup(SITE) + w.psbend()
        piece = segment(trace + w.tnt8(".") + w.tip(CALLEE + 0x20) + w.tnt8("!") + w.tip(SITE), tsc=(tsc, tsc))
        for output in self.follower.follow(piece):
            assert not len(output.breaks)
            self.batch.add(piece, output, self.follower.at, ())
        ((_, taken),) = self.reader.rows(self.batch.take())
        starts = self.reader.code.start[taken.blocks].tolist()
        return list(zip(starts, taken.doubtful.tolist(), strict=True))


@pytest.mark.parametrize(("stub", "claimed"), [("vtable stub", True), ("I2C/C2I adapters", False)])
def test_it_is_a_guess_until_the_call_has_been_read(stub: str, claimed: bool) -> None:
    """Of the first block the part in the stub, and all of those behind it as far as where the stub led."""
    world = World(stub, claimed)
    guessed = [(SITE, 1), (FIRST + 2, WHOLE), (CALLEE + 0x20, 0), (SITE + 5, 0)]
    assert world.call(200) == guessed
    assert world.call(300) == guessed
    world.tell(Writer(tsc=420).code_patch(SITE + 1, 350, 410, call(SITE, FIRST)[1:]))
    assert world.call(500) == [(start, 0) for start, _ in guessed]


@pytest.mark.parametrize("stub", ["vtable stub", "itable stub"])
def test_a_table_stub_that_no_call_leads_to_was_made_for_this_one(stub: str) -> None:
    assert {doubtful for _, doubtful in World(stub, claimed=False).call(200)} == {0}


def test_another_call_of_that_callee_has_been_read() -> None:
    world = World("vtable stub")
    told = Writer(tsc=150, step=0)
    world.load(told, OTHER_CALLER, FIRST)
    world.tell(told)
    assert {doubtful for _, doubtful in world.call(200)} == {0}


def test_another_call_of_that_callee_leads_to_the_other_stub() -> None:
    world = World("vtable stub")
    told = Writer(tsc=150, step=0)
    world.load(told, OTHER_CALLER, SECOND)
    world.tell(told)
    assert world.call(200)[0] == (SITE, 1)
