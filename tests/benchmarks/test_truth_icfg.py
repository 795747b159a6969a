"""The graph of a process against its truth: each step that the JVM makes is an edge, each call leads to a callee."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.accuracy.truth import Block, Event, methods, record, threads
from jvm.agent.build import library
from jvm.bytecode.cfg import NOWHERE
from jvm.bytecode.icfg import Graph, Icfg
from jvm.bytecode.opcodes import Kind
from jvm.export import records as export
from jvm.export.parse import iter_records
from jvm.export.ring import RingReader
from tests.benchmarks.test_truth import command, compiled
from tests.jdks import tool

BY_THE_JVM = {"<clinit>", "loadClass", "checkPackageAccess"}
"""Methods that an instruction may run first, where it resolves a class or initialises one (JVMS 5.3, 5.5)."""
# The agent tells the classes that started the VM from a thread of its own: a replay is done when it has told them all.
WAIT = """
class Wait {
    public static void main(String[] a) throws Exception {
        Known.main(a);
        try (java.io.RandomAccessFile ring = new java.io.RandomAccessFile(a[0], "rw")) {
            ring.seek(320);
            ring.write(1);
            do { Thread.sleep(10); ring.seek(324); } while (ring.read() != 1);
        }
    }
}
"""


def told(ring: Path) -> tuple[Icfg, dict[str, int]]:
    """The graph of the classes that an agent told, and classes by name."""
    icfg, classes = Icfg(), dict[str, int]()
    with RingReader(ring) as reader:
        while data := reader.drain():
            for each in iter_records(data):
                icfg.feed(each)
                if isinstance(each, export.Class):
                    classes[each.signature[1:-1]] = each.id
        assert reader.dropped == 0
    while icfg.update():
        pass
    return icfg, classes


def onward(graph: Graph, node: int) -> set[int]:
    target, kind = int(graph.nodes.target[node]), Kind(int(graph.nodes.kind[node]))
    if kind == Kind.SWITCH:
        return set(graph.arm[target : target + graph.nodes.arms[node]].tolist())
    to = {int(graph.nodes.next[node])} - {NOWHERE}
    return to | {target} if kind in (Kind.CONDITIONAL, Kind.GOTO) else to


def check_calls(icfg: Icfg, block: Block, numbers: dict[int, int], upcalls: set[int]) -> Counter[str]:
    graph, seen = icfg.graph(), Counter[str]()
    for k in np.flatnonzero(block.event == Event.ENTRY).tolist():
        i, entered = int(block.at[k]) - 1, int(block.of[k])
        if i < 0 or (k and block.at[k - 1] == block.at[k]) or entered in upcalls:
            continue
        node = icfg.node(numbers[int(block.method[i])], int(block.bci[i]))
        if graph.nodes.kind[node] == Kind.CALL:
            callees = icfg.callees(node)
            assert callees is None or numbers[entered] in callees
            seen["open" if callees is None else "one" if len(callees) == 1 else "several"] += 1
    return seen


@pytest.mark.jvm
@pytest.mark.slow
def test_each_step_is_an_edge_and_each_call_leads_to_a_callee(tmp_path: Path) -> None:
    compiled(tmp_path)
    (tmp_path / "Wait.java").write_text(WAIT)
    subprocess.run([tool("javac"), "--release", "17", "Wait.java"], cwd=tmp_path, check=True, timeout=120)
    ring = tmp_path / "ring"
    java, *arguments, _ = command(17, tmp_path)
    agent = f"-agentpath:{library()}=ring={ring},size=256m"
    done = record([java, agent, *arguments, "Wait", str(ring)], tmp_path / "truth")
    assert done.returncode == 0, done.stderr
    icfg, classes = told(ring)
    names = methods(tmp_path / "truth")
    numbers = {m: icfg.number(classes.get(one.holder, 0), one.name, one.descriptor) for m, one in names.items()}
    assert NOWHERE not in numbers.values()
    upcalls = {m for m, one in names.items() if one.name in BY_THE_JVM}
    graph, calls, steps = icfg.graph(), Counter[str](), 0
    (main,) = [thread for thread in threads(tmp_path / "truth") if thread.name == "main"]
    for block in main.blocks():
        calls += check_calls(icfg, block, numbers, upcalls)
        events = np.bincount(block.at, minlength=len(block.bci) + 1)
        for i in np.flatnonzero((block.method[:-1] == block.method[1:]) & (events[1:-1] == 0)).tolist():
            number = numbers[int(block.method[i])]
            node, then = icfg.node(number, int(block.bci[i])), icfg.node(number, int(block.bci[i + 1]))
            assert then in onward(graph, node)
            steps += 1
    assert steps > 30_000
    assert calls["one"] > 1000
    assert calls["several"] > 50
