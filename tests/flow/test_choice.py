"""Code that is patched while it runs, and known only by its bytes before and after: the trace decides."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from jvm.code.image import CodeImage
from jvm.code.revision_store import Uncertain
from jvm.code.snapshot import CodeView
from stages.follow.flow import Flow
from stages.follow.repair.backtracking_search import Choice, Position, choose
from stages.follow.repair.call_targets import Callees
from stages.follow.repair.candidates import LAST
from stages.follow.repair.effort import Effort
from stages.follow.repair.known import WINDOW, Known
from stages.follow.repair.repair import Repair
from stages.follow.repair.resolved_calls import ResolvedCalls
from stages.follow.walk import path_sequence as orders
from stages.messages import PtConfig
from tests.flow.helpers import segment
from tests.jvm.exportwriter import Writer
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, Instruction, Processor, program

LIMITS = BASE, BASE + 0x1000
NONE = np.zeros(0, np.int64)


def call(at: int, to: int, opcode: int = 0xE8) -> bytes:
    return bytes((opcode,)) + (to - at - 5).to_bytes(4, "little", signed=True)


def laid_out(*parts: tuple[int, bytes]) -> bytes:
    code = bytearray(b"\x90" * 0x400)
    for at, data in parts:
        code[at : at + len(data)] = data
    return bytes(code)


# a loop: call; JNE back; JMP RAX. The call goes to a stub that is one indirect jump, or to a function of one branch.
LOOP = (0, call(BASE, BASE + 0x100)), (5, b"\x75\xf9\xff\xe0"), (0x100, b"\xff\xe0"), (0x200, b"\x74\x01\x90\xc3")
TWICE = w.tnt8("!!!") + w.tnt8(".!!!!!") + w.tnt8(".!.") + w.tip(BASE) + w.tnt8("!!.") + w.tip(BASE)


def patches(*rows: tuple[int, bytes, bytes, int, int]) -> Known:
    """(address, old, new, before, after) each."""
    sizes = np.array([len(old) for _, old, _, _, _ in rows], np.int32)
    at = np.cumsum(np.concatenate(([0], 2 * sizes)))[:-1].astype(np.int64)
    columns = (np.array([row[k] for row in rows], np.uint64) for k in (0, 3, 4))
    address, before, after = columns
    store = np.frombuffer(b"".join(old + new for _, old, new, _, _ in rows), np.uint8)
    return Known.of(Uncertain(address, sizes, before, after, at, at + sizes, np.ones(len(rows), np.int64), store))


def chosen(code: bytes, trace: bytes, known: Known, tsc: int = 150, here: int = BASE) -> list[Choice] | None:
    data = np.frombuffer(trace + bytes(32), np.uint8)
    flow = Flow()
    flow.set_code(CodeView.of([(BASE, code)]))
    position, words = Position(0, here, here, False, NONE, 0), flow.code.words()
    found = choose(data, len(trace), 0, position, words, LIMITS, known.raw(), tsc, 1000, Effort())
    return found.choices if found is not None else None


def test_the_content_that_the_trace_fits() -> None:
    old, new = call(BASE, BASE + 0x100), call(BASE, BASE + 0x200)
    found = chosen(laid_out(*LOOP), TWICE, patches((BASE + 1, old[1:], new[1:], 100, 200)))
    assert found == [Choice(0, BASE, new, False)]


def test_the_change_is_put_where_it_is_seen() -> None:
    old, new = call(BASE, BASE + 0x100), call(BASE, BASE + 0x200)
    first = w.tip(BASE + 5) + w.tnt8("!")  # by the stub, which comes back
    found = chosen(laid_out(*LOOP), first + TWICE, patches((BASE + 1, old[1:], new[1:], 100, 200)))
    assert found == [Choice(len(first), BASE, new, False)]


def test_what_was_never_read_but_learnt_is_marked() -> None:
    known = patches((BASE + 0x300, b"\x90", b"\x91", 1, 2))
    known = known._replace(resolved=np.array([BASE]), branch=np.array([[BASE + 0x200, 0]]))
    assert chosen(laid_out(*LOOP), TWICE, known) == [Choice(0, BASE, call(BASE, BASE + 0x200), True)]


@pytest.mark.parametrize(("methods", "taken"), [((7, 7, 8), 0x200), ((7, 9, 8), 0x100)])
def test_a_return_tells_versions_of_one_method_apart(methods: tuple[int, ...], taken: int) -> None:
    """The first of two functions of the same packets is not the one that called, if both are versions of a method: what
    it has called returns into the other."""
    calling = call(0, 0x180) + b"\x74\x01\x90\xc3", call(0, 0x80) + b"\x74\x01\x90\xc3"
    code = laid_out(LOOP[0], LOOP[1], (0x100, calling[0]), (0x200, calling[1]), (0x280, b"\x74\x01\x90\xc3"))
    code = code[:0x300] + b"\xff\xe0" + code[0x302:]
    code = call(BASE, BASE + 0x300) + code[5:]
    known = patches((BASE + 0x3F0, b"\x90", b"\x91", 1, 2))
    to = np.array([[BASE + 0x100, 0], [BASE + 0x200, 0]])
    body = np.array([BASE + 0x100, BASE + 0x200, BASE + 0x280])
    known = known._replace(
        resolved=np.array([BASE, BASE]), branch=to, body=body, body_end=body + 0x80, body_method=np.array(methods)
    )
    again = w.tnt8(".") + w.tip(BASE + 0x205) + w.tnt8(".!!")
    found = chosen(code, again * 10, known)
    assert found == [Choice(0, BASE, call(BASE, BASE + taken), True)]


def test_a_place_that_waits_to_be_patched_has_been() -> None:
    """A loop: MOV RSI, imm64, where a JMP to the stub that patches still stands; JNE back; JMP RAX."""
    mov = b"\x48\xbe" + bytes(range(1, 9))
    waits = (0, call(BASE, BASE + 0x100, 0xE9)), (10, b"\x75\xf4\xff\xe0"), (0x100, b"\xff\xe0")
    known = patches((BASE + 0x300, b"\x90", b"\x91", 1, 2))
    trace = w.tnt8("!!!") + w.tnt8("!!.") + w.tip(BASE) + w.tnt8("!.") + w.tip(BASE)
    assert chosen(laid_out(*waits), trace, known) is None
    content = np.frombuffer(mov.ljust(WINDOW, b"\x90"), np.uint8).reshape(1, WINDOW)
    known = known._replace(waiting=np.array([BASE]), waiting_content=content)
    assert chosen(laid_out(*waits), trace, known) == [Choice(0, BASE, mov, True)]


@pytest.mark.parametrize("tsc", [98_000, 5_000_000])
def test_nothing_is_offered_that_stood_there_at_another_time(tsc: int) -> None:
    old, new = call(BASE, BASE + 0x100), call(BASE, BASE + 0x200)
    known = patches((BASE + 1, old[1:], new[1:], 100, 200), (BASE + 1, new[1:], old[1:], 300, 400))
    assert chosen(laid_out(*LOOP), TWICE, known, 350) is not None
    assert chosen(laid_out(*LOOP), TWICE, known, tsc) is None


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("89842400c0feff", "8984240000feff"),  # the stack's check
        ("488b06a802", "0f1f440000"),  # a wrapper of a native method: no instruction of seven bytes
    ],
)
def test_a_method_made_not_entrant_and_what_was_there_before(first: str, again: str) -> None:
    entry, stub = BASE + 0x200, BASE + 0x300
    method = bytes.fromhex(first) + b"\x74\x01\x90\xc3"
    code = laid_out((0, call(BASE, entry)), (5, b"\xff\xe0"), (0x200, method), (0x300, b"\xff\xe0"))
    known = patches((BASE + 0x80, b"\x90", b"\x91", 1, 2))
    known = known._replace(refusal=np.array([stub]), entry=np.array([entry]), refused=np.array([LAST]))
    refused = w.tip(BASE + 5) + w.tip(BASE) * 5
    found = chosen(code, w.tip(BASE + 5) + w.tip(BASE) + w.tip(BASE + 5) + w.tip(BASE) * 1 + refused, known)
    assert found is not None
    assert found[0] == Choice(0, entry, call(entry, stub, 0xE9), True)
    jump = code[:0x200] + call(entry, stub, 0xE9) + code[0x205:]
    walked = (w.tnt8("!!") + w.tip(BASE)) * 6
    back = [Choice(0, entry, bytes.fromhex(again), True)]
    assert chosen(jump, walked, known, tsc=5000) == back
    # for good: from then on nothing else stands there
    since = known._replace(refused=np.array([4000]))
    assert chosen(jump, walked, since, tsc=4000) == back
    assert chosen(jump, walked, since, tsc=5000) is None


def test_nonsense_fits_nothing_and_ends() -> None:
    old, new = call(BASE, BASE + 0x100), call(BASE, BASE + 0x200)
    known = patches((BASE + 1, old[1:], new[1:], 100, 200))
    assert chosen(laid_out(*LOOP), w.tnt8("......") * 8, known) is None
    assert chosen(laid_out((0, b"\xeb\xfe")), w.tip(BASE) * 20, known) is None  # a loop without packets


class _Patched(Processor):
    """Some of its calls get another target while it runs."""

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            if self.runs_without_packets:
                self.interrupt()
            self.step()

    def patch(self, at: int, to: int) -> bytes:
        raw = call(at, to)
        self._code[at] = Instruction(raw, "call", to)
        return raw


def patched_run(seed: int) -> tuple[list[int], list[int], int]:
    """The addresses that ran, those handed on as observed, and the number of breaks."""
    rng = Random(seed)
    code, instructions = program(rng, 60)
    calls = [at for at, i in instructions.items() if i.kind == "call"]
    processor = _Patched(rng, instructions, honest=True)
    writer = Writer(tsc=1).dynamic_code(BASE, "made up", code)
    processor.go_on(200)
    for n, at in enumerate(calls[:4]):
        to = rng.choice([a for a in instructions if a != at + 5])
        writer.code_patch(at, 100 + n, 300 + n, processor.patch(at, to))
        processor.go_on(200)
    processor.stop()
    image = CodeImage()
    image.feed(writer.bytes())
    flow = Flow(PtConfig())
    repair = Repair(flow, image, 1000)
    flow.set_code(image.view(150))
    piece = segment(processor.trace, tsc=(150, 250))
    repair.begin(piece)
    outputs = flow.feed(piece)
    ran = [int(ip) for o in outputs for ip in orders.addresses(o.tables, o.observed)]
    return processor.executed, ran, sum(len(o.breaks[o.breaks["cause"] != 12]) for o in outputs)


def test_a_program_patched_while_it_runs() -> None:
    """Code and outcomes are random, so a wrong way often fits for long: harder than any real program. Without choosing
    hardly any run is decoded to its end; with it nearly half, exactly, and of the others most."""
    exact = right = total = 0
    for seed in range(40):
        executed, ran, broken = patched_run(seed)
        exact += executed == ran and not broken
        right += sum((Counter(executed) & Counter(ran)).values())
        total += len(executed)
    assert exact >= 15
    assert right > 0.95 * total


def test_a_wrong_way_that_shows_only_behind_the_next_address() -> None:
    """It was believed that the call goes where another call is made before the indirect jump: so the return goes wrong,
    and only that does not fit."""
    old, new = call(BASE, BASE + 0x100), call(BASE, BASE + 0x200)
    code = laid_out(
        (0, old), (5, b"\x75\xf9\xff\xe0"), (0x100, call(BASE + 0x100, BASE + 0x180)), (0x105, b"\xff\xe0"),
        (0x180, b"\xff\xe0"), (0x200, b"\xff\xe0"), (0x300, b"\xc3"),
    )  # fmt: skip
    image = CodeImage()
    image.feed(Writer(tsc=1).dynamic_code(BASE, "made up", code).code_patch(BASE, 200, 300, new).bytes())
    start = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend()
    trace = start + (w.tip(BASE + 0x300) + w.tnt8("!!")) * 30 + w.fup(BASE) + w.tip_pgd()
    flow = Flow(PtConfig())
    flow.set_code(image.view(150))
    repair = Repair(flow, image, 1000)
    piece = segment(trace, tsc=(150, 250))
    repair.begin(piece)
    outputs = flow.feed(piece)
    assert not any(len(out.breaks) for out in outputs)
    ran = [int(ip) - BASE for out in outputs for ip in orders.addresses(out.tables, out.order)]
    assert ran == [0, 0x200, 0x300, 5] * 30
    assert repair.counts["earlier"] == 1
    assert repair.counts["chosen"] == 1


def test_a_resolver_teaches_the_entry_before_the_check_too() -> None:
    image = CodeImage()
    image.feed(
        Writer().method(1, "LFoo;", "bar", "()V").nmethod_load(0x1000, bytes(64), 1, pcs=[(4, [(1, 0)])]).bytes()
    )
    version = next(iter(image.versions()))
    version.entry, version.verified_entry = 0x1000, 0x1020
    resolved = ResolvedCalls(image, Callees(image))
    nowhere, no_stack = (0x6005, 0x9999), (0, 0x1020)
    resolved.add([(0x1015, 0x1020), (0x1025, 0x9999), nowhere, no_stack], 5000)
    assert resolved.branches.address.tolist() == [0x1010, 0x1010, 0x1020]
    assert resolved.branches.value.tolist() == [[0x1020, 0], [0x1000, 0], [0x9999, 0]]
