"""Contexts of a truth, and what two trees differ by."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.accuracy import contexts
from benchmarks.accuracy.truth import record
from stages.cct.measures import hot_edge_coverage, overlap, paired
from stages.cct.merging import merged
from stages.cct.tree import Tree
from stages.cct.views import View
from stages.messages.trees import TREE_DTYPE
from tests.benchmarks.kept import kept_run
from tests.cct import known
from tests.jdks import JDKS, java, tool

SOURCE = Path(known.__file__).with_name("Known.java")
ROUNDS = 20


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.parametrize("version", JDKS)
def test_the_truth_has_the_contexts_of_a_known_program(version: int, tmp_path: Path) -> None:
    subprocess.run(
        [tool("javac"), "--release", "17", "-nowarn", "-d", str(tmp_path), str(SOURCE)], check=True, timeout=120
    )
    done = record([java(version), "-cp", str(tmp_path), "Known", "1", str(ROUNDS)], tmp_path / "truth", steps=False)
    assert done.returncode == 0, done.stderr
    tree = View(include=("Known.rounds",)).of(contexts.truth_tree(tmp_path / "truth"))
    (found,) = known.found(tree, "Known").values()
    found = known.from_a_round_on(found)
    expected = {stack: (ROUNDS + 1) * n for stack, n in known.of_a_round().items()}
    assert {stack: found[stack] for stack in expected} == expected


def tree(calls: dict[str, int]) -> Tree:
    """Invocations by names with slashes between."""
    rows = {"": 0}
    names = ["[thread]"]
    nodes = [(-1, 0)]
    for path in calls:
        above, _, name = path.rpartition("/")
        names += [name] if name not in names else []
        rows[path] = len(nodes)
        nodes.append((rows[above], names.index(name)))
    out = np.zeros(len(nodes), TREE_DTYPE)
    out["bci"] = -1
    out["parent"], out["method"] = zip(*nodes, strict=True)
    for path, n in calls.items():
        out["observed_invocations"][rows[path]] = n
    return Tree(out, tuple(names))


def test_what_the_overlap_lacks_has_causes() -> None:
    truth = tree({"m": 0, "m/a": 50, "m/a/b": 30, "m/c": 20})
    found = tree({"m": 0, "m/a": 50, "[unknown caller]": 0, "[unknown caller]/b": 20, "m/a/[interpreter]": 0,
                  "m/a/[interpreter]/b": 10, "m/x": 20})  # fmt: skip
    sides = [(side, contexts.weights(side, "invocations")) for side in (truth, found)]
    pair = paired(sides[0], sides[1])
    assert overlap(pair) == pytest.approx(0.5)
    assert hot_edge_coverage(pair) == pytest.approx(1 / 3)
    assert contexts.causes(pair) == pytest.approx(
        {"below an unknown caller": 0.2, "below the interpreter": 0.1, "below another method": 0, "not counted": 0.2}
    )
    told = contexts.compared(truth, found, "invocations", 2)
    assert told["differences"][0] == {"calls": 30, "found": 0, "path": ["m", "a", "b"]}


def of_thread(name: str, calls: Tree) -> Tree:
    return Tree(calls.nodes, (f"[thread] {name}", *calls.names[1:]))


def test_lossy_trees_are_compared_with_the_whole_thread_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"[unknown caller]": 0, "[unknown caller]/b": 70}
    whole = {"start": 10, "go": 0, "go/Lucene.main": 1, "go/Lucene.main/a": 5}
    lost = "[unknown caller]"
    part = {lost: 0, f"{lost}/start": 10, f"{lost}/Lucene.main": 1, f"{lost}/Lucene.main/a": 5}
    trees = [merged((of_thread("main", tree(calls)), of_thread("x", tree(other)))) for calls in (whole, part)]
    monkeypatch.setattr(contexts, "truth_tree", lambda _: tree(whole))
    monkeypatch.setattr(contexts, "of_recording", lambda *_, **__: SimpleNamespace(tree=trees.pop(0)))
    kept_run(tmp_path / "run", 0, [])
    assert contexts.main(["--from", str(tmp_path), "--lose", "25%", "--json"]) == 0
    lossless, lossy, _ = json.loads(capsys.readouterr().out)
    assert (lossless["total"], lossless["found"], lossless["overlap"]) == (6, 6, 1)
    assert (lossy["total"], lossy["found"]) == (16, 16)
    assert lossy["overlap"] == pytest.approx(6 / 16)
    assert lossy["causes"]["below an unknown caller"] == pytest.approx(10 / 16)


def test_it_says_how_much_the_recording_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = tree({"Lucene.main": 1, "Lucene.main/a": 5})
    monkeypatch.setattr(contexts, "truth_tree", lambda _: true)
    monkeypatch.setattr(contexts, "of_recording", lambda *_, **__: SimpleNamespace(tree=of_thread("main", true)))
    stream = {"aux_head": 1000, "aux_dropped": 1234, "ovf_dropped": 0}
    kept_run(tmp_path / "run", 1000, [stream])
    assert contexts.main(["--from", str(tmp_path)]) == 0
    assert "recording: 1,234 bytes are missing in it" in capsys.readouterr().out
    assert contexts.main(["--from", str(tmp_path), "--json"]) == 0
    assert [row["missing_bytes"] for row in json.loads(capsys.readouterr().out)] == [1234]
