"""The agent in real JVMs, against the JVM's word by other ways: jcmd, javap, -XX flags, /proc."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from jvm.agent.build import library
from jvm.export import records as export
from jvm.export.ring import STATE_ENDED, RingReader
from tests.jdks import JDKS, java, tool
from tests.jvm.agent.java_process import DEADLINE, Subject, attach, classes, eventually, jcmd
from tests.jvm.agent.known import Known

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("jvm-agent")]

versions = pytest.mark.parametrize("version", JDKS)


def agentpath(ring: Path, more: str = "") -> str:
    return f"-agentpath:{library()}=ring={ring}{more}"


@contextmanager
def subject(version: int, ring: Path, way: str = "start", *options: str) -> Iterator[tuple[Subject, RingReader]]:
    """A JVM with the agent, loaded at its start or into it when it is warm."""
    ring.parent.mkdir(mode=0o700, exist_ok=True)
    early = [agentpath(ring)] if way == "start" else []
    with Subject(version, [*early, *options]) as jvm:
        jvm.tell("work 20000")
        jvm.tell("brief early")
        if way == "late":
            assert attach(jvm.pid, ring).ring == ring
        with RingReader(ring) as reader:
            yield jvm, reader


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return tmp_path / "session" / "jit.ring"


def codelist(pid: int) -> dict[tuple[int, int], tuple[str, int, int]]:
    """`jcmd Compiler.codelist` as {(compile id, code address): (method, level, state)}."""
    entries = {}
    for line in jcmd(pid, "Compiler.codelist").splitlines():
        if match := re.fullmatch(r"(\d+) (-?\d+) (-?\d+) (.*?) ?\[0x\w+, 0x(\w+) - 0x(\w+)\]", line):
            id_, level, state, method, code, _ = match.groups()
            entries[int(id_), int(code, 16)] = (method, int(level), int(state))
    return entries


def read_until_complete(pid: int, known: Known, reader: RingReader) -> dict[tuple[int, int], tuple[str, int, int]]:
    """Reads until everything in the JVM's code list has been told (LOAD events come a little late)."""

    def complete() -> dict[tuple[int, int], tuple[str, int, int]] | None:
        listed = codelist(pid)
        known.read(reader)
        told = {(load.compile_id, load.address) for load in known.nmethods.values()}
        return listed if listed and listed.keys() <= told else None

    return eventually("every nmethod of Compiler.codelist is told", complete)


def work(jvm: Subject, known: Known, reader: RingReader) -> None:
    """For what is told of compiled code alone: a compiler that was slow may have given up methods that are not called
    any more, so they are called again before each look."""
    jvm.tell("work 20000")
    known.read(reader)


Span = tuple[int, int, str]
"""Begin and end of a piece of code, and its name."""


def is_work_space(name: str) -> bool:
    """A compiler's, where nothing is ever run: C1's buffer, which is there as long as a thread of C1, and C2's
    `Compile::scratch_buffer`, which is there only while C2 makes something. If it is told, then without its bytes."""
    return "temporary CodeBuffer" in name or "scratch" in name


def incomplete(known: Known) -> list[tuple[str, int, int]]:
    """Stubs whose code is not told whole: (name, size, told bytes)."""
    return [
        (stub.name, stub.size, len(stub.code))
        for stub in known.stubs.values()
        if len(stub.code) != (0 if is_work_space(stub.name) else stub.size)
    ]


def untold(pid: int, known: Known, reader: RingReader) -> set[Span]:
    """Pieces of code in the JVM's own map that have not been told. The map is older than the reading, so code that is
    gone again, or still on its way, is not missing from the next."""
    jcmd(pid, "Compiler.perfmap")
    file = Path(f"/tmp/perf-{pid}.map")
    lines = [line.split(" ", 2) for line in file.read_text().splitlines()]
    file.unlink()
    assert len(lines) > 300
    known.read(reader)
    spans = {(int(start, 16), int(start, 16) + int(size, 16), name) for start, size, name in lines}
    # the stubs of a chunk made since the start are told, its empty rest is not
    known_by_parts = {"Interpreter", "vtable chunks"}
    return {
        (low, high, name)
        for low, high, name in spans
        if name not in known_by_parts and not is_work_space(name) and not known.covers(low, high)
    }


