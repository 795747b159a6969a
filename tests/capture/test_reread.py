"""Changes of code without an event: a process whose memory we write, and an export that we make up."""

from __future__ import annotations

import ctypes
import errno
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capture.code_poller import poller as reread
from capture.code_poller.memory import PAGE
from capture.code_poller.poller import LONGEST, CodePoller
from capture.live.drain import Drain
from jvm.export import records as export
from jvm.export.parse import iter_records
from stages.messages import JitBatch
from tests.capture import jitwriter
from tests.capture.codechild import CodeChild
from tests.jvm.exportwriter import Writer

PAGES = 16
CODE = bytes(range(16, 80))


@pytest.fixture(scope="module")
def shared_child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CodeChild]:
    with CodeChild(tmp_path_factory.mktemp("child") / "memory", PAGES) as child:
        yield child


@pytest.fixture
def child(shared_child: CodeChild) -> CodeChild:
    shared_child.memory[:] = 0
    return shared_child


class Scene:
    """A CodePoller with clocks of its own: TSC counts up with each reading of it, CPU time by `page_cost` a look."""

    def __init__(self, child: CodeChild, low: int | None = None, cost: float = 0.0) -> None:
        self.child, self.low = child, child.address if low is None else low
        self.seconds = 100.0
        self.cost = cost
        self._ticks, self._cpu = itertools.count(10_000, 10), 0.0
        self.poller = CodePoller(
            child.pid, now=lambda: next(self._ticks), clock=lambda: self.seconds, cpu=self._cpu_time
        )
        self.learn(Writer().code_cache(self.low, self.low + PAGES * PAGE))
        self.poller.look()

    def _cpu_time(self) -> float:
        self._cpu += self.cost
        return self._cpu

    def learn(self, writer: Writer) -> None:
        self.poller.learn(writer.bytes())

    def load(self, offset: int, code: bytes = CODE, tsc: int = 5000) -> None:
        """Writes code into the child and tells of it as an nmethod."""
        self.child.put(offset, code)
        self.learn(Writer(tsc).nmethod_load(self.low + offset, code, 1))

    def stub(self, offset: int, code: bytes, told: bytes | None = None) -> None:
        self.child.put(offset, code)
        self.learn(Writer(5000).dynamic_code(self.low + offset, "stub", code if told is None else told))

    def look(self, seconds: float = 0.2) -> list[export.CodePatch]:
        """The changes found after so many seconds."""
        self.seconds += seconds
        records = list(iter_records(self.poller.look()))
        assert all(isinstance(record, export.CodePatch) for record in records)
        return records  # type: ignore[return-value]

    def patches(self) -> list[tuple[int, bytes]]:
        return [(record.address - self.low, bytes(record.code)) for record in self.look() if len(record.code)]


def test_a_change_is_told_with_the_times_between_which_it_was_made(child: CodeChild) -> None:
    scene = Scene(child)
    scene.load(100)
    assert [bytes(r.code) for r in scene.look()] == [b""]
    child.put(104, b"\xaa\xbb\xcc")
    first, mark = scene.look()
    assert (first.address, bytes(first.code), first.tsc, first.tid) == (
        child.address + 104,
        b"\xaa\xbb\xcc",
        first.after,
        0,
    )
    child.put(104, b"\x11")
    second, last = scene.look()
    assert bytes(second.code) == b"\x11"
    # The reading that found the first change is the last one to have had the bytes before the second.
    assert 5000 < first.before < second.before < first.after < second.after
    assert mark.before == second.before
    assert last.before < second.after <= last.after
    assert scene.patches() == []


def test_the_first_change_is_later_than_the_telling(child: CodeChild) -> None:
    scene = Scene(child)
    scene.load(100, tsc=7000)
    child.put(104, b"\xaa")
    assert scene.look()[0].before == 7000


def test_only_what_was_told_of_is_told(child: CodeChild) -> None:
    scene = Scene(child)
    scene.load(100)
    child.put(90, b"\1" * 9)
    child.put(100 + len(CODE), b"\1\2\3")
    assert scene.patches() == []
    child.put(98, b"\5\5\5\5")
    assert scene.patches() == [(100, b"\5\5")]
    scene.learn(Writer(6000).nmethod_unload(scene.low + 100, 1))
    child.put(110, b"\xaa")
    assert scene.patches() == []


def test_changes_over_the_end_of_a_page(child: CodeChild) -> None:
    scene = Scene(child)
    scene.load(PAGE - 32)
    child.put(PAGE - 2, b"\xaa\xbb\xcc\xdd")
    assert scene.patches() == [(PAGE - 2, b"\xaa\xbb"), (PAGE, b"\xcc\xdd")]


