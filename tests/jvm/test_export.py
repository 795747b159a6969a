from __future__ import annotations

import os
import struct
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jvm.export import records as export
from jvm.export.parse import iter_records, parts, whole_records
from jvm.export.records import ExportError
from jvm.export.ring import STATE_RUNNING, RingReader, open_export
from tests.jvm.exportwriter import Writer

NMETHOD = (0x1000, bytes(range(40)), 7, [(4, [(7, 0)]), (9, [(8, 3), (7, 12)]), (40, [])])


def everything() -> Writer:
    writer = (
        Writer()
        .agent_info(pid=9, vm="OpenJDK", version="25.0.2", options="size=64m")
        .code_cache(0x1000, 0x9000, [("CodeHeap 'x'", 0x1000, 0x5000, 0x2000), ("y", 0x5000, 0x9000, 0x6000)])
        .interpreter(0x1000, b"\x90" * 33)
        .codelet(0x1020, 0x1040, -1, "slow signature handler")
        .dispatch_table(0x5000, [[1, 2, 3], [4, 5, 6]])
        .class_(3, "LFoo;", definition=4, loader=5)
        .class_def(4, "Foo", b"\xca\xfe\xba\xbe!", loader=5)
        .method(7, "LFoo;", "bar", "()V")
        .method(8, "LFoo;", "größe\U0001f600", "(I)V")
        .nmethod_load(*NMETHOD, level=3, compile_id=11, locations=[(0, -1), (5, 2)], osr_entry=0x1010, entry_bci=4)
        .nmethod_state(0x1000, 11, 1)
        .nmethod_unload(0x1000, 7)
        .dynamic_code(0x2000, "I2C/C2I adapters", b"\xcc" * 5)
        .blob(0x3000, "vtable chunks", b"", kind=4, size=32)
    )
    return (
        writer.thread_start(123, "main")
        .thread_end(123)
        .stack(123, [(0x1004, 0, -1), (0x1020, 7, 12)], before=5)
        .overflow(2, 100)
        .replay_begin(1)
        .replay_end(1)
        .pad(8)
        .vm_death()
    )


@given(st.lists(st.integers(0, 60), max_size=20), st.integers(1, 400), st.binary(max_size=40))
def test_parts_are_whole_records_and_all_of_them(sizes: list[int], most: int, rubbish: bytes) -> None:
    writer = Writer()
    for size in sizes:
        writer.dynamic_code(0x2000, "n", bytes(size))
    good = writer.bytes()
    found = list(parts(good, most))
    assert [part.start for part in found] == [0, *(part.stop for part in found[:-1])]
    assert found[-1].stop == len(good)
    assert [r for part in found for r in iter_records(good[part])] == list(iter_records(good))
    of_each = [len(list(iter_records(good[part]))) for part in found]
    assert all(part.stop - part.start <= most or n == 1 for part, n in zip(found, of_each, strict=True))
    assert all(b.stop - a.start > most for a, b in pairwise(found))
    bad = good + rubbish
    assert b"".join(bad[part] for part in parts(bad, most)) == bad


def test_every_record_type_comes_back() -> None:
    records = list(iter_records(everything().bytes()))
    assert [type(r).__name__ for r in records] == [
        "AgentInfo", "CodeCache", "Interpreter", "Codelet", "DispatchTable", "Class", "ClassDef", "Method", "Method",
        "NmethodLoad", "NmethodState", "NmethodUnload", "DynamicCode", "Blob", "ThreadStart", "ThreadEnd", "Stack",
        "Overflow", "ReplayBegin", "ReplayEnd", "VmDeath",
    ]  # fmt: skip
    assert [r.tsc for r in records] == list(range(1000, 1210, 10))
    assert {r.tid for r in records} == {77}
    info, cache, interpreter, codelet, table, class_, definition, _, method, load, state, unload = records[:12]
    assert isinstance(info, export.AgentInfo)
    assert (info.pid, info.vm_name, info.vm_version, info.options) == (9, "OpenJDK", "25.0.2", "size=64m")
    assert isinstance(cache, export.CodeCache)
    assert cache.heaps[1] == ("y", 0x5000, 0x9000, 0x6000)
    assert cache.heaps[0].name == "CodeHeap 'x'"
    assert isinstance(interpreter, export.Interpreter)
    assert bytes(interpreter.code) == b"\x90" * 33
    assert isinstance(codelet, export.Codelet)
    assert (codelet.start, codelet.end, codelet.bytecode) == (0x1020, 0x1040, -1)
    assert codelet.description == "slow signature handler"
    assert isinstance(table, export.DispatchTable)
    assert table.entries.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert isinstance(class_, export.Class)
    assert (class_.id, class_.definition, class_.loader, class_.signature) == (3, 4, 5, "LFoo;")
    assert isinstance(definition, export.ClassDef)
    assert (definition.name, bytes(definition.data)) == ("Foo", b"\xca\xfe\xba\xbe!")
    assert isinstance(method, export.Method)
    assert (method.id, method.class_signature, method.name, method.signature) == (8, "LFoo;", "größe😀", "(I)V")
    assert isinstance(load, export.NmethodLoad)
    assert (load.address, load.end, load.method, load.level, load.compile_id) == (0x1000, 0x1028, 7, 3, 11)
    assert (load.osr_entry, load.entry_bci) == (0x1010, 4)
    assert bytes(load.code) == bytes(range(40))
    assert load.pc_offset.tolist() == [4, 9, 40]
    assert load.frame_at.tolist() == [0, 1, 3, 3]
    assert load.frames.tolist() == [(7, 0), (8, 3), (7, 12)]
    assert load.locations.tolist() == [(0, -1), (5, 2)]
    assert isinstance(state, export.NmethodState)
    assert (state.compile_id, state.state) == (11, export.NmethodStatus.NOT_ENTRANT)
    assert isinstance(unload, export.NmethodUnload)
    assert (unload.address, unload.method) == (0x1000, 7)
    stub, blob, start, _, stack, overflow = records[12:18]
    assert isinstance(stub, export.DynamicCode)
    assert (stub.end, bytes(stub.code)) == (0x2005, b"\xcc" * 5)
    assert isinstance(blob, export.Blob)
    assert (blob.end, len(blob.code), blob.kind) == (0x3020, 0, export.BlobKind.VTABLE)
    assert isinstance(start, export.ThreadStart)
    assert (start.os_tid, start.name) == (123, "main")
    assert isinstance(stack, export.Stack)
    assert (stack.os_tid, stack.stack_flags, stack.before) == (123, export.StackFlag.WHOLE, 5)
    assert stack.frames.tolist() == [(0x1004, 0, -1), (0x1020, 7, 12)]
    assert isinstance(overflow, export.Overflow)
    assert (overflow.records, overflow.bytes) == (2, 100)


