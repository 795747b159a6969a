"""`pt dump` and `pt flow` of a perf.data: a stream of it, decoded as the processor in its header writes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from capture.auxdata import AuxData
from capture.perf import perf_data as perfdata
from capture.perf.perf_data import Event, Feature, PerfDataError, Reader, Writer
from capture.recording.packed import pack_file
from stages.messages import Clock, PtConfig
from streamer.commands.pt import command
from tests.pt import ptwriter as w
from tests.pt.test_whichcpu import BDM70, SKZ84

MADE_BY = PtConfig(mtc_shift=3, ctc_num=192, ctc_den=2)
NOBODY = 0xFFFFFFFF
Piece = tuple[int, int, int, int, bytes]  # offset, idx, tid, cpu, trace


def write(path: Path, pieces: list[Piece], cpuid: str = "GenuineIntel,6,143,8") -> Path:
    writer = Writer(path)
    writer.event(Event.AUXTRACE_INFO, perfdata.auxtrace_info(MADE_BY, Clock(1 << 20, 21, 0, 0), True, ""))
    for offset, index, tid, cpu, trace in pieces:
        writer.auxtrace(memoryview(trace), offset, 1, index, tid, cpu)
    attr = perfdata.attribute(perfdata.PMU_TYPE, perfdata.pt_config_bits(MADE_BY), 0, 0)
    features = {Feature.CPUID: perfdata.text_feature(cpuid)} if cpuid else {}
    writer.close([(attr, [1], "intel_pt//")], features)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [*map(str, arguments)])


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return write(tmp_path / "x.perf.data", [(0, 0, NOBODY, 0, SKZ84)])


def test_the_header_says_which_processor(one: Path, tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(SKZ84)
    found = run("dump", one)
    assert found.exit_code == 0
    assert found.output == run("dump", tmp_path / "raw", "--cpu", "6/143").output
    assert "error" not in found.output
    by_the_book = run("dump", one, "--cpu", "none")
    assert by_the_book.output == run("dump", tmp_path / "raw", "--cpu", "none").output
    assert "error" in by_the_book.output


def test_it_says_the_clock_too(tmp_path: Path) -> None:
    trace = w.psb() + w.tsc(0xA000) + w.tma(0x102, 8) + w.psbend() + w.mtc(2)
    (tmp_path / "raw").write_bytes(trace)
    clock = ("--mtc-freq", 3, "--cpuid-0x15.ebx", 192, "--cpuid-0x15.eax", 2)
    path = write(tmp_path / "x.data", [(0, 0, NOBODY, 0, trace)])
    assert run("dump", path, "--time").output == run("dump", tmp_path / "raw", "--time", *clock).output
    assert run("dump", path, "--time").output != run("dump", tmp_path / "raw", "--time").output
    other = run("dump", path, "--time", "--cpuid-0x15.ebx", 96).output
    assert other == run("dump", tmp_path / "raw", "--time", *clock[:3], 96, *clock[4:]).output


def test_without_a_processor_in_the_header_it_is_asked_for(tmp_path: Path) -> None:
    found = run("dump", write(tmp_path / "x.data", [(0, 0, NOBODY, 0, SKZ84)], cpuid=""))
    assert "--cpu FAMILY/MODEL" in found.stderr


def test_flow(tmp_path: Path) -> None:
    (tmp_path / "code").write_bytes(b"\x90" * 16)
    path = write(tmp_path / "x.data", [(0, 3, 4711, NOBODY, BDM70)], "GenuineIntel,6,61,4")
    found = run("flow", path, "--image", f"{tmp_path}/code@0x1000")
    lines = ["[enabled]", "[exec mode: 64-bit]", "0000000000001000", "[disabled]"]
    assert found.output.splitlines() == [*lines, lines[0], *lines[2:]]


def test_a_stream_of_several(tmp_path: Path) -> None:
    """Pieces lie between each other; a thread's number may have been another thread's before."""
    trace = w.psb() + w.psbend() + w.tsc(5) + w.tsc(6)
    parts = [(0, 0, NOBODY, 0, trace[:20]), (0, 1, NOBODY, 1, w.psb()), (0, 2, 99, NOBODY, trace)]
    parts += [(20, 0, NOBODY, 0, trace[20:]), (0, 3, 99, NOBODY, w.psb() + w.tsc(9))]
    path = write(tmp_path / "x.data", parts)
    for more in [()], [("--stream", "cpu7")]:
        refused = run("dump", path, *sum(more, ()))
        assert refused.exit_code == 1
        assert "tid99 (34 bytes)" in refused.output
        assert "choose one with --stream" in refused.output
        assert len(refused.output.splitlines()) == 1
    (tmp_path / "raw").write_bytes(trace)
    expected = run("dump", tmp_path / "raw").output
    assert run("dump", path, "--stream", "cpu0").output == expected
    assert run("dump", path, "--stream", "tid99").output == expected
    assert "tsc        9" in run("dump", path, "--stream", "tid99.2").output


def test_lost_trace_is_no_trace(tmp_path: Path) -> None:
    """A packet does not go on behind a gap; offsets are those in the stream."""
    cut = w.psb() + w.psbend() + w.tsc(5)[:4]
    path = write(tmp_path / "x.data", [(0, 0, NOBODY, 0, cut), (0x100, 0, NOBODY, 0, w.psb() + w.tsc(6))])
    lines = run("dump", path).output.splitlines()
    assert lines[2:] == [
        "[12: error decoding packet: the trace ends inside a packet]",
        "[16: 234 bytes of trace are missing]",
        "0000000000000100  psb",
        "0000000000000110  tsc        6",
    ]
    (tmp_path / "code").write_bytes(b"\x90" * 16)
    found = run("flow", path, "--image", f"{tmp_path}/code@0x1000").output
    assert "[16: 234 bytes of trace are missing]" in found


def test_a_packed_one(one: Path) -> None:
    expected = run("dump", one).output
    assert run("dump", pack_file(one)).output == expected


@pytest.mark.parametrize(
    ("pieces", "says"), [([], "no trace of Intel PT"), ([(0, 0, NOBODY, 0, b"")], "0 bytes"), (None, "--stream is for")]
)
def test_what_cannot_be(pieces: list[Piece] | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.data"
    if pieces is None:
        path.write_bytes(w.psb())
    else:
        write(path, pieces)
    found = run("dump", path, "--stream", "cpu5")
    assert found.exit_code == 1
    assert says in found.output


def test_damage_is_told_with_its_place(one: Path) -> None:
    whole = bytearray(one.read_bytes())
    at = whole.index(struct.pack("<IHH", Event.AUXTRACE, 0, 48))
    whole[at + 6 : at + 8] = bytes(2)
    one.write_bytes(whole)
    with Reader(one) as reader, pytest.raises(PerfDataError, match=f"cannot have the size 0, at byte {at}"):
        AuxData(reader)
