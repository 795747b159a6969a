"""Every calling context's invocations, against a JVM that tells each call: how alike the two trees are.

    python -m benchmarks.accuracy.contexts [--jdk PATH] [--program fop|h2|lucene|sunflow] [--scale X]
        [--lose 25%] [--duty 10%] [--keep DIR] [--from DIR] [--top N] [--json] [-- JAVA_OPTIONS …]

The program runs twice: interpreted, with an agent that sees each method begin and end (the truth), and in the ordinary
mode under the emulated PT, with the interpreter's methods explained. Compared is all that its main method calls, by
(method, callers), call sites merged; in the tree also what stands below an unknown caller of that thread. `--lose` cuts
bursts out of the trace (benchmarks.recovery), `--duty` all but a part of each second of drains: these are compared with
the lossless tree of the same recording, by time too; *at most* is the overlap that a tree of so much trace could have
(benchmarks/accuracy/at_most.py). That is of the whole thread: which of the calls below an unknown caller are main's is
not known.

Where a method has more calls in the truth's contexts than in those of the tree, and more in others of the tree than in
the truth's, the calls stand elsewhere: below the interpreter, below an unknown caller, or below another method. What
then is missing was not counted at all. So each difference has a cause.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from glob import escape
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.at_most import Panes, thinned
from benchmarks.accuracy.losses import Duty
from benchmarks.accuracy.truth import Event, TruthError, methods, record, threads
from benchmarks.flow_truth import FlowTruthError
from benchmarks.flow_truth import record as emulated
from benchmarks.flow_truth.table import PROGRAMS
from benchmarks.recovery.__main__ import share
from benchmarks.recovery.bursts import Bursts
from capture.live.drain import Message
from jvm.kernels import kernel
from jvm.names import display
from stages.cct.measures import Pair, hot_edge_coverage, overlap, paired
from stages.cct.merging import merged, place
from stages.cct.tree import Tree
from stages.cct.views import View
from stages.messages.trees import TREE_DTYPE
from streamer.trees.source import of_recording

MAIN = {
    "fop": "org.apache.fop.cli.Main.main", "h2": "org.h2.tools.RunScript.main", "lucene": "Lucene.main",
    "sunflow": "Render.main",
}  # fmt: skip
THREAD = "main"
NODES, DEEPEST = 1 << 21, 1 << 16
UNKNOWN, INTERPRETER = "[unknown caller]", "[interpreter]"
ELSEWHERE = ("below an unknown caller", "below the interpreter", "below another method", "not counted")
_ENTRY, _EXIT = int(Event.ENTRY), int(Event.EXIT)


@kernel
def _enter(event, of, stack, depth, keys, slots, calls, count):  # type: ignore[no-untyped-def]
    """Follows (n,) events: how deep the stack is then, and how many nodes there are (−1: more than room is for)."""
    for k in range(len(event)):
        if event[k] == _ENTRY:
            above = stack[depth - 1] if 0 < depth <= len(stack) else np.int64(0)
            n = place(keys, slots, count, above, of[k], -1)
            count = max(count, n + 1)
            if count >= len(keys):
                return depth, -1
            if depth < len(stack):
                stack[depth] = n
            depth += 1
            calls[n] += 1
        elif event[k] == _EXIT and depth > 0:
            depth -= 1
    return depth, count


def truth_tree(directory: Path) -> Tree:
    """Of a truth that was recorded, all threads as one. Raises TruthError."""
    named = {number: display(f"L{method.holder};", method.name) for number, method in methods(directory).items()}
    names = ["[thread]", *dict.fromkeys(named.values())]  # overloads have one
    number = {name: n for n, name in enumerate(names)}
    shown = np.zeros(max(named, default=0) + 1, np.int64)
    shown[list(named)] = [number[name] for name in named.values()]
    keys, slots, calls = np.zeros((NODES, 3), np.int64), np.zeros(4 * NODES, np.int32), np.zeros(NODES, np.uint64)
    keys[0] = -1, 0, -1
    count = 1
    for thread in threads(directory):
        stack, depth = np.zeros(DEEPEST, np.int64), 0
        for block in thread.blocks():
            if (block.event == Event.CUT).any():
                raise TruthError(f"{directory}: the logs have become too long")
            event, of = block.event.astype(np.int64), shown[block.of]
            depth, count = _enter(event, of, stack, depth, keys, slots, calls, count)
            if count < 0:
                raise TruthError(f"{directory}: more than {NODES} contexts")
    rows = np.zeros(count, TREE_DTYPE)
    for k, name in enumerate(("parent", "method", "bci")):
        rows[name] = keys[:count, k]
    rows["observed_invocations"] = calls[:count]
    return Tree(rows, tuple(names))


def causes(pair: Pair) -> dict[str, float]:
    """What the overlap lacks, by cause."""
    names, rows = pair.tree.names, pair.tree.nodes
    marker = {name: k for k, wanted in enumerate((UNKNOWN, INTERPRETER)) for name in names if name == wanted}
    below = np.full(len(rows), 2)
    for n, (parent, method) in enumerate(zip(rows["parent"].tolist(), rows["method"].tolist(), strict=True)):
        below[n] = min(below[parent] if parent >= 0 else 2, marker.get(names[method], 2))
    p, q = (weights / (weights.sum() or 1.0) for weights in (pair.a, pair.b))
    lack = np.zeros(len(names))
    np.add.at(lack, rows["method"], np.maximum(p - q, 0))
    out = dict.fromkeys(ELSEWHERE, 0.0)
    for k, cause in enumerate(ELSEWHERE[:-1]):
        surplus = np.zeros(len(names))
        here = below == k
        np.add.at(surplus, rows["method"][here], np.maximum(q - p, 0)[here])
        moved = np.minimum(lack, surplus)
        out[cause] = float(moved.sum())
        lack -= moved
    out[ELSEWHERE[-1]] = float(lack.sum())
    return out


def differences(pair: Pair, top: int) -> list[dict[str, object]]:
    """The contexts that differ most."""
    rows, names = pair.tree.nodes, pair.tree.names
    p, q = (weights / (weights.sum() or 1.0) for weights in (pair.a, pair.b))
    out = []
    for n in np.argsort(-np.abs(p - q), kind="stable")[:top].tolist():
        path, up = [], n
        while up >= 0:
            path.append(names[rows["method"][up]])
            up = int(rows["parent"][up])
        out.append({"calls": int(pair.a[n]), "found": int(pair.b[n]), "path": path[-2::-1]})
    return out


def compared(truth: Tree, found: Tree, weight: str, top: int) -> dict[str, Any]:
    pair = paired((truth, weights(truth, weight)), (found, weights(found, weight)))
    return {
        "weight": weight, "contexts": int((pair.a > 0).sum()), "total": int(pair.a.sum()), "found": int(pair.b.sum()),
        "overlap": overlap(pair), "hot_edge_coverage": hot_edge_coverage(pair), "causes": causes(pair),
        "differences": differences(pair, top),
    }  # fmt: skip


def weights(tree: Tree, weight: str) -> NDArray[np.uint64]:
    return np.asarray(tree.nodes[f"observed_{weight}"], np.uint64)


def runs(options: argparse.Namespace, directory: Path) -> None:
    """Both, into `directory`."""
    words = [*options.java, "-XX:+UseSerialGC", *PROGRAMS[options.program](directory, options.scale)]
    java = str(Path(options.jdk) / "bin" / "java") if options.jdk else "java"
    if options.program == "sunflow":
        words[-1] = "1"  # thread
    done = record([java, *words], directory / "truth", steps=False)
    if done.returncode:
        raise TruthError(f"the program ended with {done.returncode}: {done.stderr[-500:]}")
    emulated.record([java, *words], directory / "run", aux_kib=emulated.ROOMY_AUX_KIB)


def figures(options: argparse.Namespace, directory: Path) -> list[dict[str, Any]]:
    missing = {"missing_bytes": emulated.missing(directory / "run")}
    main, thread = MAIN[options.program], View(sites=False, named=(THREAD,))
    view, rest = replace(thread, include=(main,)), replace(thread, exclude=(main,))
    lost = replace(rest, include=(escape(UNKNOWN),))
    recording = directory / "run" / f"{emulated.NAME}.json"
    settings: dict[str, Any] = {"flow.interpreted": True}

    def found(through: Callable[[Iterable[Message]], Iterable[Message]] = iter) -> Tree:
        return of_recording(recording, print, through=through, **settings).tree

    whole, true = found(), replace(view, named=()).of(truth_tree(directory / "truth"))
    seen = merged((view.of(whole), lost.of(whole)))
    out = [{"what": "lossless"} | compared(true, seen, "invocations", options.top)]

    def of_main(tree: Tree) -> Tree:
        return merged((view.of(tree), rest.of(tree)))

    def at_most(what: str) -> Tree:
        if what == "lossy":
            return thinned(whole, options.lose)
        return of_main(Panes(recording, print).within(options.duty))

    whole = of_main(whole)
    for what, through in (
        ("lossy", options.lose and Bursts(options.lose, 4096, Random(1))),
        ("duty", options.duty and Duty(options.duty)),
    ):
        if not through:
            continue
        part, most = of_main(found(through)), at_most(what)
        for weight in ("invocations", "ticks"):
            row = compared(whole, part, weight, options.top)
            if weight == "invocations" or what == "duty":
                pair = paired((whole, weights(whole, weight)), (most, weights(most, weight)))
                row["at_most"] = overlap(pair)
            out.append({"what": what} | row)
    return [missing | row for row in out]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy.contexts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jdk", metavar="PATH", help="a JDK's directory (default: java in PATH)")
    parser.add_argument("--program", choices=MAIN, default="lucene")
    parser.add_argument("--scale", type=float, default=0.1, help="of the program's work (default 0.1)")
    parser.add_argument("--lose", type=share, metavar="SHARE", help="of the trace's bytes")
    parser.add_argument("--duty", type=share, metavar="SHARE", help="of the time that is traced")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="contexts to show (default 10)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep both runs in DIR, which is made")
    parser.add_argument("--from", dest="kept", type=Path, metavar="DIR", help="runs that were kept")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("java", nargs="*", metavar="JAVA_OPTIONS")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.kept or options.keep or Path(scratch)
        try:
            if not options.kept:
                directory.mkdir(parents=True, exist_ok=True)
                runs(options, directory)
            rows = figures(options, directory)
        except (TruthError, FlowTruthError, OSError) as error:
            print(f"contexts: {error}", file=sys.stderr)
            return 1
    if options.json:
        print(json.dumps(rows))
        return 0
    print(f"recording: {rows[0]['missing_bytes']:,} bytes are missing in it")
    for row in rows:
        print(
            f"{row['what']}, by {row['weight']}: overlap {row['overlap']:.2%}"
            f"{' (at most {:.2%})'.format(row['at_most']) if 'at_most' in row else ''}, hot-edge coverage "
            f"{row['hot_edge_coverage']:.1%}; {row['contexts']:,} contexts, {row['total']:,}, found {row['found']:,}"
        )
        print("  lacks: " + ", ".join(f"{part:.2%} {cause}" for cause, part in row["causes"].items()))
        for difference in row["differences"]:
            print(f"  {difference['calls']:>12,} {difference['found']:>12,}  {' > '.join(difference['path'][-6:])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