def test_names_are_modified_utf8() -> None:
    data = Writer().record(
        export.RecordType.THREAD_START, struct.pack("<II", 1, 8) + b"\xc0\x80\xed\xa0\xbd\xed\xb8\x80"
    )
    (record,) = iter_records(data.bytes())
    assert isinstance(record, export.ThreadStart)
    assert record.name == "\0\U0001f600"


def test_unknown_types_are_skipped_and_counted() -> None:
    skipped: Counter[int] = Counter()
    data = Writer().record(999, b"xyz").record(500, b"").record(999, b"").vm_death().bytes()
    assert len(list(iter_records(data, skipped))) == 1
    assert skipped == {999: 2, 500: 1}


def test_a_cut_record_is_an_error_with_its_offset() -> None:
    data = everything().bytes()
    last = data[:-24]
    with pytest.raises(ExportError, match="cut at byte") as error:
        list(iter_records(data[:-8]))
    assert error.value.offset == len(last)
    assert whole_records(data[:-8]) == len(last)
    assert whole_records(data) == len(data)


@pytest.mark.parametrize("frame_at", [(1, 1, 2), (0, 3, 2), (0, 2, 1)], ids=["starts late", "goes back", "wrong total"])
def test_inline_stacks_must_add_up(frame_at: tuple[int, ...]) -> None:
    good = Writer().nmethod_load(0x10, b"", 1, [(1, [(1, 0)]), (2, [(1, 1)])]).bytes()
    at = 24 + 88 + 8
    bad = good[:at] + struct.pack("<III", *frame_at) + good[at + 12 :]
    with pytest.raises(ExportError, match="inline stacks"):
        list(iter_records(bad))


@pytest.mark.parametrize("frames", [3, 1 << 28, (1 << 32) - 1])
def test_a_stack_has_no_more_frames_than_its_record(frames: int) -> None:
    good = Writer().stack(5, [(0x10, 0, -1), (0x20, 3, 9)]).bytes()
    with pytest.raises(ExportError, match="past its record"):
        list(iter_records(good[:28] + struct.pack("<I", frames) + good[32:]))
    (fewer,) = iter_records(good[:28] + struct.pack("<I", 1) + good[32:])
    assert isinstance(fewer, export.Stack)
    assert fewer.frames["pc"].tolist() == [0x10]
    (none,) = iter_records(Writer().stack(5, []).bytes())
    assert isinstance(none, export.Stack)
    assert not len(none.frames)


def test_a_mount_says_what_runs_on_which_carrier() -> None:
    data = Writer(tsc=5, tid=77).mount(123, 1 << 40).mount(9, 0).vm_death().bytes()
    *mounts, end = iter_records(data)
    assert mounts == [export.Mount(5, 123, 0, 1 << 40), export.Mount(15, 9, 0, 0)]
    assert end.tid == 77
    with pytest.raises(ExportError, match="past its record"):
        list(iter_records(Writer().record(export.RecordType.MOUNT, b"").bytes()))


def survives(data: bytes) -> None:
    skipped: Counter[int] = Counter()
    try:
        for record in iter_records(data, skipped):
            if isinstance(record, export.NmethodLoad):
                assert len(record.frames) == record.frame_at[-1]
    except ExportError:
        return
    assert whole_records(data) == len(data)


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_random_bytes_never_crash(data: bytes) -> None:
    survives(data)


