"""A resolver leads to the method that the call names, or the walk has been wrong before."""

from __future__ import annotations

import pytest

from jvm.code.image import CodeImage
from jvm.kernels import kernel
from stages.follow.code.jumps import OfImage
from stages.follow.flow import Flow
from stages.follow.repair.call_table import names_other
from stages.follow.repair.call_targets import Callees
from stages.follow.repair.known import raw_known
from stages.follow.repair.repair import Repair
from stages.follow.walk import path_sequence as orders
from stages.messages import PtConfig
from tests.flow.helpers import segment
from tests.flow.test_bindings import STUBS
from tests.flow.test_callees import ADAPTER, CALLEE, CALLER
from tests.flow.test_choice import call, patches
from tests.jvm.exportwriter import Writer
from tests.jvm.test_classfile import OPCODES, Made
from tests.jvm.test_classfile import call as invoke
from tests.pt import ptwriter as w

LOADED, LATER, SLACK = 1000, 2000, 100
INTERPRETER = 0x48000
HANDLE = "java/lang/invoke/MethodHandle"


@kernel
def _by_kernel(columns, site, target, tsc, slack):  # type: ignore[no-untyped-def]
    return names_other(raw_known(columns).calls, site, target, tsc, slack)


def caller_of(opcode: str, owner: str, name: str) -> CodeImage:
    """A.main's only call. B.work()V, C.work()V, B.work(I)V, B.other()V and the constructor of B are compiled."""
    made = Made()
    made.method("main", "()V", invoke(OPCODES[opcode], made.ref(name, "()V", owner)))
    told = Writer(tsc=10).interpreter(INTERPRETER, bytes(16)).replay_begin(1).replay_end(1)
    told.at(LOADED)
    told.class_def(1, "A", made.bytes()).class_(1, "LA;", 1).method(1, "LA;", "main")
    compiled = (
        ("LB;", "work", "()V"), ("LC;", "work", "()V"), ("LB;", "work", "(I)V"), ("LB;", "other", "()V"),
        ("LB;", "<init>", "()V"), ("LC;", "<init>", "()V"),
    )  # fmt: skip
    for k, (holder, method, signature) in enumerate(compiled):
        at = CALLEE + 0x1000 * k
        told.method(2 + k, holder, method, signature, class_id=0)
        body = b"\x90" * 0x20 + b"\xc3".ljust(0x20, b"\x90")
        told.nmethod_load(at, body, 2 + k, entry=at, verified_entry=at + 0x20)
    code = bytearray(b"\x90" * 0x40)
    code[0x20:0x25] = call(CALLER + 0x20, CALLEE + 0x20)
    told.nmethod_load(CALLER, bytes(code), 1, [(0x25, [(1, 0)])], level=3)
    image = CodeImage(lateness=50)
    image.feed(told.bytes())
    return image


@pytest.mark.parametrize(
    ("opcode", "owner", "name", "others"),
    [
        ("invokevirtual", "B", "work", {2, 3, 4, 5}),  # whichever class's
        ("invokestatic", "X", "work", {2, 3, 4, 5}),  # which may stand in a class above
        ("invokespecial", "B", "<init>", {0, 1, 2, 3, 5}),  # which may not
        ("invokevirtual", HANDLE, "invokeExact", set()),
        ("invokevirtual", "B", "nowhere", {0, 1, 2, 3, 4, 5}),
    ],
)
def test_the_methods_that_a_call_does_not_lead_to(opcode: str, owner: str, name: str, others: set[int]) -> None:
    image = caller_of(opcode, owner, name)
    callees = Callees(image)
    known = patches()._replace(calls=callees.now())
    raw = known.raw()

    def other(target: int, site: int = CALLER + 0x20, tsc: int = LATER) -> bool:
        says = callees.names_other(site, target, tsc, SLACK)
        assert bool(_by_kernel(raw, site, target, tsc, SLACK)) == says
        return says

    for entry in (0, 0x20):
        assert {k for k in range(6) if other(CALLEE + 0x1000 * k + entry)} == others
    assert not other(CALLEE + 0x1004)  # no entry
    assert not other(ADAPTER)
    assert not other(CALLEE + 0x3020, site=CALLER + 0x10)  # no call
    made = int(callees.now().since[callees.now().verified == CALLEE + 0x3020][0])
    assert [other(CALLEE + 0x3020, tsc=made - early) for early in (SLACK, SLACK + 1)] == [3 in others, False]


