"""Stacks that the agent reads from outside, against those that the JVM prints itself and against the program's text."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from jvm.agent.build import library
from jvm.export import records as export
from jvm.export.records import StackFlag
from jvm.export.ring import RingReader
from tests.jdks import JDKS
from tests.jvm.agent.java_process import SOURCES, Subject, attach, eventually
from tests.jvm.agent.stacks import Line, Stacks, Told, printed, same

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("jvm-agent")]

versions = pytest.mark.parametrize("version", JDKS)
STOPPED = ("deep", "reflection", "lambda", "privileged", "initializer", "handle", "monitor", "wait", "sleep")
STOP_APART = ("-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,Stacks.stop")
"""Compiled code that stops there is not given up, though it never did before."""
SOURCE = (SOURCES / "Stacks.java").read_text().splitlines()


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    return tmp_path / "session" / "jit.ring"


@contextmanager
def stacks(version: int, ring: Path, *options: str, period: int = 10) -> Iterator[tuple[Subject, Stacks]]:
    agent = f"-agentpath:{library()}=ring={ring},stacks={period}"
    with Subject(version, [agent, *options], main="Stacks") as jvm, RingReader(ring) as reader:
        yield jvm, Stacks(reader)


def tid(found: Stacks, name: str) -> int:
    """Of the Java thread of that name."""
    return next(t for t, n in found.known.threads.items() if n == name)


def line(text: str) -> int:
    """The first line of the program that holds it."""
    return next(n for n, of_source in enumerate(SOURCE, 1) if text in of_source)


def replay_ends(found: Stacks) -> list[export.ReplayEnd]:
    found.read()
    return found.known.of(export.ReplayEnd)


def all_same(jvm: Subject, found: Stacks, kinds: tuple[str, ...]) -> dict[str, Told] | None:
    """What was told last of these threads, once it is what the JVM prints."""
    jvm_says = printed(jvm.pid)
    found.read()
    result = {}
    for kind in kinds:
        stack = found.last.get(tid(found, kind))
        told = found.told(stack) if stack is not None else None
        if told is None or not same(told.lines, jvm_says.get(tid(found, kind), [])):
            return None
        result[kind] = told
    return result


@versions
@pytest.mark.parametrize("way", ["interpreted", "compiled"])
def test_stacks_are_those_that_the_jvm_prints(version: int, way: str, ring: Path) -> None:
    """Of threads that stopped; then nothing is told of them any more."""
    with stacks(version, ring, *(["-Xint"] if way == "interpreted" else ["-Xbatch", *STOP_APART])) as (jvm, found):
        for kind in STOPPED:
            jvm.tell(f"start {kind} {0 if way == 'interpreted' else 1000 if kind == 'deep' else 20000}")
        jvm.tell("settle")
        told = eventually("all stacks are as the JVM prints them", lambda: all_same(jvm, found, STOPPED))
        assert not {kind: stack.lines for kind, stack in told.items() if not stack.whole}
        assert Line("Stacks.odd", line("return even(n - 1) + 1;")) in told["deep"].lines
        assert [n for m, n in told["deep"].lines].count(line("return odd(n - 1) + 1;")) == 75
        assert "Stacks$Initialized.<clinit>" in [m for m, _ in told["initializer"].lines]
        physical = {kind: found.last[tid(found, kind)].frames for kind in STOPPED}
        if way == "interpreted":
            assert all((frames["method"] != 0).sum() == len(told[kind].lines) for kind, frames in physical.items())
            invoked_as_told(found, found.last[tid(found, "deep")])
        else:
            assert all((physical[kind]["method"] == 0).sum() > 1 for kind in ("deep", "lambda"))  # the call stub is one
        stopped = {tid(found, kind) for kind in STOPPED}

        def quiet() -> bool:
            later: list[int] = []
            while later.count(tid(found, "main")) < 3:
                jvm.tell("wake nobody")
                later += [stack.os_tid for stack in found.read()]
            return stopped.isdisjoint(later)

        eventually("nothing is told any more of threads that stand", quiet)


def invoked_as_told(found: Stacks, stack: export.Stack) -> None:
    """Each bci is exactly that of the instruction that calls the frame above."""
    methods = [found.known.methods[m] for m in stack.frames["method"].tolist() if m]
    bcis = stack.frames["bci"][stack.frames["method"] != 0].tolist()
    checked = 0
    for inner, outer, bci in zip(methods, methods[1:], bcis[1:], strict=False):
        file = found.file(outer.class_signature)
        code = file.code(outer.name, outer.signature) if file is not None else None
        if file is None or code is None:
            continue
        invoked = file.invoked(code, bci)
        assert invoked is not None
        assert (invoked.name, invoked.descriptor) == (inner.name, inner.signature)
        checked += 1
    assert checked > 150


def follows_the_program(lines: list[Line], *, in_turn: bool) -> bool:
    """Of the thread "loop", outermost first: it calls left or right, these each other (`in_turn`), the last of them
    yields."""
    calls = {
        "left": (line("if (n > 0) right(n - 1);"), line("if (n > 0) right(n - 1);") + 1),
        "right": (line("if (n > 0) left(n - 1);"), line("if (n > 0) left(n - 1);") + 1),
    }
    if [m for m, _ in lines[:2]] != ["Stacks$Worker.run", "Stacks$Worker.round"][: len(lines)]:
        return False
    names = [m.removeprefix("Stacks.") for m, _ in lines[2:] if m.startswith("Stacks.")]
    rest = lines[2 + len(names) :]
    if (
        not {"left", "right"}.issuperset(names)
        or len(names) > 7
        or (in_turn and any(a == b for a, b in pairwise(names)))
    ):
        return False
    at = [n for _, n in lines[2 : 2 + len(names)]]
    if any(n != calls[name][0] for name, n in zip(names[:-1], at[:-1], strict=True)):
        return False
    if not rest:
        return True  # it is in the VM for another reason
    if not names:
        return all(m.startswith("java.lang.String") for m, _ in rest)  # by which it switches
    yields = len(names) == 7 and at[-1] == calls[names[-1]][1]
    return rest[0].method == "java.lang.Thread.yield" and yields


@versions
@pytest.mark.parametrize("options", [("-Xint",), (), ("-XX:TieredStopAtLevel=1",)], ids=["int", "tiered", "c1"])
def test_a_thread_that_runs_is_told_with_frames_it_had(version: int, options: tuple[str, ...], ring: Path) -> None:
    with stacks(version, ring, *options) as (jvm, found):
        jvm.tell("start loop 1")
        jvm.tell("start loop 1")
        taken: list[export.Stack] = []

        def enough() -> bool:
            taken.extend(s for s in found.read() if found.known.threads.get(s.os_tid) == "loop")
            return len(taken) >= 60

        eventually("60 stacks are told", enough)
        told = [t for s in taken if (t := found.told(s)) is not None]
    assert len(told) > 20
    optimised = not options  # C2 gives frames up, and its debug info mixes up methods that are inlined in themselves
    whole = [t for t in told if t.whole]
    assert len(whole) > 10 if optimised else len(whole) == len(told)
    wrong = [t.lines for t in whole if not follows_the_program(t.lines[::-1], in_turn=not optimised)]
    assert len(wrong) <= optimised, wrong  # code that has taken another's place may not be told yet
    assert max(len(t.lines) for t in told) >= 10  # they yield


THREADS, A_SECOND, AT_ONCE = 30, 50, 5
"""`MOST_A_SECOND` of jvm/agent/stacks.c, in each period of 100 ms."""


def test_of_many_threads_each_has_its_turn(ring: Path) -> None:
    """They all run, and no more stacks are told in a period than a reader has time for."""
    with stacks(17, ring, period=100) as (jvm, found):
        for _ in range(THREADS):
            jvm.tell("start loop 1")
        taken: list[export.Stack] = []

        def all_told() -> bool:
            taken.extend(s for s in found.read() if found.known.threads.get(s.os_tid) == "loop")
            return len({s.os_tid for s in taken}) == THREADS and len(taken) > 3 * THREADS

        began = time.monotonic()
        eventually("each is told", all_told)
        took = time.monotonic() - began
    times = Counter(s.os_tid for s in taken)
    assert max(times.values()) < 3 * min(times.values()) + AT_ONCE
    assert len(taken) < 1.5 * A_SECOND * took + AT_ONCE


LONGEST, A_PERIOD = 60_000, 0.2


def test_where_tracing_is_on_in_windows_stacks_are_told_in_these(ring: Path) -> None:
    """A period longer than the test, so each stack but the first is a window's. Of a thread that does not run within a
    window nothing is told: the trace has nothing of it."""
    with stacks(17, ring, "-Xint", period=LONGEST) as (jvm, found):
        jvm.tell("start deep 0")
        jvm.tell("settle")
        jvm.tell("start loop 1")

        def of_loop() -> list[export.Stack]:
            return [s for s in found.read() if found.known.threads.get(s.os_tid) == "loop"]

        def it_runs() -> list[export.Stack]:
            found.reader.tell_window(True)
            return of_loop()

        eventually("it runs", it_runs)
        for on in (True, True, True, None):
            found.reader.tell_window(False)
            printed(jvm.pid)
            of_loop()  # that was being read
            until = time.monotonic() + A_PERIOD
            while time.monotonic() < until:  # it runs, and several threads may be told of when tracing is on again
                printed(jvm.pid)
            assert not of_loop()
            before = found.last.get(tid(found, "deep"))
            found.reader.tell_window(on)
            assert eventually("a stack is told when tracing is on", of_loop)
            assert found.last.get(tid(found, "deep")) is before


@versions
def test_behind_a_deoptimised_frame_nothing_is_told(version: int, ring: Path) -> None:
    """It was compiled for a class that has no subclass; then there is one."""
    with stacks(version, ring, "-Xbatch", *STOP_APART) as (jvm, found):
        jvm.tell("start weak 20000")
        jvm.tell("settle")
        eventually("it stops", lambda: all_same(jvm, found, ("weak",)))
        thread = tid(found, "weak")
        assert found.last[thread].stack_flags & StackFlag.WHOLE
        jvm.tell("derive")

        def cut() -> bool:
            jvm.tell("wake weak")
            found.read()
            stack = found.last[thread]
            told = None if stack.stack_flags & StackFlag.WHOLE else found.told(stack)
            says = printed(jvm.pid)[thread]
            return told is not None and 0 < len(told.lines) < len(says) and same(told.lines, says[: len(told.lines)])

        eventually("the stack ends at the deoptimised frame", cut)


@pytest.mark.parametrize("version", JDKS[1:])
def test_a_virtual_thread_ends_at_its_entry(version: int, ring: Path) -> None:
    with stacks(version, ring) as (jvm, found):
        jvm.tell("virtual")

        def pinned() -> Told | None:
            all_told = [found.told(s) for s in found.read() if not s.stack_flags & StackFlag.WHOLE]
            with_it = [t for t in all_told if t is not None and "Stacks.even" in [m for m, _ in t.lines]]
            return with_it[-1] if with_it else None

        told = eventually("a virtual thread is told", pinned)
        names = [m for m, _ in told.lines]
        assert names.count("Stacks.even") == 11
        assert names[-1] in ("jdk.internal.vm.Continuation.enter", "Stacks.even")  # as far as it was thawed
        assert jvm.process.poll() is None


@versions
def test_methods_are_told_again_in_each_replay(version: int, ring: Path) -> None:
    """By the ids that they had."""
    with stacks(version, ring, "-Xint") as (jvm, found):
        jvm.tell("start loop 1")
        eventually("a stack is told", lambda: [s for s in found.read() if len(s.frames) > 10])
        found.reader.request_replay()
        eventually("it is replayed", lambda: (found.read(), found.known.of(export.ReplayEnd))[1])
        eventually("another stack is told", lambda: [s for s in found.read() if len(s.frames) > 10])
        kinds = [type(r) for r in found.known.records]
        begin, end = kinds.index(export.ReplayBegin), kinds.index(export.ReplayEnd)
        assert export.Stack not in kinds[begin:end]
        ids: list[dict[str, int]] = [{}, {}]
        for record in found.known.records[:begin]:
            if isinstance(record, export.Method) and not record.class_id:
                ids[0][found.known.name(record.id)] = record.id
        for record in found.known.records[end:]:
            if isinstance(record, export.Method) and not record.class_id:
                ids[1][found.known.name(record.id)] = record.id
            elif isinstance(record, export.Stack):
                assert {0, *ids[1].values()}.issuperset(record.frames["method"].tolist())
        assert "Stacks.left(I)V" in ids[1]
        assert all(ids[0][name] == id_ for name, id_ in ids[1].items() if name in ids[0])


@versions
def test_an_agent_that_is_attached_tells_them_to_each_session(version: int, tmp_path: Path) -> None:
    with Subject(version, main="Stacks") as jvm:
        jvm.tell("start deep 0")
        for session in ("one", "another"):
            attach(jvm.pid, tmp_path / session / "jit.ring", stacks_ms=10)
            with RingReader(tmp_path / session / "jit.ring") as reader:
                found = Stacks(reader)
                eventually("the threads are told", partial(replay_ends, found))
                jvm.tell("wake deep")
                told = eventually("the stack is told", partial(all_same, jvm, found, ("deep",)))
                assert told["deep"].whole


def test_stacks_can_be_left_out(ring: Path) -> None:
    with stacks(25, ring, period=0) as (jvm, found):
        jvm.tell("torture 500")
        found.reader.request_replay()
        eventually("it is replayed", lambda: (found.read(), found.known.of(export.ReplayEnd))[1])
        assert not found.count
        assert all(m.class_id for m in found.known.methods.values())


@versions
@pytest.mark.parametrize("options", [(), ("-XX:+UseSerialGC", "-XX:CompileThresholdScaling=0.02", "-Xss512k")])
def test_it_hurts_nobody(version: int, options: tuple[str, ...], ring: Path) -> None:
    """Threads, classes and code that come and go, exceptions, stack overflows."""
    with stacks(version, ring, *options) as (jvm, found):

        def enough() -> bool:
            jvm.tell("torture 1500")
            found.read()
            depths = [len(s.frames) for s in found.known.records if isinstance(s, export.Stack)]
            return len(depths) > 20 and max(depths) > 300

        eventually("deep stacks are told", enough)
        assert not found.reader.dropped
        signatures = {m.class_signature for m in found.known.methods.values() if not m.class_id}
        assert all(re.fullmatch(r"L[\w/$.]+;", s) for s in signatures)
        assert jvm.finish() == 0