@versions
@pytest.mark.parametrize("way", ["start", "late"])
def test_everything_in_the_code_cache_is_told(version: int, way: str, ring: Path) -> None:
    with subject(version, ring, way) as (jvm, reader):
        known = Known()
        if way == "late":
            eventually("the export at attach", lambda: known.read(reader) and known.of(export.ReplayEnd))
        listed = read_until_complete(jvm.pid, known, reader)
        assert len(listed) > 40
        by_key = {(load.compile_id, load.address): load for load in known.nmethods.values()}
        for key, (method, level, _) in listed.items():
            load = by_key[key]
            assert load.level == level
            told, listed_name = known.name(load.method), method.replace("/0x", ".0x").replace("+0x", ".0x")
            if told.startswith("java.lang.invoke.MethodHandle."):  # JVMTI mixes up its intrinsics
                told, listed_name = (text.rpartition(".")[0].split("(")[0] for text in (told, listed_name))
            assert told.split(".")[:3] == listed_name.split(".")[:3]
            assert load.blob < load.address
            assert load.level == 0 or load.address <= load.entry <= load.verified_entry < load.end

        def all_but_blobs_of_stubs() -> list[set[Span]] | None:
            """The missing pieces, if they are nothing else. A compiler's thread may fill one behind the start: of that
            JVMTI posts the stubs, but nothing of the room between and behind them."""
            missing = untold(jvm.pid, known, reader)
            return [missing] if all(name.startswith("StubRoutines (") for *_, name in missing) else None

        (blobs,) = eventually("everything in the JVM's map is told", all_but_blobs_of_stubs)
        number = reader.request_replay()
        eventually("replay", lambda: (known.read(reader), reader.replay_done == number)[1])
        eventually("a replay tells all of it", lambda: not untold(jvm.pid, known, reader))
        stubs = [(r.flags, (r.address, r.end, r.name)) for r in known.of(export.DynamicCode)]
        replayed = {stub for flags, stub in stubs if flags & export.RecordFlag.REPLAYED}
        posted = {stub for flags, stub in stubs if not flags & export.RecordFlag.REPLAYED}
        for low, high, blob in blobs:
            assert {stub for stub in replayed if low <= stub[0] < high and stub[2] != blob} <= posted

        assert known.cache is not None
        assert all(known.cache.low <= load.address < known.cache.high for load in known.nmethods.values())
        assert {heap.name for heap in known.cache.heaps} == {
            "CodeHeap 'non-nmethods'",
            "CodeHeap 'profiled nmethods'",
            "CodeHeap 'non-profiled nmethods'",
        }
        mapped = sum(heap.committed - heap.low for heap in known.cache.heaps)
        assert 0 < mapped < known.cache.high - known.cache.low


@versions
def test_code_compiled_before_the_agent_could_be_told_is_told_as_found(version: int, ring: Path) -> None:
    """The Service Thread posts it too, but late and as if it were new."""
    with subject(version, ring, "start", "-Xcomp", "-XX:TieredStopAtLevel=1") as (_, reader):
        known = Known()
        eventually("the end of the beginning", lambda: known.read(reader) and known.threads)
    begun = next(
        at
        for at, record in enumerate(known.records)
        if isinstance(record, export.ThreadStart) and record.flags & export.RecordFlag.REPLAYED
    )
    loads = [record for record in known.records[:begun] if isinstance(record, export.NmethodLoad)]
    assert sum(bool(load.flags & export.RecordFlag.REPLAYED) for load in loads) > 40


@versions
def test_code_bytes_are_those_in_memory(version: int, ring: Path) -> None:
    with subject(version, ring) as (jvm, reader), Path(f"/proc/{jvm.pid}/mem").open("rb") as memory:
        known = Known()
        read_until_complete(jvm.pid, known, reader)
        same = total = 0
        for load in known.nmethods.values():
            memory.seek(load.address)
            now = memory.read(len(load.code))
            assert len(now) == len(load.code)
            total += len(now)
            same += sum(a == b for a, b in zip(now, load.code, strict=True))
        assert total > 10_000
        assert 0.98 < same / total <= 1  # calls are patched after a load
        assert incomplete(known) == []


