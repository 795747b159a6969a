"""How exact the control flow in bytecodes is, against a JVM that tells each bytecode it runs.

    python -m benchmarks.accuracy [--jdk PATH] [--loss none|model=BYTES_PER_S|buffer=BYTES|duty=SHARE|bursts=SHARE]
        [--xint|--tiered] [--thread NAME] [--native] [--planted N] [--top N] [--keep DIR] [--json]
        (-- JAVA_ARGS … | --program fop|h2|lucene|sunflow [--scale X] | --from DIR)

The program runs twice: under -Xint with an agent that sees every bytecode (the truth), and under the emulated PT,
interpreted (--xint) or in the ordinary mode (--tiered, the default). It should be deterministic; compared is one thread
(main). `--native` runs it once more without either, with Java Flight Recorder. `--loss` may be given again and again:
losses are made in the recording (benchmarks/accuracy/losses.py).

Of the interpreter every bytecode is compared, in order (benchmarks/accuracy/align.py, docs/accuracy.md); of compiled
code the invocations of methods. `--planted N` makes every Nth bytecode that was found a false one, and every Nth step
of a filling.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.accuracy.executed import truth
from benchmarks.accuracy.figures import (
    BYTECODES_OF,
    INVOCATIONS_OF,
    WITHIN_BYTECODES,
    WITHIN_INVOCATIONS,
    beside,
    by_method,
    control_flow,
    executed,
    invoked,
    lossy,
)
from benchmarks.accuracy.losses import LossError, made
from benchmarks.accuracy.methods import BITS, I64, Methods
from benchmarks.accuracy.native import sampled
from benchmarks.accuracy.runs import Found, found
from benchmarks.accuracy.truth import TruthError, record
from benchmarks.flow_truth import FlowTruthError
from benchmarks.flow_truth import record as emulated
from benchmarks.flow_truth.table import PROGRAMS


def runs(options: argparse.Namespace, directory: Path) -> None:
    """Truth and recording, and the native run, into `directory`."""
    java = [str(Path(options.jdk) / "bin" / "java") if options.jdk else "java", *options.java]
    if options.program:
        java += ["-XX:+UseSerialGC", *PROGRAMS[options.program](directory, options.scale)]
        if options.program == "sunflow":
            java[-1] = "1"  # thread
    done = record(java, directory / "truth")
    if done.returncode:
        raise TruthError(f"the program ended with {done.returncode}: {done.stderr[-500:]}")
    traced = [java[0], *(["-Xint"] if options.xint else []), *java[1:]]
    emulated.record(traced, directory / "run", aux_kib=emulated.ROOMY_AUX_KIB)
    if options.native:
        (directory / "native.json").write_text(json.dumps(sampled(java, directory)))


def planted(sequence: I64, every: int, numbers: Methods) -> I64:
    """Each `every`th bytecode is one that never ran."""
    if every:
        sequence = sequence.copy()
        sequence[(sequence >= 0).nonzero()[0][every - 1 :: every]] = numbers.number("", "[planted]", "") << BITS
    return sequence


def compared(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    numbers, missing = Methods(), emulated.missing(directory / "run")
    true = truth(directory / "truth", numbers, options.thread)
    invocations = invoked(true, numbers)
    lossless = found(directory / "run", numbers)
    if options.thread not in lossless.threads:
        raise TruthError(f"the run has no thread {options.thread!r}")
    tid, since = lossless.threads[options.thread]
    out: dict[str, Any] = {"recording": {"bytes": lossless.all_bytes, "missing_bytes": missing}}

    def of(run: Found) -> dict[str, Any]:
        whole = run.executed.of(tid, since)
        a = beside(true, planted(whole, options.planted, numbers))
        heavy, seen = executed(a, numbers)
        out["truth"] = {"bytecodes": sum(heavy.values()), "invocations": sum(invocations.values())}
        if (kept := directory / "native.json").is_file():
            out["native"] = by_method(heavy, json.loads(kept.read_text()), 10, 1)
        begin = run.executed.when(tid, since, a.begin)
        told, bytecodes = (run.reports.counts(column, begin) for column in ("invocations", "bytecodes"))
        return {
            "lost_bytes": 1 - run.bytes / max(run.all_bytes, 1),
            "control_flow": control_flow(a, numbers, options.top),
            "invocations": by_method(invocations, told, INVOCATIONS_OF, WITHIN_INVOCATIONS),
            "interpreted_bytecodes": by_method(heavy, seen, BYTECODES_OF, WITHIN_BYTECODES),
            "bytecodes": by_method(heavy, bytecodes, BYTECODES_OF, WITHIN_BYTECODES),
        }

    for text in options.loss:
        if (loss := made(text)) is None:
            out[text] = of(lossless)
            continue
        run = found(directory / "run", numbers, loss, recover=True)
        whole, seen = ({tid: x.executed.runs[tid]} for x in (lossless, run))
        out[text] = {"recovery": lossy(whole, seen, run.executed.fillings, options.planted)} | of(run)
    return out


def show(found: dict[str, Any]) -> None:
    print("  ".join(f"{name} {value:,}" for name, value in found["truth"].items()))
    print("recording: {bytes:,} bytes, and {missing_bytes:,} are missing in it".format(**found["recording"]))
    if "native" in found:
        print(f"Flight Recorder: {found['native']['top_10']} of the 10 heaviest methods")
    for loss, f in found.items():
        if loss in ("truth", "recording", "native"):
            continue
        flow = f["control_flow"]
        print(f"\nloss {loss}: {f['lost_bytes']:.1%} of the bytes")
        print(f"  control flow right {flow['right']:.3%} of {flow['bytecodes']:,}, wrong {flow['wrong']:.3%}")
        print(f"  found as often as they ran, in whatever order: {flow['as_often']:.3%}")
        print(f"  {flow['unseen']:,} bytecodes more where the truth sees none")
        for kind in flow["differences"]:
            print(f"    {kind['share']:.3%} missing {kind['kind']}")
            for name, times in kind["methods"]:
                print(f"      {times:>12,}  {name}")
        print(
            f"  coverage: precision {flow['coverage']['precision']:.2%}, recall {flow['coverage']['recall']:.2%}; "
            f"path frequencies overlap {flow['path_overlap']:.2%}"
        )
        for name, value in f.get("recovery", {}).items():
            print(f"  {name} {value:,}" if isinstance(value, int) else f"  {name} {value:.2%}")
        for name in ("invocations", "interpreted_bytecodes", "bytecodes"):
            by = f[name]
            print(f"  {name.replace('_', ' ')}: {by['within']} of {by['methods']} methods as in the truth, "
                  f"{by['top_10']} of the first 10")  # fmt: skip
            for method, true, seen in by["first"]:
                print(f"    {true:>14,} {seen:>14,}  {method}")
            for method, true, seen in by["off"][:20]:
                print(f"    off {true:>10,} {seen:>14,}  {method}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy",
        usage="python -m benchmarks.accuracy [options] -- JAVA_ARGS …",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jdk", metavar="PATH", help="a JDK's directory (default: java in PATH)")
    parser.add_argument("--loss", action="append", metavar="MODE", help="repeatable (default none)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--xint", action="store_true", help="the recorded run interprets all code")
    mode.add_argument("--tiered", action="store_true", help="it compiles, as usual (the default)")
    parser.add_argument("--thread", default="main", metavar="NAME", help="which is compared (default main)")
    parser.add_argument("--native", action="store_true", help="Flight Recorder's hot methods too")
    parser.add_argument("--planted", type=int, default=0, metavar="N", help="make errors, to see that they count")
    parser.add_argument("--top", type=int, default=3, metavar="N", help="methods a kind of difference (default 3)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs in DIR, which is made")
    where.add_argument("--from", dest="kept", type=Path, metavar="DIR", help="runs that were kept")
    parser.add_argument("--program", choices=PROGRAMS, help="in the place of JAVA_ARGS, which are options then")
    parser.add_argument("--scale", type=float, default=0.02, help="of that program's work (default 0.02)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("java", nargs="*", metavar="JAVA_ARGS")
    options = parser.parse_args(arguments)
    options.loss = options.loss or ["none"]
    if not options.kept and not options.java and not options.program:
        parser.error("give the arguments for java behind --, a --program, or runs that were kept with --from")
    with tempfile.TemporaryDirectory(prefix="accuracy-") as scratch:
        directory = options.kept or options.keep or Path(scratch)
        try:
            for text in options.loss:
                made(text)
            if not options.kept:
                directory.mkdir(parents=True, exist_ok=True)
                runs(options, directory)
            figures = compared(options, directory)
        except (TruthError, FlowTruthError, LossError, OSError) as error:
            print(f"accuracy: {error}", file=sys.stderr)
            return 1
    if options.json:
        print(json.dumps(figures))
    else:
        show(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
