"""An evaluation's results, for people and for programs."""

from __future__ import annotations

from typing import Any

from benchmarks.flow_truth import compare
from benchmarks.flow_truth.record import Run
from benchmarks.flow_truth.result import Result

SHOWN = 12


def figures(run: Run, result: Result) -> dict[str, Any]:
    blocks = max(result.blocks, 1)
    return {
        "java": list(run.java),
        "jvm_status": run.status,
        "run_seconds": round(run.seconds, 1),
        "attached": bool(run.attached),
        "bytes": result.bytes,
        "aux_full": run.aux_full,
        "tnt_bits": result.bits,
        "addresses": result.tips,
        "branches": result.bits + result.tips,
        "reread_cpu_share": run.reread_seconds / run.seconds,
        "reread_learning_cpu_share": run.reread_learning_seconds / run.seconds,
        "decode_cpu_seconds": round(result.seconds, 2),
        "decode_mb_s": result.bytes / 1e6 / max(result.seconds, 1e-9),
        "blocks": result.blocks,
        "right": result.right,
        "right_share": result.right / blocks,
        "flagged": result.flagged.total(),
        "flagged_share": result.flagged.total() / blocks,
        "flagged_by_kind": dict(result.flagged.most_common()),
        "breaks": dict(result.breaks.most_common()),
        "silent": result.silent,
        "silent_share": result.silent / blocks,
        "silent_ran_otherwise": int(result.counts[compare.WRONG]),
        "silent_never_ran": int(result.counts[compare.EXTRA]),
        "silent_other_thread": int(result.counts[compare.FOREIGN]),
        "silent_by_kind": [
            {"blocks": n, "times": result.runs[key], "ended": key[0], "after": key[1], "ran": key[2], "decoded": key[3]}
            for key, n in result.wrong.most_common()
        ],
        "untold_rounds_blocks": result.rounds,
        "inline_cache_stub_blocks": int(result.counts[compare.IC]),
        "faults": list(run.faults),
    }


def text(f: dict[str, Any]) -> str:
    late = ", attached late" if f["attached"] else ""
    lines = [
        f"java {' '.join(f['java'][1:])}",
        f"status {f['jvm_status']} after {f['run_seconds']} s{late}; {f['bytes'] / 1e6:.1f} MB of trace, "
        f"{f['branches']:,} branches ({f['tnt_bits']:,} TNT bits, {f['addresses']:,} addresses); "
        f"AUX full {f['aux_full']} times",
        f"rereading {f['reread_cpu_share']:.2%} of a CPU, {f['reread_learning_cpu_share']:.2%} to learn what is there; "
        f"decoded at {f['decode_mb_s']:.1f} MB/s of CPU time",
        "",
        f"{'blocks in the filter':34}{f['blocks']:>15,}",
        f"{'decoded right':34}{f['right']:>15,}  {f['right_share']:.5%}",
        f"{'flagged':34}{f['flagged']:>15,}  {f['flagged_share']:.5%}",
    ]
    breaks = f["breaks"]
    for kind, n in list(f["flagged_by_kind"].items())[:SHOWN]:
        times = breaks.get(kind.removeprefix("break:"), 0) if kind.startswith("break:") else 0
        lines.append(f"    {kind:30}{n:>15,}" + (f"  ({times:,} breaks)" if times else ""))
    lines.append(f"{'silently wrong':34}{f['silent']:>15,}  {f['silent_share']:.2e}")
    for kind in f["silent_by_kind"][:SHOWN]:
        what = f"{kind['after']} → ran {kind['ran']}, decoded {kind['decoded']}; {kind['ended']}"
        lines.append(f"    {kind['blocks']:>11,} in {kind['times']:>7,}  {what}")
    left = len(f["silent_by_kind"]) - SHOWN
    if left > 0:
        lines.append(f"    and {left} kinds more (--json has all)")
    if f["silent_other_thread"]:
        lines.append(f"    {f['silent_other_thread']:>11,} given to another thread")
    lines.append(f"{'in inline-cache stubs (neither)':34}{f['inline_cache_stub_blocks']:>15,}")
    lines.append(f"{'in untold rounds (neither)':34}{f['untold_rounds_blocks']:>15,}")
    lines += [f"fault: {fault}" for fault in f["faults"]]
    return "\n".join(lines)