def test_filling_is_no_code(child: CodeChild) -> None:
    scene = Scene(child)
    scene.stub(100, bytes(200))
    child.put(150, b"\xe9\1\2\3\4")  # a stub is filled in
    assert scene.patches() == [(150, b"\xe9\1\2\3\4")]
    child.put(150, bytes(5))  # and cleared
    assert scene.patches() == []
    child.put(150, b"\xe9\1\2\3\4")
    assert scene.patches() == []


def test_other_code_in_place_of_an_nmethod_waits_for_its_load(child: CodeChild) -> None:
    scene = Scene(child)
    scene.load(100)
    other = bytes(reversed(CODE))
    scene.look()
    child.put(100, other)
    assert scene.patches() == []
    assert scene.poller.counts["overwritten"] == 1
    child.put(102, b"\1")
    assert scene.patches() == []
    scene.load(100, other, tsc=9000)
    child.put(104, b"\2")
    assert scene.patches() == [(104, b"\2")]


def test_many_patches_side_by_side_are_no_other_code(child: CodeChild) -> None:
    """C1 under -Xcomp patches each access of a class's initializer: 44 bytes of one were seen in one run."""
    scene = Scene(child)
    scene.load(PAGE - 100, CODE * 4)
    for at in range(0, 48, 16):
        child.put(PAGE - 60 + at, b"\xe9\1\2\3\4\5\6\7\x09")
    child.put(PAGE + 20, b"\xbb")
    found = scene.patches()
    assert [at for at, _ in found] == [PAGE - 60, PAGE + 20]
    assert len(found[0][1]) > LONGEST
    assert scene.poller.counts["overwritten"] == 0


@pytest.mark.parametrize(
    ("instruction", "at", "size", "told"),
    [
        (b"\x41\x81\x7f\x20\1\0\0\0", 4, 4, False),  # cmp dword [r15+0x20], imm32
        (b"\x41\x81\xbf\x20\1\0\0\1\0\0\0", 7, 4, False),
        (b"\x41\x81\xbf\x20\1\0\0\1\0\0\0", 3, 4, True),
        (b"\x48\xb8\1\2\3\4\5\6\7\x08", 2, 8, False),  # mov rax, imm64
        (b"\x49\xba\1\2\3\4\5\6\7\x08", 4, 2, False),
        (b"\x49\xba\1\2\3\4\5\6\7\x08", 1, 2, True),
        (b"\xe8\1\2\3\4", 1, 4, True),
        (b"\x0f\x84\1\2\3\4", 3, 2, True),
        (b"\x48\xb8\1\2\3\4\5\6\7\x08\xe8\1\2\3\4", 11, 4, True),
        (b"\x48\xb8\xe8\2\3\4\5\6\7\x08", 3, 1, True),  # could be a call's: told
        (b"\xe9\1\2\3\4", 0, 5, True),
    ],
)
def test_operands_that_steer_nothing(child: CodeChild, instruction: bytes, at: int, size: int, told: bool) -> None:
    scene = Scene(child)
    code = b"\x90" * 20 + instruction + b"\x90" * 20
    scene.load(100, code)
    new = bytes(byte ^ 0x55 for byte in instruction[at : at + size])
    child.put(120 + at, new)
    assert scene.patches() == ([(120 + at, new)] if told else [])
    assert scene.patches() == []


def test_two_operands_side_by_side_are_judged_one_by_one(child: CodeChild) -> None:
    scene = Scene(child)
    constants = b"\x48\xb8\1\2\3\4\0\0\0\0\x48\xbe\5\6\7\x08\0\0\0\0"  # mov rax, imm64; mov rsi, imm64
    scene.load(100, constants + b"\xe8\1\2\3\4")
    child.put(102, b"\x11\x12\x13\x14")
    child.put(112, b"\x15\x16\x17\x18")  # as a collector that moves both objects does
    assert scene.patches() == []
    child.put(112, b"\x25\x26\x27\x28")
    child.put(121, b"\x31\x32\x33\x34")
    assert scene.patches() == [(112, b"\x25\x26\x27\x28\0\0\0\0\xe8\x31\x32\x33\x34")]