@versions
def test_inline_stacks_name_the_call_sites(version: int, ring: Path) -> None:
    with subject(version, ring) as (jvm, reader):
        known = Known()

        def compiled() -> export.NmethodLoad | None:
            work(jvm, known, reader)
            loads = [r for r in known.records if isinstance(r, export.NmethodLoad) and r.level == 4]
            return next((r for r in loads if known.name(r.method) == "Subject.outer(I)I"), None)

        load = eventually("outer is compiled by C2", compiled)
        text = subprocess.run(
            [tool("javap"), "-c", "-p", "-cp", str(classes()), "Subject"], capture_output=True, text=True, check=True
        ).stdout
        body = text.split("int outer(int);")[1].split("\n\n")[0]
        (call,) = re.findall(r"(\d+): invokestatic .*inner", body)
        stacks = [
            [(known.methods[m].name, bci) for m, bci in load.frames[low:high].tolist()]
            for low, high in zip(load.frame_at, load.frame_at[1:], strict=False)
        ]
        assert all(stack[-1][0] == "outer" for stack in stacks)
        inlined = [stack for stack in stacks if stack[0][0] == "inner"]
        assert inlined
        assert all(stack[1] == ("outer", int(call)) for stack in inlined)
        assert (load.pc_offset[1:] >= load.pc_offset[:-1]).all()
        assert load.pc_offset[-1] <= len(load.code)


@versions
def test_methods_agree_with_javap(version: int, ring: Path) -> None:
    text = subprocess.run(
        [tool("javap"), "-c", "-s", "-p", "-cp", str(classes()), "Subject"], capture_output=True, text=True, check=True
    ).stdout
    expected = {}
    for declaration, name, descriptor, code in re.findall(
        r"^  (.*?)(\S+)\(.*\).*;\n    descriptor: (\S+)\n    Code:\n((?: +.*\n)+)", text, re.M
    ):
        last = max(int(bci) for bci in re.findall(r"^ +(\d+): [a-z]", code, re.M))
        expected[name.replace("Subject", "<init>"), descriptor] = ("synchronized" in declaration, last)
    with subject(version, ring) as (jvm, reader):
        known = Known()

        def mine() -> list[export.Method] | None:
            work(jvm, known, reader)
            found = [method for method in known.methods.values() if method.class_signature == "LSubject;"]
            return found if {"outer", "inner", "locked"} <= {method.name for method in found} else None

        for method in eventually("its methods are compiled", mine):
            synchronized, last = expected[method.name, method.signature]
            assert bool(method.modifiers & 0x20) == synchronized
            assert method.modifiers & 0x8
            assert last < method.code_size <= last + 5  # the longest instruction there has 5 bytes
        native = [method for method in known.methods.values() if method.modifiers & 0x100]
        assert native
        assert all(method.code_size == 0 for method in native)


@versions
def test_class_definitions_are_those_loaded(version: int, ring: Path) -> None:
    with subject(version, ring) as (jvm, reader):
        jvm.tell("thread x")
        known = Known()
        known.read(reader)
        (subject_class,) = [c for c in known.classes.values() if c.signature == "LSubject;" and c.definition]
        definition = known.definitions[subject_class.definition]
        assert definition.name == "Subject"
        assert bytes(definition.data) == (classes() / "Subject.class").read_bytes()
        assert subject_class.loader == definition.loader != 0
        assert not definition.flags & export.RecordFlag.RECONSTRUCTED
        hidden = [c for c in known.classes.values() if "Subject$$Lambda" in c.signature]
        assert hidden
        for lambda_class in hidden:
            lambda_definition = known.definitions[lambda_class.definition]
            assert lambda_definition.flags & export.RecordFlag.RECONSTRUCTED
            assert f"L{lambda_definition.name};" == lambda_class.signature
            assert b"lambda$" in bytes(lambda_definition.data)
        assert len(hidden) >= 2
        assert all(bytes(d.data[:4]) == b"\xca\xfe\xba\xbe" for d in known.definitions.values())


def instructions(javap: str) -> dict[str, list[str]]:
    """Descriptor and code of each method in the output of ``javap -c -s -p``."""
    found = {}
    for header, code in re.findall(
        r"^  (\S.*;\n    descriptor: .*\n)    Code:\n((?: +\d+: .*\n(?: {12,}.*\n)*)+)", javap, re.M
    ):
        found[re.sub(" throws .*;", ";", header)] = [
            line.strip() for line in code.splitlines() if "//" not in line or "Method" in line
        ]
    return found


