"""The target of a call when the JVM has been at work on it."""

from __future__ import annotations

from functools import partial

import pytest

from jvm.calls.call_sites import CALL, JMP, STUB_JUMP
from jvm.code.image import CodeImage
from stages.follow.code.jumps import OfImage
from stages.follow.flow import Flow
from stages.follow.repair.call_patching import Bindings, Branch
from stages.follow.repair.call_targets import Callees
from stages.follow.repair.repair import Repair
from stages.follow.walk import path_sequence as orders
from stages.messages import PtConfig
from tests.flow.helpers import segment
from tests.flow.test_callees import ADAPTER, CALLEE, CALLER, STUB, caller, written
from tests.flow.test_choice import call
from tests.jvm.exportwriter import Writer
from tests.pt import ptwriter as w

SITE = CALLER + 0x20
STUBS = {name: 0x100000 + 0x100 * k for k, name in enumerate((
    "resolve_static_call", "resolve_opt_virtual_call", "resolve_virtual_call", "ic_miss", "wrong_method", "x",
))}  # fmt: skip
TABLE, LATER = 0x110000, 0x110100
TSC = 5000


def image_of(opcode: str, checks: bool) -> CodeImage:
    image = CodeImage(lateness=50)
    begun = Writer(tsc=10).codelet(0x1000, 0x1010, 182, "x").replay_begin(1).replay_end(1)
    for name, at in STUBS.items():
        begun.dynamic_code(at, name, b"\xff\xe0".ljust(32, b"\x90"))
    image.feed(begun.bytes() + written(opcode, checks=checks).bytes())
    image.feed(Writer(tsc=TSC - 10).dynamic_code(TABLE, "vtable stub(1)", bytes(32)).bytes())
    image.feed(Writer(tsc=TSC + 10).dynamic_code(LATER, "vtable stub(2)", bytes(32)).bytes())
    return image


def to(target: int, at: int = SITE, opcode: int = CALL) -> Branch:
    return Branch(at, call(at, target, opcode))


@pytest.mark.parametrize(
    ("opcode", "checks", "by", "target", "expected"),
    [
        ("invokestatic", False, "resolve_static_call", CALLEE + 0x20, [to(CALLEE + 0x20)]),
        ("invokestatic", False, "resolve_static_call", ADAPTER,
         [to(ADAPTER, CALLER + STUB + STUB_JUMP, JMP), to(CALLER + STUB)]),
        ("invokestatic", False, "resolve_static_call", 0x1234, [to(STUBS["resolve_static_call"])]),  # unknown code
        ("invokestatic", False, "resolve_static_call", CALLEE + 0x24, [to(STUBS["resolve_static_call"])]),  # no entry
        ("invokevirtual", True, "resolve_virtual_call", 0x1234, [to(STUBS["resolve_virtual_call"])]),
        ("invokevirtual", True, "resolve_virtual_call", CALLEE + 0x1020, [to(CALLEE + 0x1000)]),  # the checking entry
        ("invokevirtual", True, "resolve_virtual_call", ADAPTER + 0x30, [to(ADAPTER + 0x23)]),
        ("invokevirtual", True, "ic_miss", CALLEE + 0x1020, [to(TABLE)]),
        ("invokevirtual", True, "wrong_method", CALLEE + 0x20, [to(STUBS["resolve_virtual_call"])]),
        ("invokevirtual", False, "wrong_method", CALLEE + 0x20, [to(STUBS["resolve_opt_virtual_call"])]),
        ("invokestatic", False, "wrong_method", CALLEE + 0x20, [to(STUBS["resolve_static_call"])]),
        ("invokestatic", False, "x", CALLEE + 0x20, []),
        ("invokestatic", False, "", 0, [to(CALLEE + 0x20)]),  # an adapter
        ("invokevirtual", True, "", 0, []),
    ],
)  # fmt: skip
def test_what_each_stub_does(opcode: str, checks: bool, by: str, target: int, expected: list[Branch]) -> None:
    image = image_of(opcode, checks)
    bindings = Bindings(image, Callees(image), lambda at, size: call(at, CALLEE, CALL)[:size], 100)
    assert bindings.of(SITE + 5, target, STUBS.get(by, ADAPTER + 0x30) + 1, TSC) == expected
    assert bindings.of(0x20, target, STUBS.get(by, ADAPTER), TSC) == []  # no caller
    assert bindings.of(SITE + 5, target, 0x9999, TSC) == []