def test_an_unload_that_is_told_late_ends_only_its_own_code(child: CodeChild) -> None:
    """JVMTI's events of one address come from several threads: the Service Thread's queue may lag behind a stub's
    maker, or a replay."""
    scene = Scene(child)
    scene.load(100)
    scene.stub(100, CODE)
    scene.learn(Writer(6000).nmethod_unload(scene.low + 100, 1))
    child.put(110, b"\xaa")
    assert scene.patches() == [(110, b"\xaa")]
    scene.load(300)
    scene.learn(Writer(7000).nmethod_load(scene.low + 300, CODE, 2))
    scene.learn(Writer(7001).nmethod_unload(scene.low + 300, 1))
    child.put(310, b"\xbb")
    assert scene.patches() == [(310, b"\xbb")]
    scene.learn(Writer(7002).nmethod_unload(scene.low + 300, 2))
    child.put(310, b"\xcc")
    assert scene.patches() == []


def test_an_operand_at_the_very_beginning(child: CodeChild) -> None:
    scene = Scene(child)
    scene.load(0, b"\x48\xb8" + CODE)
    child.put(2, b"\1\2")
    child.put(30, b"\3")
    assert scene.patches() == [(30, b"\3")]


def test_code_that_lies_elsewhere_in_the_process(child: CodeChild) -> None:
    scene = Scene(child, low=0x7000_0000_0000)
    scene.load(100)
    child.put(104, b"\xaa")
    assert scene.patches() == [(104, b"\xaa")]
    assert scene.poller.fault == ""


def test_code_that_is_not_there_is_said_once(child: CodeChild) -> None:
    scene = Scene(child, low=0x7000_0000_0000)
    scene.learn(Writer().dynamic_code(scene.low + 64, "stub", CODE))
    assert scene.patches() == []
    assert "its code is not found" in scene.poller.fault
    assert scene.patches() == []


def test_no_permission(child: CodeChild, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(child)
    scene.load(100)

    def refuse(*_: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    monkeypatch.setattr(scene.poller._memory, "_readv", refuse)
    assert scene.patches() == []
    assert "Operation not permitted" in scene.poller.fault
    assert "\n" not in scene.poller.fault


def test_a_process_that_ends_is_no_fault(tmp_path: Path) -> None:
    with CodeChild(tmp_path / "memory", PAGES) as child:
        scene = Scene(child)
        scene.load(100)
        assert len(scene.look()) == 1
    assert scene.patches() == []
    assert scene.poller.fault == ""


def test_pages_that_are_not_mapped_are_passed_over(child: CodeChild) -> None:
    scene = Scene(child)
    scene.learn(Writer().code_cache(child.address, child.address + (PAGES + 64) * PAGE))
    scene.load(100)
    scene.learn(Writer().dynamic_code(child.address + (PAGES + 60) * PAGE, "stub", CODE))
    scene.load(3 * PAGE)
    for offset in (104, 3 * PAGE + 4):
        child.put(offset, b"\xaa")
    assert [offset for offset, code in scene.patches() if code == b"\xaa"] == [104, 3 * PAGE + 4]
    assert scene.poller.fault == ""


def test_nonsense_is_left_out(child: CodeChild) -> None:
    scene = Scene(child)
    scene.learn(Writer().code_cache(0, 1 << 63).code_cache(9, 3))
    scene.learn(Writer().nmethod_load((1 << 64) - 8, CODE, 1).nmethod_load(scene.low - 8, CODE, 1))
    scene.learn(Writer().code_patch((1 << 64) - 1, 1, 2, CODE).nmethod_unload(7, 1))
    scene.poller.learn(b"\1\2\3")
    scene.load(100)
    child.put(100, b"\xaa")
    assert scene.patches() == [(100, b"\xaa")]
    assert scene.poller.counts["bad_records"] == 1


def test_the_budget_is_kept_and_every_page_gets_its_turn(child: CodeChild) -> None:
    """A look costs 5 ms here, more than a tenth of a second allows: they become rarer."""
    scene = Scene(child, cost=0.005)
    for page in range(PAGES):
        scene.load(page * PAGE)
    found = 0
    for second in range(50):
        for page in range(PAGES):
            child.put(page * PAGE + 8, bytes([200 + second % 2]))
        for _ in range(50):
            found += len([r for r in scene.look(0.02) if len(r.code)])
    spent = scene.poller.spent
    assert 0.5 < spent / (50 * reread.SHARE) <= 1.0
    assert found > 50 * PAGES // 2
    assert scene.poller.counts["looks"] >= 150


def test_pages_that_change_are_read_more_often(child: CodeChild) -> None:
    scene = Scene(child)
    for page in range(PAGES):
        scene.load(page * PAGE)
    scene.look()
    scene.seconds += 60
    found = []
    for n in range(64):
        child.put(5 * PAGE + 8, bytes([100 + n]))
        scene.poller._page_cost = 1.0  # so that only as many are read as there is CPU time for
        scene.poller._saved = 3.0
        scene.poller.share = 0.0
        records, read = scene.poller._look(3, scene.seconds)
        assert read == 3
        found.append(len([r for r in iter_records(records) if len(r.code)]))  # type: ignore[attr-defined]
    assert sum(found) > 64 * 3 // PAGES * 2  # a page among equals would be read 12 times
    assert int((scene.poller._seen > 10_000).sum()) == PAGES


def test_a_load_brings_the_next_look_forward(child: CodeChild) -> None:
    scene = Scene(child)
    scene.load(100)
    scene.look()
    child.put(104, b"\xaa")
    assert scene.look(0.03) == []
    scene.load(300)
    assert [bytes(r.code) for r in scene.look(0.03)][:1] == [b"\xaa"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("load"), st.integers(0, 30), st.integers(1, 9)),
            st.tuples(st.just("unload"), st.integers(0, 30), st.just(0)),
            st.tuples(st.just("write"), st.integers(0, 2000), st.integers(1, 20)),
            st.tuples(st.just("look"), st.just(0), st.just(0)),
        ),
        max_size=40,
    )
)
def test_what_is_told_is_what_is_there(child: CodeChild, steps: list[tuple[str, int, int]]) -> None:
    """Loads and patches, applied in order, give the memory of the nmethods that stand."""
    child.memory[:] = 0
    scene = Scene(child)
    told = np.zeros(PAGES * PAGE, np.uint8)
    standing: dict[int, int] = {}

    def look() -> None:
        for offset, code in scene.patches():
            told[offset : offset + len(code)] = np.frombuffer(code, np.uint8)

    for n, (what, at, size) in enumerate(steps):
        if what == "load":
            start, code = PAGE - 1024 + 64 * at, bytes([1 + n]) * (64 * size)
            for other in [o for o, end in standing.items() if o < start + len(code) and start < end]:
                del standing[other]
            scene.load(start, code)
            told[start : start + len(code)] = 1 + n
            standing[start] = start + len(code)
        elif what == "unload":
            start = PAGE - 1024 + 64 * at
            if standing.pop(start, None):
                scene.learn(Writer(6000).nmethod_unload(scene.low + start, 1))
        elif what == "write":
            child.put(PAGE - 1024 + at, bytes([100 + n]) * size)
            look()
        else:
            look()
    look()
    for start, end in standing.items():
        assert np.array_equal(told[start:end], child.memory[start:end])