@versions
def test_classes_loaded_before_are_put_together_again(version: int, ring: Path, tmp_path: Path) -> None:
    with subject(version, ring, "late") as (_, reader):
        known = Known()
        eventually("the export at attach", lambda: (known.read(reader), known.of(export.ReplayEnd))[1])
    by_signature = {c.signature: known.definitions[c.definition] for c in known.classes.values() if c.definition}
    assert len(by_signature) > 400
    assert "Ljava/lang/String;" in by_signature
    command = [tool("javap"), "-c", "-s", "-p"]
    original = subprocess.run([*command, str(classes() / "Subject.class")], capture_output=True, text=True, check=True)
    mine = by_signature["LSubject;"]
    assert mine.flags & export.RecordFlag.RECONSTRUCTED
    files = [tmp_path / "Subject.class"]
    files[0].write_bytes(mine.data)
    for number, definition in enumerate(list(by_signature.values())[::12]):
        files.append(tmp_path / f"c{number}.class")
        files[-1].write_bytes(definition.data)
    again = subprocess.run([*command, str(files[0])], capture_output=True, text=True, check=True)
    expected = instructions(original.stdout)
    assert len(expected) >= 8
    assert instructions(again.stdout) == expected
    everything = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=True)
    assert everything.stdout.count("Compiled from") + everything.stdout.count("class ") >= len(files)
    assert "Error" not in everything.stderr


@versions
def test_classes_can_be_left_out(version: int, ring: Path) -> None:
    with Subject(version, [agentpath(ring, ",classes=off")]) as jvm, RingReader(ring) as reader:
        jvm.tell("work 20000")
        known = Known()
        read_until_complete(jvm.pid, known, reader)

        def named() -> bool:
            work(jvm, known, reader)
            return "LSubject;" in {c.signature for c in known.classes.values()}

        eventually("a class is told with its first compiled method", named)
        assert not known.definitions


@versions
def test_codelets_are_those_the_jvm_prints(version: int, ring: Path) -> None:
    options = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+PrintInterpreter", "-version"]
    output = subprocess.run(
        [java(version), agentpath(ring), *options], capture_output=True, text=True, timeout=DEADLINE, check=True
    ).stdout
    printed = {
        int(start, 16): (int(end, 16), name.strip())
        for name, start, end in re.findall(r"^(\S.*?) +\[0x(\w+), 0x(\w+)\] ", output, re.M)
    }
    known = Known()
    with RingReader(ring) as reader:
        known.read(reader)
    assert len(printed) > 260
    told = {codelet.start: codelet for codelet in known.codelets.values()}
    empty = {start for start, (end, _) in printed.items() if end <= start}
    assert told.keys() == printed.keys() - empty
    for start, codelet in told.items():
        end, name = printed[start]
        assert codelet.end == end
        assert name.split(" [")[0].startswith(codelet.description[:20].rstrip())
    assert known.interpreter is not None
    assert min(told) >= known.interpreter.start
    assert max(codelet.end for codelet in told.values()) <= known.interpreter.end

    tables = known.of(export.DispatchTable)
    assert tables
    active = tables[0]
    assert isinstance(active, export.DispatchTable)
    assert active.entries.shape == (10, 256)
    by_bytecode = {codelet.bytecode: codelet for codelet in told.values()}
    for bytecode in (0x00, 0x1A, 0x60, 0xA7):  # nop, iload_0, iadd, goto
        entry = int(active.entries[9, bytecode])
        assert by_bytecode[bytecode].start <= entry < by_bytecode[bytecode].end


@versions
@pytest.mark.parametrize("way", ["start", "late"])
def test_threads_are_those_of_proc(version: int, way: str, ring: Path) -> None:
    with Subject(version, [agentpath(ring)] if way == "start" else []) as jvm:
        jvm.tell("thread first-thread")
        jvm.tell("brief gone")
        if way == "late":
            attach(jvm.pid, ring)
        jvm.tell("thread second-thread")
        jvm.tell("thread größer")
        known, seen = Known(), set[str]()
        with RingReader(ring) as reader:
            wanted = {"main", "first-thread", "second-thread", "größer", "streamer-agent", "Finalizer"}
            eventually("threads", lambda: (known.read(reader), wanted <= set(known.threads.values()))[1])
        for tid, name in known.threads.items():
            with suppress(FileNotFoundError, ProcessLookupError):  # a compiler's thread may have ended since
                comm = Path(f"/proc/{jvm.pid}/task/{tid}/comm").read_bytes().rstrip(b"\n")
                if name != "main":  # its native name is that of the program
                    assert name.encode().startswith(comm)
                seen.add(name)
        assert wanted <= seen
        assert "gone" not in known.threads.values()
        started = {r.name for r in known.records if isinstance(r, export.ThreadStart)}
        assert ("gone" in started) == (way == "start")


