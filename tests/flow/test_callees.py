"""The targets that a Java call may lead to by its bytecode."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import streamer.demo
from capture.recording.replay import Replay
from jvm.bytecode.class_file import Invoked
from jvm.calls import call_sites as calls
from jvm.calls.stubs import Stub, stub_of
from jvm.code.image import CodeImage
from jvm.code.version import FOREVER, Kind
from jvm.export import records as export
from jvm.export.parse import iter_records
from stages.follow.repair import call_targets
from stages.follow.repair.backtracking_search import Choice
from stages.follow.repair.call_table import ANY, OWN, CallTable
from stages.follow.repair.call_targets import Callees
from stages.follow.repair.candidates import FAR, LAST, ROOM, V_FAR, V_TARGET, VA
from stages.follow.repair.image_entries import ImageEntries
from stages.follow.repair.known import WINDOW
from stages.follow.repair.observed_targets import fingerprint
from stages.follow.repair.resolved_calls import ResolvedCalls
from stages.messages import JitBatch
from tests.flow.test_candidates import _candidates
from tests.flow.test_choice import LOOP, TWICE, call, chosen, laid_out, patches
from tests.jvm.exportwriter import Writer
from tests.jvm.test_classfile import INTERFACE_METHODREF, METHODREF, OPCODES, Made
from tests.jvm.test_classfile import call as invoke
from tests.pt.machine import BASE

CALLER, CALLEE, OTHER, ADAPTER = 0x10000, 0x20000, 0x30000, 0x40000
TOP = "java/lang/Object"
STUB = 0x40  # offset of the caller's own stub, behind its call at 0x20


def image_of(opcode: str, checks: bool = False, level: int = 3, stubs: int = 1) -> CodeImage:
    image = CodeImage()
    image.feed(written(opcode, checks, level, stubs).bytes())
    return image


def written(opcode: str, checks: bool = False, level: int = 3, stubs: int = 1) -> Writer:
    """A.main calls B.work()V; that is compiled in B, C and D, where it takes an int."""
    made = Made()
    tag = INTERFACE_METHODREF if opcode == "invokeinterface" else METHODREF
    made.method("main", "()V", invoke(OPCODES[opcode], made.ref("work", "()V", "B", tag)))
    w = Writer(tsc=100).class_def(1, "A", made.bytes()).class_(1, "LA;", 1).method(1, "LA;", "main")
    adapter = b"\x90" * 0x20 + b"\x41\xff\xe3" + b"\x90" * 0x1D  # jmp r11
    w.dynamic_code(ADAPTER, "I2C/C2I adapters", adapter)
    for k, (holder, signature) in enumerate((("LB;", "()V"), ("LC;", "()V"), ("LD;", "(I)V"))):
        at = CALLEE + 0x1000 * k
        w.method(2 + k, holder, "work", signature, class_id=0)
        w.nmethod_load(at, bytes(64), 2 + k, entry=at, verified_entry=at + 0x20)
    return w.nmethod_load(CALLER, caller(checks=checks, stubs=stubs), 1, [(0x25, [(1, 0)])], level=level)


def caller(at: int = CALLER, to: int = ADAPTER, lands: int = ADAPTER, checks: bool = False, stubs: int = 1) -> bytes:
    """Its call leads to `to`, its own stubs to `lands`."""
    code = bytearray(b"\x90" * 0x80)
    code[0x20:0x25] = call(at + 0x20, to, 0xE8)
    if checks:
        code[0x16:0x18] = b"\x48\xb8"  # mov rax, imm64
    for k in range(stubs):
        stub = STUB + 16 * k
        code[stub : stub + 2] = b"\x48\xbb"  # mov rbx, imm64
        code[stub + 10 : stub + 15] = call(at + stub + 10, lands, 0xE9)
    return bytes(code)


def candidates(image: CodeImage) -> tuple[int, set[int]]:
    """Of the only call: its own stub, and where else it may go."""
    table = Callees(image).now()
    assert table.site.tolist() == [CALLER + 0x20]
    return int(table.stub[0]), set(entries(table, 0))


def entries(table: CallTable, call: int) -> dict[int, int]:
    """Where a call may go, but for its own stub, and whether that is a guess; as `candidates` offers it."""
    callee, checked = int(table.callee[call]), bool(table.checked[call])
    name, owner, kind = (int(column[callee]) for column in (table.name, table.owner, table.kind))
    of_name = table.entry_name == name
    own = of_name & ((table.holder == owner) | (table.holder == table.declared[callee]))
    if kind == OWN or (kind == ANY and own.any()):
        of_name = own
    compiled = table.unverified if checked else table.verified
    found = {int(compiled[k]): int(not own[k]) for k in np.flatnonzero(of_name)}
    if checked:
        found |= dict.fromkeys(table.adapter[table.adapter_key == 2 * table.arguments[callee] + 1].tolist(), 0)
        led = table.led[table.led_callee == callee].tolist()
        found |= dict.fromkeys(led if led else table.table[table.table_kind == kind].tolist(), int(not led))
    return found


def test_a_static_call_goes_to_its_class() -> None:
    assert candidates(image_of("invokestatic")) == (CALLER + STUB, {CALLEE + 0x20})


def test_a_virtual_call_goes_to_any_class() -> None:
    assert candidates(image_of("invokevirtual")) == (CALLER + STUB, {CALLEE + 0x20, CALLEE + 0x1020})


@pytest.mark.parametrize(
    ("compiled", "above", "expected"),
    [
        ("Top", TOP, True),
        ("Other", "B", True),
        ("Other", TOP, False),
        ("Other", None, True),
    ],
)
def test_what_is_compiled_of_an_inherited_method(compiled: str, above: str | None, expected: bool) -> None:
    """B inherits work from Top. That of one class is compiled: of Top, of an heir, of a stranger, of one not known."""
    top, other = Made(), Made()
    top.method("work", "()V", None)
    w = Writer(tsc=50).class_def(11, "Top", top.bytes(above=TOP)).class_(11, "LTop;", 11)
    w.class_def(12, "B", Made().bytes(above="Top")).class_(12, "LB;", 12)
    w.class_def(14, TOP, Made().bytes()).class_(14, "Ljava/lang/Object;", 14)
    if above:
        w.class_def(13, "Other", other.bytes(above=above)).class_(13, "LOther;", 13)
    made = Made()
    made.method("main", "()V", invoke(OPCODES["invokevirtual"], made.ref("work", "()V", "B", METHODREF)))
    w.class_def(1, "A", made.bytes()).class_(1, "LA;", 1).method(1, "LA;", "main")
    w.method(2, f"L{compiled};", "work", "()V", class_id=0)
    w.nmethod_load(CALLEE, bytes(64), 2, entry=CALLEE, verified_entry=CALLEE + 0x20)
    w.nmethod_load(CALLER, caller(), 1, [(0x25, [(1, 0)])], level=3)
    image = CodeImage()
    image.feed(w.bytes())
    callees = Callees(image)
    assert callees.compiled(CALLER + 0x20, 1000) == (CALLEE + 0x20 if expected else 0)
    guess = entries(callees.now(), 0)[CALLEE + 0x20]
    assert guess == (compiled != "Top")


def test_a_call_that_looks_at_the_receiver_goes_to_the_entry_that_checks() -> None:
    """C2 writes no stub for it, C1 does, but it never goes there."""
    entries = {CALLEE, CALLEE + 0x1000, ADAPTER}
    assert candidates(image_of("invokeinterface", checks=True)) == (0, entries)
    assert candidates(image_of("invokeinterface", checks=True, level=4, stubs=0)) == (0, entries)


def test_a_class_file_that_is_told_late_is_asked_then() -> None:
    again = CodeImage()
    records = list(iter_records(written("invokestatic").bytes()))
    for record in records:
        if not isinstance(record, export.ClassDef):
            again.apply(record)
    callees = Callees(again)
    assert callees.now().callee.tolist() == [-1]
    assert callees.now().stub.tolist() == [CALLER + STUB]
    for record in records:
        if isinstance(record, export.ClassDef):
            again.apply(record)
    again.feed(Writer(tsc=900).dynamic_code(0x50000, "x", bytes(8)).bytes())  # another epoch
    assert callees.now().callee.tolist() == [0]


def test_the_stubs_of_tables_are_guesses_till_a_call_led_there() -> None:
    image = image_of("invokevirtual", checks=True)
    for k, (address, name) in enumerate(((0x50000, "vtable"), (0x60000, "itable"), (0x70000, "vtable"))):
        image.feed(Writer(tsc=900 + k).dynamic_code(address, f"{name} stub(1)", bytes(32)).bytes())
    callees = Callees(image)
    compiled = {CALLEE: 0, CALLEE + 0x1000: 1, ADAPTER: 0}
    assert entries(callees.now(), 0) == {**compiled, 0x50000: 1, 0x70000: 1}
    bound = call(CALLER + 0x20, 0x70000, 0xE8)
    image.feed(Writer(tsc=1000).code_patch(CALLER + 0x20, 950, 1000, bound).bytes())
    assert entries(callees.now(), 0) == {**compiled, 0x70000: 0}  # a callee has one place in a table
    assert (callees.now().namesake.tolist(), callees.now().namesake_led.tolist()) == ([0], [0x70000])
    assert (callees.now().claimed.tolist(), callees.now().claim.tolist()) == ([0x70000], [int(callees.now().owner[0])])


@pytest.mark.parametrize(
    ("tsc", "expected"),
    [
        (900, [0x70000, 0x60000]),  # the last is not there yet
        (5100, [0x80000, 0x70000, 0x60000]),  # made just now, so most likely for a call that is bound now
        (5500, [0x80000, 0x70000, 0x60000]),  # nothing led there, so rather than where some did
    ],
)
def test_of_the_stubs_of_tables_rather_one_that_nothing_led_to(tsc: int, expected: list[int]) -> None:
    """And never where another method of the class has its place."""
    image = CodeImage(lateness=50)
    begun = (
        Writer(tsc=10).interpreter(0x1000, bytes(64)).codelet(0x1000, 0x1010, 182, "x").replay_begin(1).replay_end(1)
    )
    image.feed(begun.bytes() + written("invokevirtual", checks=True).bytes())
    for tsc_made, address in ((200, 0x50000), (300, 0x60000), (400, 0x70000), (5000, 0x80000)):
        image.feed(Writer(tsc=tsc_made).dynamic_code(address, "vtable stub(1)", bytes(32)).bytes())
    other, same = (Made() for _ in range(2))
    for made, owner, name in ((other, "X", "play"), (same, "B", "rest")):
        made.method("main", "()V", invoke(0xB6, made.ref(name, "()V", owner)))
    for k, (made, to) in enumerate(((other, 0x60000), (same, 0x50000))):
        at = 0x90000 + 0x1000 * k
        w = Writer(tsc=500).class_def(5 + k, f"M{k}", made.bytes()).class_(5 + k, f"LM{k};", 5 + k)
        w.method(10 + k, f"LM{k};", "main", class_id=5 + k)
        image.feed(w.nmethod_load(at, caller(at, to, checks=True), 10 + k, [(0x25, [(10 + k, 0)])], level=3).bytes())
    slack = 1000
    known = ImageEntries(image).add(patches((BASE, b"\x90", b"\x91", 1, 2)))._replace(calls=Callees(image).now())
    buffer, found = np.zeros(ROOM * WINDOW, np.uint8), np.zeros(ROOM * VA, np.int64)
    buffer[:5] = np.frombuffer(call(CALLER + 0x20, ADAPTER, 0xE8), np.uint8)
    rows = found.reshape(-1, VA)[
        : int(_candidates(known.raw(), CALLER + 0x20, WINDOW, tsc, slack, buffer, found))
    ].tolist()
    offered = {row[V_TARGET]: row[V_FAR] for row in rows if row[V_TARGET] in range(0x50000, 0x90000)}
    assert list(offered) == expected
    assert list(offered.values()) == [FAR if at == 0x80000 and tsc == 5100 else LAST for at in expected]


def test_the_adapter_that_one_call_came_to_is_that_of_all_with_such_arguments() -> None:
    image, other = image_of("invokestatic"), 0x90000
    code = caller(other, other, other + STUB + 10)  # its stub's JMP leads to itself: not bound yet
    image.feed(Writer(tsc=950).nmethod_load(other, code, 1, [(0x25, [(1, 0)])], level=3).bytes())
    table = Callees(image).now()
    assert table.jump.tolist() == [at + STUB + calls.STUB_JUMP for at in (CALLER, other)]
    assert table.adapter_key.tolist() == [2 * int(table.arguments[callee]) for callee in set(table.jump_callee)]
    assert table.adapter.tolist() == [ADAPTER]


@pytest.mark.parametrize(
    ("opcode", "descriptor", "expected"),
    [
        (0xB8, "()V", ""),
        (0xB6, "()V", "L"),
        (0xB8, "(ZBCSI)J", "IIIII"),
        (0xB9, "(J[JF[[Ljava/lang/Object;DLA;)LB;", "LJLFLDL"),
        (0xB8, "", ""),
        (0xB8, "(LA", ""),
    ],
)
def test_the_fingerprint_of_arguments(opcode: int, descriptor: str, expected: str) -> None:
    assert fingerprint(Invoked(opcode, "A", "f", descriptor)) == expected


def test_stubs_that_do_not_come_out_even_are_nobodys() -> None:
    image = image_of("invokestatic", stubs=2)
    assert candidates(image)[0] == 0
    # but a target where the call has been seen to go is as good
    assert to_adapter(image, ADAPTER) == (CALLER + STUB, True)
    assert to_adapter(image, ADAPTER + 1) == (ADAPTER + 1, False)


def to_adapter(image: CodeImage, target: int) -> tuple[int, bool]:
    adapter = image.at(ADAPTER, FOREVER - 1)
    assert adapter is not None
    return Callees(image).to_adapter(CALLER + 0x20, target, adapter, FOREVER - 1)


def test_a_call_that_looks_at_the_receiver_comes_to_an_adapter_by_its_check() -> None:
    image = image_of("invokevirtual", checks=True)
    assert to_adapter(image, ADAPTER + 0x30) == (ADAPTER + 0x23, False)
    assert to_adapter(image, ADAPTER + 0x10) == (ADAPTER + 0x10, False)  # not behind it


@pytest.mark.parametrize("opcode", ["invokestatic", "invokevirtual"])
def test_a_call_that_went_to_an_adapter_goes_through_its_stub(opcode: str) -> None:
    image = image_of(opcode)
    resolved = ResolvedCalls(image, Callees(image))
    resolved.add([(CALLER + 0x25, ADAPTER)], 5000)
    assert resolved.branches.address.tolist() == [CALLER + 0x20, CALLER + STUB + calls.STUB_JUMP]
    assert resolved.branches.value.tolist() == [[CALLER + STUB, 0], [ADAPTER, 1]]


def test_a_callee_is_offered_and_marked() -> None:
    made = Made()
    made.method("main", "()V", invoke(0xB8, made.ref("work", "()V", "B")))
    stub = BASE + 0x80
    not_bound = b"\x48\xbb" + bytes(8) + call(stub + 10, stub + 10, 0xE9)  # its JMP leads to itself
    code = laid_out(*LOOP, (0x80, not_bound))
    image = CodeImage()
    writer = Writer(tsc=100).class_def(1, "A", made.bytes()).class_(1, "LA;", 1).method(1, "LA;", "main")
    writer.method(2, "LB;", "work", class_id=0)
    writer.nmethod_load(BASE, code[:0x100], 1, [(5, [(1, 0)])], level=3)
    writer.nmethod_load(BASE + 0x1C0, code[0x1C0:], 2, verified_entry=BASE + 0x200)
    image.feed(writer.bytes())
    callees = Callees(image).now()
    assert callees.stub.tolist() == [stub]
    known = ImageEntries(image).add(patches((BASE + 0x300, b"\x90", b"\x91", 1, 2)))._replace(calls=callees)
    known = known._replace(resolved=np.array([stub + 10]), branch=np.array([[BASE + 0x100, 1]]))
    assert chosen(code, TWICE, known) == [Choice(0, BASE, call(BASE, BASE + 0x200), True)]


def test_the_calls_of_a_real_jvm() -> None:
    """Wherever the code has a call that leads to a compiled method, that is one of its candidates; where it leads to a
    stub in its own nmethod, that is the one said to be its own."""
    image = CodeImage()
    with Replay(Path(streamer.demo.__file__).parent / "shop.json") as replay:
        for message in replay.messages():
            if isinstance(message, JitBatch):
                image.feed(message.data)
    table = Callees(image).now()
    at = {int(site): k for k, site in enumerate(table.site)}
    seen: Counter[str] = Counter()
    for version in image.versions():
        if version.kind != Kind.NMETHOD:
            continue
        assert version.debug is not None
        code = image.code(version)
        offsets, _ = calls.sites(code, version.debug)
        for offset, to in zip(offsets.tolist(), calls.targets(code, version.start, offsets).tolist(), strict=True):
            k = at.get(version.start + offset)
            led = image.at(to, FOREVER - 1)
            if led is version:
                assert k is not None
                assert table.stub[k] == to
                seen["own stub"] += 1
            elif led is not None and led.kind == Kind.NMETHOD:
                assert k is not None
                if to in entries(table, k):
                    seen["compiled"] += 1
                else:  # bytecode does not tell the target of a method handle
                    assert led.name.startswith("java.lang.invoke.")
                    seen["linked"] += 1
            elif k is not None:
                assert led is None or stub_of(led) is not None
                seen["stub"] += 1
            else:
                assert led is None or stub_of(led) not in (Stub.RESOLVE_STATIC, Stub.VTABLE, Stub.ITABLE)
                seen["runtime"] += 1
    assert seen["own stub"] > 5
    assert seen["compiled"] > 50 > seen["linked"]
    assert seen["stub"] > 50
    assert seen["runtime"] > 500
    assert np.all(np.diff(table.site) > 0)


def test_what_is_taken_in_by_steps_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch by batch, with searches now and then; code that is gone is dropped without one."""
    monkeypatch.setattr(call_targets, "SPARE", 64)
    monkeypatch.setattr(call_targets, "VERSIONS", 2)
    image, plain = CodeImage(0), CodeImage(0)
    stepwise, at_once = Callees(image), Callees(plain)
    steps = batches = 0
    with Replay(Path(streamer.demo.__file__).parent / "shop.json") as replay:
        for message in replay.messages():
            if not isinstance(message, JitBatch):
                continue
            batches += 1
            for each in (image, plain):
                each.feed(message.data)
                if batches % 10 == 0:
                    each.forget_before(max(v.loaded for v in each.versions()))
            steps += sum(1 for _ in stepwise.prepare())
            assert stepwise._of.keys() == {v.id for v in image.versions() if v.kind == Kind.NMETHOD}
            if batches % 7 == 0:
                compare(stepwise.now(), at_once.now())
    table = stepwise.now()
    assert all(map(np.array_equal, stepwise._sites or (), stepwise._all_sites()))  # put in order bit by bit
    entries_ = sorted(zip(*stepwise._entries, strict=True))
    stepwise._all_entries()
    assert sorted(zip(*stepwise._entries, strict=True)) == entries_
    compare(table, at_once.now())
    assert np.count_nonzero(table.callee >= 0) > 300
    assert steps > 20


def compare(a: CallTable, b: CallTable) -> None:
    """The same calls, and of each the same entries."""
    assert a.site.tolist() == b.site.tolist()
    assert a.stub.tolist() == b.stub.tolist()
    assert a.checked.tolist() == b.checked.tolist()
    assert (a.callee < 0).tolist() == (b.callee < 0).tolist()
    for k in np.flatnonzero(a.callee >= 0)[::97].tolist():
        assert entries(a, k) == entries(b, k)
