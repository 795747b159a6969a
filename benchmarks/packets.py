"""How fast the packet layer takes each kind of packet, against libipt's packet decoder.

    python -m benchmarks.packets [--kinds pad pip …] [--mb N] [--rounds N] [--json]

A made stream of one kind each: a PSB+, then the same packets again and again. Both take turns, round after round, and
CPU time is measured. A kind in which libipt is faster than twice our time (the bar of `benchmarks.decode`) is marked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import AGAIN, BenchmarkError, Case, Stream
from benchmarks.decode import packet_pass, timed
from benchmarks.peer_decoders import Peers
from jvm.code.snapshot import CodeView
from stages.messages import PtConfig, StreamKey
from tests.pt import ptwriter as w

BAR = 2.0
_HERE, _THERE = 0x7F00_1234_5678, 0x7F00_4321_8765
KINDS: dict[str, bytes] = {
    "pad": w.pad() * 64,
    "pad, few": (w.pad() * 3 + w.tip(_HERE, 1)) * 8,
    "tnt.8": w.tnt8("!.!!.!") + w.tnt8("!") + w.tnt8("..!"),
    "tnt.64": w.tnt64("!.!!.!" * 7),
    "tip": w.tip(_HERE, 3) + w.tip(_THERE, 2) + w.tip(_HERE, 1),
    "tip, 64 bits": w.tip(_HERE, 6) + w.tip(_THERE, 4),
    "fup, tip": w.fup(_HERE, 3) + w.tip(_THERE, 2),
    "tip.pgd, tip.pge": w.tip_pgd() + w.tip_pge(_HERE, 3),
    "pip": w.pip(0x123456000),
    "pip, pad": w.pip(0x123456000) + w.pad() * 24,
    "mode.exec, tip": w.mode_exec(64) + w.tip(_HERE, 3),
    "mode.tsx, fup": w.mode_tsx(True) + w.fup(_HERE, 3),
    "cbr": w.cbr(24),
    "tsc": w.tsc(0x123456789),
    "tsc, tma": w.tsc(0x123456789) + w.tma(0x1234, 17),
    "mtc": w.mtc(7),
    "mtc, timed": w.mtc(8) + w.mtc(9),
    "cyc": w.cyc(3) + w.cyc(90) + w.cyc(9000),
    "vmcs": w.vmcs(0x123456000),
    "mnt": w.mnt(0x1234567890),
    "ptw, fup": w.ptw(0x1234, 8, True) + w.fup(_HERE, 3),
    "exstop": w.exstop(),
    "mwait, pwre, pwrx": w.mwait(1, 2) + w.pwre(3) + w.pwrx(1, 2),
    "ovf, fup": w.ovf() + w.fup(_HERE, 3),
    "psb": w.psb() + w.mode_exec(64) + w.fup(_HERE) + w.psbend(),
    "cfe, evd": w.evd(0, 1) + w.cfe(1, 14),
    "bbp, bip, bep": w.bbp(1) + w.bip(3, 99) * 8 + w.bep(),
}
"""The packets that are written again and again."""
_TO_US_ALONE = frozenset({"cfe, evd", "bbp, bip, bep"})  # older versions of libipt know no such packets


def case_of(packets: bytes, size: int, timed: bool = False) -> Case:
    """`timed`: behind a TMA, so that MTCs tell the time, which libipt's packet decoder does not ask for."""
    head = w.psb() + w.tsc(1000) + (w.tma(0, 0) if timed else b"") + w.psbend() + w.tip_pge(_HERE)
    data = np.frombuffer(head + packets * max(size // len(packets), 1), np.uint8)
    config = PtConfig(mtc_shift=3, ctc_num=168, ctc_den=2)
    return Case([Stream(StreamKey("made", 1, 0, -1), config, data)], CodeView.of([]))


def race(kinds: list[str], size: int, rounds: int) -> dict[str, dict[str, Any]]:
    """By kind: MB/s, ns a packet, times as fast as libipt (least, median, most)."""
    out: dict[str, dict[str, Any]] = {}
    packet_pass(case_of(KINDS["pad"], 1 << 16))  # compile
    for kind in kinds:
        case = case_of(KINDS[kind], size, kind == "mtc, timed")
        with tempfile.TemporaryDirectory() as directory:
            libipt = Peers(case, Path(directory))
            turns = [(timed(partial(packet_pass, case)), *libipt.packets()) for _ in range(rounds)]
        ours = [seconds for seconds, *_ in turns]
        count = turns[0][2]
        ratios = sorted(peer / seconds for seconds, peer, _ in turns)
        out[kind] = {
            "mb_s": case.size[AGAIN] / statistics.median(ours) / 1e6,
            "ns_a_packet": statistics.median(ours) / max(count, 1) * 1e9 if kind not in _TO_US_ALONE else None,
            "times": [ratios[0], statistics.median(ratios), ratios[-1]] if kind not in _TO_US_ALONE else None,
        }
    return out


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packets", description=__doc__.split("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--mb", type=float, default=16, help="of each kind")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        figures = race(options.kinds, round(options.mb * 1e6), options.rounds)
    except (BenchmarkError, OSError) as error:
        print(f"benchmarks.packets: {error}", file=sys.stderr)
        return 1
    if options.json:
        json.dump(figures, sys.stdout, indent=1)
        print()
        return 0
    print(f"{'one kind each':20}{'MB/s':>8}{'ns':>8}   times as fast as libipt (bar {BAR:g})")
    for kind, f in figures.items():
        ns = f"{f['ns_a_packet']:8.2f}" if f["ns_a_packet"] else f"{'':8}"
        times = "" if f["times"] is None else " ".join(f"{x:6.2f}" for x in f["times"])
        mark = "  slow" if f["times"] and f["times"][1] < BAR else ""
        print(f"{kind:20}{f['mb_s']:8.0f}{ns}   {times}{mark}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