@versions
def test_a_full_ring_never_blocks_and_replay_heals(version: int, ring: Path) -> None:
    with Subject(version, [agentpath(ring, ",size=256k")]) as jvm, RingReader(ring) as reader:
        jvm.tell("work 20000")  # no reader: 256 KiB are full long before this
        jvm.tell("brief x")
        assert reader.dropped > 100
        known = Known()
        eventually("the ring is read", lambda: known.read(reader) == 0)
        dropped = reader.dropped
        number = reader.request_replay()
        eventually("replay", lambda: (known.read(reader), reader.replay_done == number)[1])
        known.read(reader)
        assert reader.dropped == dropped  # larger than the ring, and yet nothing lost: the agent's thread waits
        overflows = [r for r in known.records if isinstance(r, export.Overflow)]
        assert overflows[-1].records > 100
        (begin,), (end,) = known.of(export.ReplayBegin), known.of(export.ReplayEnd)
        assert isinstance(begin, export.ReplayBegin)
        assert begin.number == number
        assert known.records.index(begin) < known.records.index(end)
        read_until_complete(jvm.pid, known, reader)
        assert all(known.methods[load.method].name for load in known.nmethods.values())
        assert jvm.finish() == 0


@versions
def test_a_ring_nobody_ever_reads_is_no_harm(version: int, ring: Path) -> None:
    with Subject(version, [agentpath(ring, ",size=256k")]) as jvm:
        jvm.tell("work 20000")
        assert jvm.finish() == 0
        with RingReader(ring) as reader:
            assert reader.state == STATE_ENDED
            assert reader.dropped > 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_device_is_no_harm(ring: Path) -> None:
    """A store into a mapping would be a SIGBUS there, and the end of the JVM."""
    ring.parent.mkdir(mode=0o700)
    mount = f'mount -t tmpfs -o size=400k,mode=700 none {ring.parent} && exec "$@"'
    prefix = ["unshare", "--mount", "--kill-child", "--fork", "sh", "-c", mount, "sh"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unshare or mount is not allowed here")
    with Subject(17, [agentpath(ring)], prefix=prefix) as outer:
        outer.tell("work 20000")
        jvm = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]
        known = Known()
        with RingReader(Path(f"/proc/{jvm}/root{ring}")) as reader:
            assert reader.dropped > 100
            known.read(reader)
        assert known.nmethods or known.stubs
        assert outer.finish() == 0


@versions
def test_classes_that_are_unloaded_are_told_and_no_others(version: int, ring: Path) -> None:
    """Their ids, and those of their methods, do not come again."""
    with subject(version, ring) as (jvm, reader):
        known = Known()
        jvm.tell("churn 25")

        def gone() -> set[int] | None:
            jcmd(jvm.pid, "GC.run")
            known.read(reader)
            ids = {record.id for record in known.of(export.ClassUnload)}
            return ids if len(ids & loads()) >= 24 else None

        def loads() -> set[int]:
            return {record.id for record in known.of(export.Class) if record.signature == "LLoad;"}

        unloaded = eventually("24 of the 25 classes are unloaded", gone)
        assert len(loads()) == 25
        stays = {"Subject", "Churn", "java/lang/Object", "java/lang/String"}
        ids = {r.id for r in known.of(export.Class) if r.signature[1:-1] in stays}
        assert ids
        assert not ids & unloaded
        jvm.tell("churn 5")
        known.read(reader)
        later = [
            r for r in known.records if r.tsc > max(u.tsc for u in known.of(export.ClassUnload) if u.id in unloaded)
        ]
        assert {r.id for r in later if isinstance(r, export.Class)}.isdisjoint(unloaded)
        assert {r.class_id for r in later if isinstance(r, export.Method)}.isdisjoint(unloaded)


