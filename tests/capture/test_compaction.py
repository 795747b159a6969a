"""The spool is made anew with the records that still matter, and says the same of the code as it is now."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capture.live.compaction import Compaction
from capture.live.jit import RECENT, JitSpool
from jvm.code.image import CodeImage
from jvm.export import records as export
from jvm.export.parse import iter_records, placed_records
from jvm.export.records import RecordFlag
from jvm.export.ring import file_header
from jvm.export.seal import sealed
from jvm.export.unowned import MOST
from tests.capture.jitwriter import Agent
from tests.jvm.exportwriter import Writer

LOW, HIGH = 0x10000, 0x12000
START = len(file_header(7))


def compacted(path: Path, records: bytes) -> bytes:
    """The records that stay, of a file of all of them."""
    path.write_bytes(file_header(7) + records)
    fd = os.open(path, os.O_RDWR)
    compaction = Compaction(path, fd, START, START + len(records))
    while compaction.step(START + len(records)) is None:
        pass
    os.close(fd)
    return path.read_bytes()[START:]


def code_now(records: bytes) -> dict[int, tuple[bytes, str]]:
    """Bytes and name of all that stands, by address."""
    image = CodeImage()
    image.feed(records)
    view = image.view()
    found = {}
    for start, end, at, id_ in zip(*(column.tolist() for column in view[1:5]), strict=True):
        version = image.version(id_)
        assert version is not None
        found[start] = view.code[at : at + end - start].tobytes(), version.name
    return found


def churn(rounds: int, writer: Writer | None = None, first: int = 0) -> Writer:
    """Classes, methods, code, and threads that come and go."""
    writer = writer or Writer().code_cache(LOW, HIGH)
    for n in range(first, first + rounds):
        address = LOW + n % 16 * 256
        writer.class_def(n + 1, f"C{n}", bytes(100)).class_(n + 1, f"LC{n};", definition=n + 1)
        writer.method(n + 1, f"LC{n};", "run", class_id=n + 1)
        writer.nmethod_load(address, bytes([n % 256]) * 64, n + 1, compile_id=n + 1)
        writer.code_patch(address + 8, writer.tsc - 5, writer.tsc, b"\x90" * 4)
        writer.thread_start(1000 + n, f"worker {n}").thread_end(1000 + n)
        writer.nmethod_unload(address, n + 1).class_unload(n + 1)
    return writer


def test_what_is_gone_leaves_nothing(tmp_path: Path) -> None:
    few, many = (compacted(tmp_path / "jit-7.export", churn(n).bytes()) for n in (3, 3000))
    assert [type(r) for r in iter_records(many)] == [export.CodeCache]
    assert len(few) == len(many)


def test_patches_become_part_of_the_code(tmp_path: Path) -> None:
    writer = Writer().code_cache(LOW, HIGH).method(1, "LA;", "run").nmethod_load(LOW, bytes(16), 1)
    for n in range(1, 200):
        writer.code_patch(LOW + 4, writer.tsc - 5, writer.tsc, bytes([n]))
    (load,) = (r for r in iter_records(compacted(tmp_path / "x", writer.bytes())) if isinstance(r, export.NmethodLoad))
    assert bytes(load.code) == bytes(4) + bytes([199]) + bytes(11)


def test_what_is_needed_stays(tmp_path: Path) -> None:
    """The beginning's end, by which a worker knows that all has been told; threads that run; states; the methods
    before the code that uses them, also when all was told again."""
    writer = Writer().agent_info().code_cache(LOW, HIGH).class_def(9, "A", b"x").class_(1, "LA;", definition=9)
    writer.codelet(LOW + 0x1000, LOW + 0x1010, 21, "iload")
    writer.thread_start(7, "main", flags=RecordFlag.REPLAYED).thread_end(7).thread_start(8, "B")
    writer.method(1, "LA;", "run").nmethod_load(LOW, bytes(16), 1).nmethod_state(LOW, 1, 1)
    writer.replay_begin(1).agent_info().method(1, "LA;", "run")
    writer.nmethod_load(LOW, bytes(16), 1, flags=RecordFlag.REPLAYED).replay_end(1).vm_death()
    kept = list(iter_records(compacted(tmp_path / "x", writer.bytes())))
    assert [type(r).__name__ for r in kept] == [
        "CodeCache", "ClassDef", "Class", "Codelet", "ThreadStart", "ThreadStart", "Method", "NmethodLoad",
        "NmethodState", "AgentInfo", "ReplayEnd", "VmDeath",
    ]  # fmt: skip
    image = CodeImage(10)
    image.feed(compacted(tmp_path / "x", writer.bytes()))
    assert image.settled(10**6)
    assert image.classes.knows(1)


def test_of_stacks_only_the_names_of_their_last_methods_stay(tmp_path: Path) -> None:
    writer, image = Writer().code_cache(LOW, HIGH), CodeImage()
    for n in range(1, MOST + 100):
        writer.method(n, "LA;", f"m{n}", class_id=0).stack(7, [(LOW, n, 3)])
        if n % 50 == 0:
            writer.method(20, "LA;", "m20", class_id=0)  # the agent tells it again, in a replay
    kept = list(iter_records(compacted(tmp_path / "x", writer.bytes())))
    assert [type(r) for r in kept] == [export.CodeCache] + [export.Method] * MOST
    methods = {r.id for r in kept if isinstance(r, export.Method)}
    assert methods == {20, *range(101, MOST + 100)}
    image.feed(writer.bytes())
    assert image.methods.keys() == image.classes.methods.keys() == methods


def test_a_replay_heals(tmp_path: Path) -> None:
    """The unload was lost."""
    writer = Writer().code_cache(LOW, HIGH).method(1, "LA;", "run").nmethod_load(LOW, bytes(16), 1)
    writer.nmethod_load(LOW + 64, bytes(16), 1).replay_begin(1).nmethod_load(LOW, bytes(16), 1).replay_end(1)
    loads = [r for r in iter_records(compacted(tmp_path / "x", writer.bytes())) if isinstance(r, export.NmethodLoad)]
    assert [r.address for r in loads] == [LOW]


SLOT = st.integers(0, 7)
EVENT = st.one_of(
    st.tuples(st.just("load"), SLOT, st.integers(1, 4)),
    st.tuples(st.just("unload"), SLOT, st.just(0)),
    st.tuples(st.just("patch"), SLOT, st.integers(1, 255)),
    st.tuples(st.just("stub"), SLOT, st.integers(1, 2)),
    st.tuples(st.just("class"), st.integers(1, 3), st.just(0)),
    st.tuples(st.just("again"), SLOT, st.just(0)),
)


Loaded = dict[int, tuple[int, int, int]]  # slot → method, compile id, size


def apart(loaded: Loaded, slot: int, size: int) -> Loaded:
    """Code that the code beginning at `slot` does not overlap."""
    return {s: of for s, of in loaded.items() if s * 64 >= slot * 64 + size or s * 64 + of[2] <= slot * 64}


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENT, max_size=40))
def test_the_code_is_the_same(tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int, int]]) -> None:
    writer = Writer().code_cache(LOW, HIGH)
    for n in range(1, 4):
        writer.class_(n, f"LC{n};").method(n, f"LC{n};", "run", class_id=n)
    loaded: Loaded = {}
    for number, (what, slot, value) in enumerate(events, 1):
        address = LOW + slot * 64
        if what == "load":
            method, size = 1 + number % 3, value * 32
            loaded = apart(loaded, slot, size)
            loaded[slot] = method, number, size
            writer.nmethod_load(address, bytes([number]) * size, method, compile_id=number)
        elif what == "unload" and slot in loaded:
            writer.nmethod_unload(address, loaded.pop(slot)[0])
        elif what == "patch":
            writer.tsc += writer.step
            writer.code_patch(address + 4, writer.tsc - 5, writer.tsc, bytes([value]) * 8)
        elif what == "stub":
            loaded = apart(loaded, slot, 32)
            writer.dynamic_code(address, f"stub {value}", bytes([number]) * 32)
        elif what == "class":
            writer.class_unload(slot)
        elif what == "again" and slot in loaded:
            method, compile_id, size = loaded[slot]
            writer.nmethod_load(
                address, bytes([number]) * size, method, compile_id=compile_id, flags=RecordFlag.REPLAYED
            )
    path = tmp_path_factory.mktemp("spool") / "jit-7.export"
    unloaded = {slot for what, slot, _ in events if what == "class"}
    now, kept = code_now(writer.bytes()), code_now(compacted(path, writer.bytes()))
    assert {at: code for at, (code, _) in kept.items()} == {at: code for at, (code, _) in now.items()}
    for at, (_, name) in kept.items():  # a name is gone with its class
        assert name == now[at][1] or now[at][1][:2] in {f"C{n}" for n in unloaded}


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path)
    yield spool
    spool.spool.close()
    spool.agent.close()


class Spool:
    """A spool on its ring; a clock that the test moves."""

    def __init__(self, directory: Path, spare: int = 1 << 14) -> None:
        self.path, self.now = directory / "jit-7.export", 0.0
        ring = directory / "jit-7.ring"
        self.agent = Agent(ring, 7, 1 << 23)
        self.spool = JitSpool(self.path, "host", 7, spare=spare, clock=lambda: self.now)
        self.spool.attach(ring)

    def round(self, records: bytes, seconds: float = RECENT / 4) -> bytes:
        """Those of them that were sent."""
        self.agent.write(*(records[at : at + size] for at, size, _ in placed_records(records)))
        self.spool.fill()
        sent = b""
        while batch := self.spool.batch(0):
            sent += batch.data.tobytes()
        for _ in range(100):
            self.spool.compact()
        self.now += seconds
        return sent


def test_the_file_stays_as_large_as_what_lives(it: Spool, tmp_path: Path) -> None:
    sizes, written = [], 0
    for n in range(200):
        records = bytes(sealed(churn(20, Writer(tsc=1000 + n * 10000), 20 * n).bytes()))
        assert it.round(records) == records
        written += len(records)
        sizes.append(it.path.stat().st_size)
    assert it.spool.compactions > 5
    assert written > 20 * max(sizes)
    assert max(sizes[100:]) <= max(sizes[:100])
    assert {p.name for p in tmp_path.iterdir()} == {"jit-7.export", "jit-7.ring"}


def test_whoever_begins_anew_is_told_what_is_now(it: Spool) -> None:
    """Numbers of batches go on without a gap; recent records are as they were told; and so for the next process."""
    told = Writer().code_cache(LOW, HIGH).method(1, "LA;", "stays").nmethod_load(LOW + 0x1800, bytes(64), 1).bytes()
    it.round(told)
    for n in range(60):
        more = bytes(sealed(churn(20, Writer(tsc=10000 + n * 10000), 10 + 20 * n).bytes()))
        told += it.round(more)
    assert it.spool.compactions
    again = list(it.spool.all_sent(0))
    new = b"".join(b.data.tobytes() for b in again)
    assert code_now(new) == code_now(told)
    assert len(new) * 5 < len(told)
    assert new.endswith(more)
    it.round(Writer(tsc=10**7).thread_end(1).bytes())
    it.agent.write(Writer().thread_end(2).bytes())
    it.spool.fill()
    (batch,) = [it.spool.batch(0)]
    assert batch is not None
    assert [b.seq for b in again][-1] == batch.seq - 2
    successor = JitSpool(it.path, "host", 7)
    read = b""
    while next_ := successor.batch(0):
        read += next_.data.tobytes()
    assert successor.faults == []  # patched code, too, has the checksum of its bytes
    successor.close()
    assert code_now(read) == code_now(told)


def test_what_was_not_sent_stays(it: Spool) -> None:
    records = bytes(sealed(churn(400).bytes()))
    it.agent.write(*(records[at : at + size] for at, size, _ in placed_records(records)))
    it.spool.fill()
    for _ in range(100):
        it.now += 1
        it.spool.compact()
    assert it.spool.compactions == 0
    assert it.path.read_bytes()[START:] == records


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_process_that_dies_in_the_middle_leaves_the_old_file(tmp_path: Path, steps: int) -> None:
    path, records = tmp_path / "jit-7.export", bytes(sealed(churn(3000).bytes()))
    path.write_bytes(file_header(7) + records)
    fd = os.open(path, os.O_RDWR)
    compaction = Compaction(path, fd, START, START + len(records))
    for _ in range(steps):
        assert compaction.step(START + len(records)) is None
    assert path.read_bytes()[START:] == records  # and beside it the beginning of another
    successor = JitSpool(path, "host", 7)
    assert successor.size == START + len(records)
    assert len(compacted(path, records)) < 100  # the next one is not disturbed by it
    compaction.abandon()
    successor.close()
    os.close(fd)


def test_no_room_for_a_second_file(it: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def full(self: Compaction, data: bytes) -> None:
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Compaction, "_write", full)
        for n in range(20):
            it.round(churn(20, Writer(tsc=1000 + n * 10000), 20 * n).bytes())
        assert it.spool.compactions == 0
        assert {p.name for p in tmp_path.iterdir()} == {"jit-7.export", "jit-7.ring"}
    for n in range(20, 60):
        it.round(churn(20, Writer(tsc=1000 + n * 10000), 20 * n).bytes())
    assert it.spool.compactions > 0