@given(kind=st.integers(1, 23), payload=st.binary(max_size=200))
@settings(max_examples=500, deadline=None)
@example(kind=9, payload=bytes(80) + b"\xff" * 8)
@example(kind=5, payload=bytes(8) + b"\xff" * 8)
@example(kind=22, payload=bytes(4) + b"\xff" * 4 + bytes(16))
def test_random_payloads_never_crash(kind: int, payload: bytes) -> None:
    survives(Writer().record(kind, payload).bytes())


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_flipped_bits_and_cuts_never_crash(draw: st.DataObject) -> None:
    data = bytearray(everything().bytes())
    for _ in range(draw.draw(st.integers(0, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] ^= 1 << draw.draw(st.integers(0, 7))
    survives(bytes(data[: draw.draw(st.integers(0, len(data)))]))


def make_ring(path: Path, size: int = 4096) -> np.ndarray:
    """A ring file as the agent makes it, empty; returns it as u64 words (head 16, tail 24, drops 32)."""
    header = struct.pack("<8sIIQIIIIQQQ", b"JITRING1", 1, 4096, size, 42, STATE_RUNNING, 1, 0, 5, 6, 7)
    path.write_bytes(header.ljust(4096 + size, b"\0"))
    return np.memmap(path, np.uint64, "r+")


def put(ring: np.ndarray, data: bytes) -> None:
    """As a writer does: a PAD where the record does not fit before the end."""
    octets, size = ring.view(np.uint8), len(ring) * 8 - 4096
    head = int(ring[16])
    if head % size + len(data) > size:
        rest = size - head % size
        octets[4096 + head % size :][:8] = list(struct.pack("<IHH", rest, 0, 0))
        head += rest
    octets[4096 + head % size :][: len(data)] = list(data)
    ring[16] = head + len(data)


def test_ring_is_drained_over_its_end(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring")
    ring[32:35] = (3, 300, 1)
    with RingReader(tmp_path / "ring") as reader:
        assert reader.header == (4096, 42, 1, 5, 6, 7)
        assert (reader.state, reader.dropped, reader.dropped_bytes, reader.classes_lost) == (STATE_RUNNING, 3, 300, 1)
        seen = []
        for tid in range(500):
            put(ring, Writer().thread_start(tid, "x" * (tid % 37)).bytes())
            if tid % 7 == 0:
                seen += [r.os_tid for r in iter_records(reader.drain()) if isinstance(r, export.ThreadStart)]
        seen += [r.os_tid for r in iter_records(reader.drain()) if isinstance(r, export.ThreadStart)]
        assert seen == list(range(500))
        assert reader.pending == 0
        assert reader.drain() == b""


def test_ring_gives_whole_records_within_the_limit(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring")
    data = Writer().thread_start(1, "a" * 8).thread_start(2, "b" * 400).vm_death().bytes()
    put(ring, data)
    with RingReader(tmp_path / "ring") as reader:
        assert [reader.drain(64) for _ in range(4)] == [data[:40], data[40:472], data[472:], b""]


def test_uncommitted_bytes_come_again(tmp_path: Path) -> None:
    put(make_ring(tmp_path / "ring"), Writer().vm_death().bytes())
    with RingReader(tmp_path / "ring") as reader:
        data, _ = reader.peek()
        assert data
    with RingReader(tmp_path / "ring") as reader:  # as after a crash
        again, position = reader.peek()
        assert again == data
        reader.commit(position)
    with RingReader(tmp_path / "ring") as reader:
        assert reader.peek()[0] == b""


def test_a_ring_that_contradicts_itself_is_skipped(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring")
    ring[16], ring[24] = 10_000, 8
    with RingReader(tmp_path / "ring") as reader:
        assert reader.drain() == b""
        assert reader.corrupt == 1
        assert reader.pending == 0


def test_a_ring_that_was_cut_is_an_error(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring")
    put(ring, Writer().vm_death().bytes())
    with RingReader(tmp_path / "ring") as reader:
        os.truncate(tmp_path / "ring", 100)
        with pytest.raises(ExportError, match="was cut"):
            reader.peek()


def test_replay_is_asked_for_by_number(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring")
    with RingReader(tmp_path / "ring") as reader:
        assert (reader.request_replay(), reader.request_replay()) == (1, 2)
        assert ring.view(np.uint32)[80] == 2
        ring.view(np.uint32)[81] = 2
        assert reader.replay_done == 2


@pytest.mark.parametrize("content", [b"", b"x" * 9000, b"JITRING1" + bytes(9000)])
def test_what_is_no_ring_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "ring").write_bytes(content)
    with pytest.raises(ExportError):
        RingReader(tmp_path / "ring")


def test_export_file(tmp_path: Path) -> None:
    path = tmp_path / "jit-42.export"
    path.write_bytes(everything().file(pid=42))
    file = open_export(path)
    assert file.pid == 42
    assert len(list(iter_records(file.records))) == 21


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, b"JITEXPT1" + bytes(60), b"JITEXPT1\1\0\0\0\xff\xff\0\0" + bytes(60)]
)
def test_what_is_no_export_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ExportError):
        open_export(tmp_path / "x")