def anywhere(code: bytes, _at: int, _size: int) -> bytes:
    return code


def test_only_a_call_of_a_compiled_method_becomes_one_of_a_table() -> None:
    image = image_of("invokevirtual", True)
    for believed in (call(SITE, ADAPTER + 0x23), call(SITE, TABLE), b"", b"\x90" * 5):
        bindings = Bindings(image, Callees(image), partial(anywhere, believed), 100)
        assert bindings.of(SITE + 5, CALLEE + 0x20, STUBS["ic_miss"], TSC) == []


@pytest.mark.parametrize(
    ("before", "by", "expected"),
    [
        (b"", "resolve_static_call", CALLEE + 0x20),
        (b"\x48\xb8", "resolve_virtual_call", CALLEE),
        (b"", "wrong_method", STUBS["resolve_opt_virtual_call"]),
        (b"\x48\xb8", "wrong_method", STUBS["resolve_virtual_call"]),
    ],
)
def test_a_call_that_nothing_describes(before: bytes, by: str, expected: int) -> None:
    """Its bytes say whether it checks the receiver."""
    image = image_of("invokestatic", False)
    site = CALLER + 0x30
    code = {site: call(site, CALLEE), site - 10: before}
    bindings = Bindings(image, Callees(image), lambda at, size: code[at][:size], 100)
    assert bindings.of(site + 5, CALLEE + 0x20, STUBS[by] + 1, TSC) == [to(expected, site)]


@pytest.mark.parametrize("compiled", [False, True])
def test_an_adapter_fixes_the_call_before_it(compiled: bool) -> None:
    """CALL, the caller's stub, and the adapter: it tests whether its method is compiled; if so it calls the fixing
    routine; it jumps to the interpreter. The next time the call goes to the compiled method, which runs like that."""
    image = CodeImage()
    adapter, interpreter, outside = 0x40000, 0x48000, 0x90000
    body = bytearray(b"\x90" * 0x60)
    body[0x20:0x22], body[0x22:0x27], body[0x27:0x29] = b"\x74\x05", call(adapter + 0x22, outside), b"\xff\xe1"
    code = bytearray(caller(to=CALLER + STUB, lands=adapter + 0x20))
    code[0x25:0x27] = b"\xff\xe0"  # jmp rax
    image.feed(written("invokestatic").bytes())
    told = Writer(tsc=900).dynamic_code(adapter, "I2C/C2I adapters", bytes(body))
    told.interpreter(interpreter, b"\x90\xff\xe0")
    method = b"\x90" * 0x20 + b"\x75\x00\xff\xe0" + b"\x90" * 0x1C
    told.nmethod_load(CALLEE, method, 2, entry=CALLEE, verified_entry=CALLEE + 0x20)
    told.nmethod_load(CALLER, bytes(code), 1, [(0x25, [(1, 0)])], level=3)
    image.feed(told.bytes())
    flow = Flow(PtConfig(filter_lo=0x10000, filter_hi=0x50000))
    flow.set_code(image.view(2000))
    flow.jumps = OfImage(image).now()
    repair = Repair(flow, image, 1000)
    start = w.psb() + w.mode_exec(64) + w.fup(SITE) + w.psbend()
    fixed = w.tnt8(".") + w.tip_pgd() + w.tip_pge(adapter + 0x27) if compiled else w.tnt8("!")
    trace = start + fixed + w.tip(interpreter) + w.tip(SITE) + w.tnt8("!") + w.tip(CALLEE if compiled else interpreter)
    piece = segment(trace, tsc=(2000, 2100))
    repair.begin(piece)
    outputs = flow.feed(piece)
    assert not any(len(out.breaks) for out in outputs)
    assert repair.counts["call_updated"] == compiled
    assert repair.counts["searches"] == 0
    ran = [int(ip) for out in outputs for ip in orders.addresses(out.tables, out.order)]
    assert (CALLEE + 0x20 in ran) == compiled


