"""The log of every bytecode: a program whose counts are known, steps that follow the control-flow graph, limits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.counts import count
from benchmarks.accuracy.truth import MARK, Event, Method, Thread, TruthError, methods, record, threads
from jvm.bytecode.cfg import NOWHERE, cfg
from jvm.bytecode.class_file import ClassFile
from jvm.bytecode.opcodes import Kind
from tests.jdks import JDKS, java, tool

KNOWN = """
class Known {
    int field = 3;
    static int sum(int n) { int s = 0; for (int i = 0; i < n; i++) s += i; return s; }
    static int thrown(int n) { try { if (n % 2 == 0) throw new RuntimeException(); return 1; }
                               catch (RuntimeException e) { return n; } }
    static int choice(int n) { switch (n) { case 0: return 5; case 1: n++; case 2: return n; default: return -n; } }
    int get() { return field; }
    public static void main(String[] a) {
        int x = 0;
        Known known = new Known();
        for (int i = 0; i < 100; i++) x += sum(10) + thrown(i) + choice(i % 4) + known.get();
        if (x != 4500 + 50 + 2450 + 25 * (5 + 2 + 2 - 3) + 300) throw new AssertionError(x);
    }
}
"""
SUM = Method("Known", "sum", "(I)I")


def compiled(directory: Path) -> ClassFile:
    (directory / "Known.java").write_text(KNOWN)
    subprocess.run([tool("javac"), "--release", "17", "Known.java"], cwd=directory, check=True, timeout=120)
    return ClassFile.of((directory / "Known.class").read_bytes())


def command(version: int, directory: Path) -> list[str]:
    return [java(version), "-XX:+UseSerialGC", "-Xshare:auto", "-cp", str(directory), "Known"]


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("version", JDKS)
def test_counts_of_a_known_program(version: int, tmp_path: Path) -> None:
    file = compiled(tmp_path)
    done = record(command(version, tmp_path), tmp_path / "truth")
    assert done.returncode == 0, done.stderr
    counts = count(tmp_path / "truth", ["main"])
    assert not counts.cut
    # iconst_0 istore_1 iconst_0 istore_2; iload_2 iload_0 if_icmpge; iload_1 iload_2 iadd istore_1 iinc goto; iload_1
    # ireturn
    tests, body = (4, 5, 6), (9, 10, 11, 12, 13, 16)
    once = (0, 1, 2, 3, 19, 20)
    expected = dict.fromkeys(once, 100) | dict.fromkeys(tests, 1100) | dict.fromkeys(body, 1000)
    sum_ = counts.number(SUM)
    assert counts.of(sum_) == expected
    assert counts.bytecodes()[sum_] == 100 * 6 + 1100 * 3 + 1000 * 6
    invoked = {counts.methods[m].name: n for m, n in counts.invocations.items() if counts.methods[m].holder == "Known"}
    assert invoked == {"main": 1, "<init>": 1, "sum": 100, "thrown": 100, "choice": 100, "get": 100}
    get = counts.of(counts.number(Method("Known", "get", "()I")))
    assert get == {0: 100, 1: 100, 4: 100}  # each of a pair that HotSpot would run by one template
    main = next(thread for thread in threads(tmp_path / "truth") if thread.name == "main")
    follows_the_graph(main, methods(tmp_path / "truth"), file)


def follows_the_graph(thread: Thread, names: dict[int, Method], file: ClassFile) -> None:
    """Each two steps of a method of Known with no event between are an edge; those across a call that returned, too."""
    caught = 0
    for block in thread.blocks():
        for m, method in names.items():
            graph = cfg(file, method.name, method.descriptor) if method.holder == "Known" else None
            if graph is None:
                continue
            node_of = {bci: node for node, bci in enumerate(graph.nodes.bci.tolist())}
            breaks = np.bincount(block.at, minlength=len(block.bci) + 1)
            for i in np.flatnonzero((block.method[:-1] == m) & (block.method[1:] == m) & (breaks[1:-1] == 0)).tolist():
                node, then = node_of[int(block.bci[i])], node_of[int(block.bci[i + 1])]
                target, kind = int(graph.nodes.target[node]), Kind(int(graph.nodes.kind[node]))
                to = {int(graph.nodes.next[node])} - {NOWHERE}
                if kind == Kind.SWITCH:
                    to = set(graph.arm[target : target + graph.nodes.arms[node]].tolist())
                elif kind in (Kind.CONDITIONAL, Kind.GOTO):
                    to.add(target)
                assert then in to, (method, int(block.bci[i]), int(block.bci[i + 1]))
        mine = [m for m, method in names.items() if method == ("Known", "thrown", "(I)I")]
        caught += int(((block.event == Event.CATCH) & (block.of == mine[0])).sum()) if mine else 0
    assert caught == 50


@pytest.mark.jvm
@pytest.mark.slow
def test_a_log_ends_at_its_limit_and_says_so(tmp_path: Path) -> None:
    compiled(tmp_path)
    record(command(17, tmp_path), tmp_path / "truth", max_bytes=1 << 10)
    assert count(tmp_path / "truth").cut
    assert sum(path.stat().st_size for path in (tmp_path / "truth").glob("*.steps")) < 1 << 18


def log(directory: Path, *words: int) -> Thread:
    (directory / "methods").write_text("1\tA\tf\t()V\n70000\tA\tg\t()V\n")
    (directory / "0.steps").write_bytes(
        b"BCSTEPS1" + np.array((7, 3), "<u4").tobytes() + b"odd\0" + np.array(words, "<u2").tobytes()
    )
    (thread,) = threads(directory)
    return thread


def test_a_log_is_read_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = (MARK, Event.ENTRY, 0, 1)
    deep = (MARK, Event.IN, 1, 20_000)
    thread = log(tmp_path, *entry, 0, 1, *deep, 5, MARK, Event.EXIT, 1, 20_000, *entry, 9, 9)
    assert (thread.name, thread.tid) == ("odd", 7)
    for size in (1, 2, 3, 5, 8, 100):
        monkeypatch.setattr("benchmarks.accuracy.truth.BLOCK", size)
        blocks = list(thread.blocks())
        steps = [pair for b in blocks for pair in zip(b.method.tolist(), b.bci.tolist(), strict=True)]
        assert steps == [(1, 0), (1, 1), (70_000, 5), (1, 9), (1, 9)]
        counts = count(tmp_path)
        assert counts.of(1) == {0: 1, 1: 1, 9: 2}
        assert counts.invocations == {1: 2}
        assert counts.bytecodes() == {1: 4, 70_000: 1}


@pytest.mark.parametrize("words", [(MARK, 9, 0, 1), (MARK, 1, MARK, 1, 0, 0)])
def test_a_damaged_log_is_refused(words: tuple[int, ...], tmp_path: Path) -> None:
    with pytest.raises(TruthError):
        list(log(tmp_path, *words).blocks())
    (tmp_path / "1.steps").write_bytes(b"else")
    with pytest.raises(TruthError):
        threads(tmp_path)
