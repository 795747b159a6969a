"""libipt on the same traces: where packets begin and end, which instructions ran."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import numpy as np
import pytest

from jvm.code.snapshot import CodeView
from stages.pt import packet_scan as ps
from stages.pt import packets as p
from stages.pt.events import event as e
from stages.pt.exact.decoder import FlowDecoder
from tests.pt import naive
from tests.pt.machine import BASE, Processor, program
from tests.pt.test_events import CASES

_SOURCE = Path(__file__).parents[1] / "oracles" / "pt_flow.c"
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def libipt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("no gcc")
    program = tmp_path_factory.mktemp("libipt") / "pt_flow"
    built = subprocess.run([gcc, "-O1", str(_SOURCE), "-lipt", "-o", str(program)], capture_output=True, check=False)
    if built.returncode:
        pytest.skip("no libipt (Debian package libipt-dev)")
    return program


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("seed", range(12))
def test_same_flow_and_packets(libipt: Path, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    code, instructions = program(rng, 60)
    processor = Processor(rng, instructions, compress_returns=bool(seed % 3), honest=True)
    processor.run(3000)
    trace = np.frombuffer(processor.trace, np.uint8)
    (tmp_path / "trace").write_bytes(processor.trace)
    (tmp_path / "code").write_bytes(code)
    theirs = _lines(str(libipt), "flow", str(tmp_path / "trace"), str(tmp_path / "code"), hex(BASE), "0", "0")
    ours = [f"{ip:016x}" for batch in FlowDecoder(trace, CodeView.of([(BASE, code)])) for ip in batch.ips.tolist()]
    assert [line for line in theirs if line[0] != "["] == ours
    assert not [line for line in theirs if "error" in line]
    packets = _lines(str(libipt), "packets", str(tmp_path / "trace"))
    out = np.zeros(len(trace), ps.PACKET_DTYPE)
    n, _ = ps.scan(trace, 0, len(trace), 0, ps.scanner(), out)
    found = [f"{r['offset']:x} {r['size']}" for r in out[:n] if r["kind"] != p.SKIPPED]
    assert found == [f"{line.split()[0]} {line.split()[2]}" for line in packets]


def _known(trace: object) -> bool:
    """To libipt 2.0, which has none of the packets of Event Tracing, of PEBS and of triggers."""
    assert isinstance(trace, bytes)
    new = {p.CFE, p.EVD, p.TRIG, p.BBP, p.BEP}
    return not any(q.kind in new or (q.kind == p.MODE_EXEC and q.sub & 4) for q in naive.decode(trace))


# libipt's numbers of events; it has none of its own for some of ours
_EVENTS = [
    e.ENABLED, e.DISABLED, e.ASYNC_DISABLED, e.INTERRUPTED, e.PAGING, e.ASYNC_PAGING, e.OVERFLOW, e.EXEC_MODE, e.TSX,
    e.STOPPED, e.VMCS, e.ASYNC_VMCS, e.EXSTOP, e.MWAIT, e.PWRE, e.PWRX, e.PTWRITE, e.TICK, e.CBR, e.MNT,
]  # fmt: skip


@pytest.mark.parametrize(("code", "raw", "expected"), [case for case in CASES if _known(case.values[1])])
def test_same_events(libipt: Path, tmp_path: Path, code: bytes, raw: bytes, expected: list[str]) -> None:
    trace = np.frombuffer(raw, np.uint8)
    (tmp_path / "trace").write_bytes(raw)
    (tmp_path / "code").write_bytes(code)
    theirs = _lines(str(libipt), "flow", str(tmp_path / "trace"), str(tmp_path / "code"), hex(BASE), "0", "0")
    ips, events = [], []
    for batch in FlowDecoder(trace, CodeView.of([(BASE, code)])):
        ips += [f"{'? ' if s else ''}{ip:016x}" for ip, s in zip(batch.ips.tolist(), batch.speculative, strict=True)]
        told = batch.events[batch.events["status"] == 0]["kind"].tolist()
        events += [f"[{_EVENTS.index(kind)}]" for kind in told if kind in _EVENTS]
    assert [line for line in theirs if line[0] != "["] == ips
    # of events at one place, 2.0 told some in another order than the versions after it
    assert sorted(line for line in theirs if line[0] == "[" and "error" not in line) == sorted(events)
    assert any("error" in line for line in theirs) == any("error" in line for line in expected)