def callees(image: CodeImage) -> None:
    """The resolver is one indirect jump; B's method and C's, one a page, return at once."""
    image.feed(Writer(tsc=10).dynamic_code(STUBS["resolve_static_call"], "resolve_static_call", b"\xff\xe0").bytes())
    image.feed(written("invokestatic").bytes())
    for k, verified in enumerate((CALLEE + 0x20, CALLEE + 0x1020)):
        body = b"\x90" * 0x20 + b"\xc3" + b"\x90" * 0x1F
        told = Writer(tsc=900 + k).nmethod_load(
            verified - 0x20, body, 2 + k, entry=verified - 0x20, verified_entry=verified
        )
        image.feed(told.bytes())


def test_the_call_is_bound_when_the_trace_shows_it() -> None:
    """It may go to B's method or C's, which run alike. It is bound to C's, as the resolver went there."""
    image = CodeImage()
    at, resolver = CALLER + 0x20, STUBS["resolve_static_call"]
    code = bytearray(caller(to=resolver))
    code[0x25:0x27] = b"\xff\xe0"  # jmp rax
    callees(image)
    image.feed(Writer(tsc=950).nmethod_load(CALLER, bytes(code), 1, [(0x25, [(1, 0)])], level=3).bytes())
    flow = Flow(PtConfig())
    flow.set_code(image.view(2000))
    flow.jumps = OfImage(image).now()
    repair = Repair(flow, image, 1000)
    start = w.psb() + w.mode_exec(64) + w.fup(at) + w.psbend()
    trace = start + w.tip(CALLEE + 0x1020) + (w.tnt8("!") + w.tip(at)) * 4
    piece = segment(trace, tsc=(2000, 2100))
    repair.begin(piece)
    outputs = flow.feed(piece)
    assert not any(len(out.breaks) for out in outputs)
    ran = [int(ip) for out in outputs for ip in orders.addresses(out.tables, out.order)]
    back = at + 5
    assert ran == [at, resolver, CALLEE + 0x1020, back] + [at, CALLEE + 0x1020, back] * 3
    assert repair.counts["call_updated"] == 1
    assert repair.counts["searches"] == 0


def test_a_call_is_bound_between_two_choices_of_one_search() -> None:
    """Two calls are read as something else, were not bound, and are bound to C's method, which runs like B's. The
    resolver goes there for the first one before the second one is contradicted."""
    image = CodeImage()
    at, resolver, other, idle = CALLER + 0x20, STUBS["resolve_static_call"], CALLER + 0x30, CALLER + 0x60
    code = bytearray(caller(to=resolver, stubs=0))
    code[0x30:0x35], code[0x68:0x6A] = call(other, resolver), b"\x74\x00"
    for jump in (0x25, 0x35, 0x60):
        code[jump : jump + 2] = b"\xff\xe0"  # jmp rax
    callees(image)
    pcs = [(0x25, [(1, 0)]), (0x35, [(1, 0)])]
    image.feed(Writer(tsc=950).nmethod_load(CALLER, bytes(code), 1, pcs, level=3).bytes())
    for site in (at, other):
        image.feed(Writer().code_patch(site, 1500, 1900, call(site, CALLER + 0x68)).bytes())
    flow = Flow(PtConfig())
    flow.set_code(image.view(2000))
    flow.jumps = OfImage(image).now()
    repair = Repair(flow, image, 1000)
    method, idles = CALLEE + 0x1020, 40
    first = (w.tip(method) + w.tnt8("!") + w.tip(other)) + (w.tip(method) + w.tnt8("!"))
    again = w.tip(at) + w.tnt8("!") + w.tip(other) + w.tnt8("!")
    trace = w.psb() + w.mode_exec(64) + w.fup(at) + w.psbend() + first + w.tip(idle) * idles + again + w.tip(idle) * 4
    piece = segment(trace, tsc=(2000, 2100))
    repair.begin(piece)
    outputs = flow.feed(piece)
    assert not any(len(out.breaks) for out in outputs)
    ran = [int(ip) for out in outputs for ip in orders.addresses(out.tables, out.order)]
    both = [at, resolver, method, at + 5, other, resolver, method, other + 5]
    bound = [at, method, at + 5, other, method, other + 5]
    assert ran[: len(both)] == both
    assert ran[len(both) + idles :][: len(bound)] == bound
    assert repair.counts["call_updated"] == 2