@versions
def test_unloads_match_loads_when_code_churns(version: int, ring: Path) -> None:
    options = ("-XX:ReservedCodeCacheSize=5m", "-XX:+UseSerialGC", "-XX:CompileThresholdScaling=0.02", "-Xmx64m")
    with Subject(version, [agentpath(ring), *options]) as jvm, RingReader(ring) as reader:
        known = Known()
        live: dict[int, int] = {}
        reused = unloads = seen = 0
        for _ in range(20):
            jvm.tell("churn 25")
            known.read(reader)
            for record in known.records[seen:]:
                if isinstance(record, export.NmethodLoad):
                    reused += record.address in known.stubs or record.address in live
                    live[record.address] = record.method
                elif isinstance(record, export.NmethodUnload):
                    assert record.method in (0, live.pop(record.address))
                    unloads += 1
            seen = len(known.records)
            if unloads > 200:
                break
        assert unloads > 200
        assert reader.dropped == 0
        read_until_complete(jvm.pid, known, reader)
        addresses = [r.address for r in known.records if isinstance(r, export.NmethodLoad)]
        assert len(set(addresses)) < len(addresses)
        assert jvm.finish() == 0


@versions
def test_a_method_that_is_entered_no_more_is_told(version: int, ring: Path) -> None:
    with subject(version, ring) as (jvm, reader):
        known = Known()

        def retired() -> list[export.NmethodState]:
            work(jvm, known, reader)
            return [r for r in known.records if isinstance(r, export.NmethodState) and r.state == 1]

        # C1 code gives way to C2 code of the same method
        states = eventually("a not-entrant nmethod", retired)
        loads = {(r.address, r.compile_id): r for r in known.records if isinstance(r, export.NmethodLoad)}
        assert any(loads[state.address, state.compile_id].level < 4 for state in states)
        read_until_complete(jvm.pid, known, reader)


def test_attached_twice_it_tells_everything_anew(ring: Path) -> None:
    with subject(17, ring, "late") as (jvm, reader):
        known = Known()
        eventually("first export", lambda: (known.read(reader), known.of(export.ReplayEnd))[1])
        attach(jvm.pid, ring)
        eventually("second export", lambda: (known.read(reader), len(known.of(export.ReplayEnd)) == 2)[1])
        other = ring.with_name("other.ring")
        attach(jvm.pid, other)
        assert reader.state == STATE_ENDED
        with RingReader(other) as second:
            fresh = Known()
            eventually("export in the other ring", lambda: (fresh.read(second), fresh.of(export.ReplayEnd))[1])
            assert {c.signature for c in fresh.classes.values() if c.definition} >= {"LSubject;", "Ljava/lang/Object;"}
            read_until_complete(jvm.pid, fresh, second)


def test_the_ring_can_be_put_into_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_RUNTIME_DIR", str(tmp_path / "run"))
    for agent, directory in (
        (f"-agentpath:{library()}=dir={tmp_path / 'session'}", tmp_path / "session"),
        (f"-agentpath:{library()}", tmp_path / "run" / "default"),
    ):
        with Subject(17, [agent]) as jvm, RingReader(directory / f"jit-{jvm.pid}.ring") as reader:
            assert reader.header.pid == jvm.pid
        assert directory.stat().st_mode & 0o777 == 0o700
        assert reader.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("bogus=1", "bad option"),
        ("size=65m", "bad option"),
        ("stacks=9", "bad option"),
        ("mounts=99", "bad option"),
        ("mounts=10000001", "bad option"),
        ("ring=/proc/x/y", "cannot make|no directory"),
    ],
)
def test_bad_options_leave_the_jvm_alone(options: str, message: str) -> None:
    result = subprocess.run(
        [java(17), f"-agentpath:{library()}={options}", "-version"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert result.returncode == 0
    assert re.search(f"^streamer agent: .*({message})", result.stderr, re.M)


@versions
@pytest.mark.slow
def test_it_works_under_emulation(version: int, ring: Path) -> None:
    emulator = tool("qemu-x86_64")
    with Subject(version, [agentpath(ring)], prefix=[emulator, "-cpu", "max"]) as jvm, RingReader(ring) as reader:
        jvm.tell("work 4000")
        known = Known()
        listed = read_until_complete(jvm.pid, known, reader)
        assert len(listed) > 30
        assert len(known.codelets) > 260
        assert "main" in known.threads.values()
        assert len(known.stubs) > 300
        assert incomplete(known) == []
        assert jvm.finish() == 0
