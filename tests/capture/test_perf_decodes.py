"""A real JVM's trace, recorded: perf finds the same instructions in our perf.data as libipt in the raw stream."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from capture.emulator import launch
from capture.emulator.options import EmulatorError
from capture.emulator.truth import Version
from capture.live.drain import Drain
from capture.recording.record import Recorder
from capture.recording.replay import Replay
from jvm.agent import build
from jvm.cbuild import BuildError
from stages.messages import Chunk, Sideband, StreamOpen
from tests.oracles import ipt

BYTES = 150_000  # some 400,000 instructions
PAGE = 4096


def record(directory: Path) -> None:
    """`java -Xint -version` under emulation; the beginning of its trace."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("no JVM (Debian: openjdk-17-jdk-headless)")
    try:
        agent = f"-agentpath:{build.library()}=dir={directory}"
        argv = launch.command([java, agent, "-Xint", "-XX:+UseSerialGC", "-version"], directory / "pt")
    except (EmulatorError, BuildError) as error:
        pytest.skip(str(error))
    drain, recorder = Drain(directory, host="h", chunk_bytes=20_000), Recorder(directory / "rec", "x")
    cpu = str(min(os.sched_getaffinity(0)))  # one CPU, hence one stream
    process = subprocess.Popen(["taskset", "-c", cpu, *argv], stderr=subprocess.DEVNULL)
    written = 0
    deadline = time.monotonic() + 250
    try:
        while not drain.ended:
            assert time.monotonic() < deadline
            process.poll()
            for message in drain.poll():
                if isinstance(message, Chunk):
                    if written >= BYTES:
                        continue
                    written += len(message.data)
                recorder.write(message, drain.raw(message) if isinstance(message, Sideband) else None)
        assert process.wait(250) == 0
        assert drain.faults == []
    finally:
        process.kill()
        process.wait()
        drain.close()
        recorder.close()


def pages(elf: Path) -> list[Version]:
    """The known code, as libipt's oracle takes it: the pages that have any."""
    with elf.open("rb") as file:
        (segment,) = ELFFile(file).iter_segments()
        code, low = segment.data(), segment["p_vaddr"]
    used = np.frombuffer(code, np.uint8).reshape(-1, PAGE).any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], used, [False])).astype(np.int8))).reshape(-1, 2) * PAGE
    return [Version(0, low + begin, code[begin:end], False) for begin, end in edges.tolist()]


def perf_addresses(recording: Path) -> NDArray[np.uint64]:
    """Addresses of all instructions in order; no decoding error among them."""
    command = ["perf", "script", "-i", "x.perf.data", "--itrace=i0nse", "-F", "ip"]
    result = subprocess.run(command, cwd=recording, capture_output=True, text=True, timeout=200, check=True)
    assert "error" not in result.stdout + result.stderr
    return np.array([int(line, 16) for line in result.stdout.split()], np.uint64)


@pytest.mark.peer
@pytest.mark.jvm
@pytest.mark.slow
def test_perf_and_libipt_see_the_same_instructions(tmp_path: Path) -> None:
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed (Debian: linux-perf)")
    ipt.program()
    record(tmp_path)
    (elf,) = (tmp_path / "rec").glob("*.elf")
    with Replay(tmp_path / "rec/x.json") as replay:
        messages = list(replay.messages())
    chunks = [message for message in messages if isinstance(message, Chunk)]
    trace = np.concatenate([chunk.data for chunk in chunks])
    config = next(message.config for message in messages if isinstance(message, StreamOpen))
    rows = ipt.decode(trace, pages(elf), ipt.IptConfig((config.filter_lo, config.filter_hi)), instructions=True)
    assert not (rows["kind"] == ipt.Kind.FAILED).any()
    blocks = rows[rows["kind"] == ipt.Kind.BLOCK]
    first = np.concatenate(([0], np.cumsum(blocks["count"].astype(np.int64))))
    seen = perf_addresses(tmp_path / "rec")
    assert len(seen) > 100_000
    # Where the trace is cut, libipt walks on until it needs a packet; perf walks when it has one.
    assert 0 <= first[-1] - len(seen) < 1000
    whole = first[:-1] < len(seen)
    assert np.array_equal(seen[first[:-1][whole]], blocks["start"][whole])
    names = perf_names(tmp_path / "rec")
    assert {"[interpreter] invokestatic", "[interpreter] ireturn", "[stub] call_stub"} <= names
    assert "code_cache" not in names


def perf_names(recording: Path) -> set[str]:
    """Of all branches' origins and targets."""
    command = ["perf", "script", "-i", "x.perf.data", "--itrace=be", "-F", "sym,addr"]
    result = subprocess.run(command, cwd=recording, capture_output=True, text=True, timeout=200, check=True)
    return set(re.findall(r"(\[(?:interpreter|stub)\] [^\n(+]*?)(?:\+0x\w+)?(?: \(|\n| +=>)", result.stdout)) | set(
        re.findall(r"code_cache", result.stdout)
    )