# ---- in a session


def test_patches_go_the_way_of_the_agents_records(child: CodeChild, tmp_path: Path) -> None:
    (tmp_path / "pt").mkdir()
    (tmp_path / "pt/emulator.json").write_text(f'{{"version": 1, "pid": {child.pid}, "state": "running"}}')
    agent = jitwriter.Agent(tmp_path / f"jit-{child.pid}.ring", child.pid)
    ticks = itertools.count(1000, 1000)

    def told(drain: Drain) -> list[export.Record]:
        for spool in drain._spools.values():
            assert spool.poller is not None
            spool.poller._last -= 1.0
        batches = [m for m in drain.poll() if isinstance(m, JitBatch)]
        return [record for batch in batches for record in iter_records(batch.data)]

    drain = Drain(tmp_path, host="h", now=lambda: next(ticks))
    child.put(64, CODE)
    agent.write(Writer().code_cache(child.address, child.address + PAGES * PAGE).bytes())
    agent.write(jitwriter.dynamic_code(child.address + 64, CODE))
    kinds = {type(r) for r in told(drain) + told(drain)}
    assert {export.CodeCache, export.DynamicCode} <= kinds
    child.put(70, b"\xaa\xbb")
    (patch,) = (r for r in told(drain) if isinstance(r, export.CodePatch) and len(r.code))
    assert (patch.address, bytes(patch.code)) == (child.address + 70, b"\xaa\xbb")
    assert drain.statistics()["reread_patches"] == 1
    drain.close()
    # A capture that is started again knows the changes told before, and tells them to workers that do not.
    again = Drain(tmp_path, host="h", now=lambda: next(ticks))
    whole = told(again)
    assert [bytes(r.code) for r in whole if isinstance(r, export.CodePatch) and len(r.code)] == [b"\xaa\xbb"]
    told(again)
    told(again)
    child.put(70, b"\xcc")
    assert [bytes(r.code) for r in told(again) if isinstance(r, export.CodePatch) and len(r.code)] == [b"\xcc"]
    assert again.faults == []
    again.close()
    without = Drain(tmp_path, host="h", reread_share=0, now=lambda: next(ticks))
    without.poll()
    assert all(spool.poller is None for spool in without._spools.values())
    without.close()
    agent.close()