def test_the_first_call_through_a_site_that_was_taken_for_bound() -> None:
    """A.main calls B.work by a call that is not bound yet, and that calls C.other so. The code as it was told has the
    first call bound already: then B.work is run at once, and the resolver's jump to it is taken for its own call's,
    which names another method."""
    resolver, other, ret = STUBS["resolve_static_call"], CALLEE + 0x1000, b"\xc3"
    image = CodeImage()
    begun = Writer(tsc=10).interpreter(INTERPRETER, bytes(16))
    for name, at in STUBS.items():
        begun.dynamic_code(at, name, b"\xff\xe0".ljust(32, b"\x90"))
    image.feed(begun.bytes())
    told = Writer(tsc=100)
    for k, (holder, method, of, name) in enumerate((("A", "main", "B", "work"), ("B", "work", "C", "other")), 1):
        made = Made()
        made.method(method, "()V", invoke(OPCODES["invokestatic"], made.ref(name, "()V", of)))
        told.class_def(k, holder, made.bytes()).class_(k, f"L{holder};", k)
        told.method(k, f"L{holder};", method, class_id=k)
    told.method(3, "LC;", "other", class_id=0)
    main = bytearray(b"\x90" * 0x40)
    main[0x20:0x27] = call(CALLER + 0x20, CALLEE + 0x20) + b"\xff\xe0"  # call; jmp rax
    work = bytearray(b"\x90" * 0x40)
    work[0x20:0x26] = call(CALLEE + 0x20, resolver) + ret
    told.nmethod_load(other, b"\x90" * 0x20 + ret.ljust(0x20, b"\x90"), 3, entry=other, verified_entry=other + 0x20)
    told.nmethod_load(CALLEE, bytes(work), 2, [(0x25, [(2, 0)])], level=3, entry=CALLEE, verified_entry=CALLEE + 0x20)
    told.nmethod_load(CALLER, bytes(main), 1, [(0x25, [(1, 0)])], level=3)
    image.feed(told.bytes())
    flow = Flow(PtConfig())
    flow.set_code(image.view(2000))
    flow.jumps = OfImage(image).now()
    repair = Repair(flow, image, 1000)
    site, back, inner_back = CALLER + 0x20, CALLER + 0x25, CALLEE + 0x25
    start = w.psb() + w.mode_exec(64) + w.fup(site) + w.psbend()
    first = w.tip(CALLEE + 0x20) + w.tip(other + 0x20) + w.tnt8("!!") + w.tip(site)
    rounds = 8
    piece = segment(start + first + (w.tnt8("!!") + w.tip(site)) * rounds, tsc=(2000, 2100))
    repair.begin(piece)
    outputs = flow.feed(piece)
    assert not any(len(out.breaks) for out in outputs)
    ran = [int(ip) for out in outputs for ip in orders.addresses(out.tables, out.order)]
    bound = [site, CALLEE + 0x20, other + 0x20, inner_back, back]
    assert ran == [site, resolver, CALLEE + 0x20, resolver, other + 0x20, inner_back, back] + bound * rounds
    assert repair.counts["doubted"] == 1


def test_a_jump_that_nothing_explains_is_believed_and_teaches_nothing() -> None:
    """The call before may not have been seen: the return stack is another's."""
    image = caller_of("invokestatic", "B", "work")
    resolver, other, site = STUBS["resolve_static_call"], CALLEE + 0x3020, CALLER + 0x20
    image.feed(Writer(tsc=LATER).dynamic_code(resolver, "resolve_static_call", b"\xff\xe0").bytes())
    flow = Flow(PtConfig())
    flow.set_code(image.view(3000))
    flow.jumps = OfImage(image).now()
    repair = Repair(flow, image, 100)
    unbound = call(site, resolver)
    flow.patch(site, unbound)
    piece = segment(w.psb() + w.mode_exec(64) + w.fup(site) + w.psbend() + w.tip(other), tsc=(3000, 3100))
    repair.begin(piece)
    outputs = flow.feed(piece)
    repair.take_resolved(outputs[0].resolved)
    assert not any(len(out.breaks) for out in outputs)
    assert [int(ip) for out in outputs for ip in orders.addresses(out.tables, out.order)] == [site, resolver]
    assert repair.counts["searches"] == 1
    assert flow.bytes_at(site, len(unbound)) == unbound
    assert not repair._resolved.targets(site)
