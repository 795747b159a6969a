"""Real JVMs: the code as told, at the end, equals the code in their memory."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import capstone
import numpy as np
import pytest
from numpy.typing import NDArray

from capture.code_poller.memory import PAGE, ProcessMemory
from capture.emulator import launch
from capture.live.drain import Drain
from jvm.agent.build import library
from jvm.code import diff as codediff
from jvm.code.image import CodeImage
from jvm.code.version import FOREVER, Kind
from stages.messages import JitBatch
from tests.jdks import java
from tests.jvm.agent.java_process import Subject, eventually

DECODER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
DECODER.detail = True

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.xdist_group("jvm-agent")]


def steers(code: NDArray[np.uint8], begin: int, end: int) -> bool:
    """Could bytes [begin, end) steer control flow? Not within the constant of a mov, or of a comparison with a field of
    the thread (r15: the guard value of an entry barrier), as a disassembler reads them."""
    for size in range(4, 12):
        for start in range(max(end - size, 0), begin):
            found = next(DECODER.disasm(code[start : start + size].tobytes(), start), None)
            if found is None or found.size != size or start + found.imm_offset > begin:
                continue
            if found.mnemonic == "movabs" or (found.mnemonic == "cmp" and "[r15 + " in found.op_str):
                return False
    return True


def stretches(known: NDArray[np.uint8], now: NDArray[np.uint8], begin: int, end: int) -> list[tuple[int, int]]:
    """The stretches of bytes within [begin, end) that differ without a gap. Constants of two objects may lie side by
    side, and the collector moves now one of them, now the other."""
    at = begin + np.flatnonzero(known[begin:end] != now[begin:end])
    return [(int(each[0]), int(each[-1]) + 1) for each in np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)]


def live(memory: ProcessMemory, start: int, end: int) -> NDArray[np.uint8]:
    pieces = [memory.read(np.array([at], np.uint64), min(PAGE, end - at))[0].copy() for at in range(start, end, PAGE)]
    return np.concatenate(pieces)


@pytest.mark.parametrize(
    ("version", "emulated", "options"),
    [
        (17, False, []),
        (25, False, []),
        (17, False, ["-XX:ReservedCodeCacheSize=5m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xcomp"]),
        (17, True, ["-XX:+UseSerialGC"]),
    ],
)
def test_the_image_is_what_stands_in_memory(version: int, emulated: bool, options: list[str], tmp_path: Path) -> None:
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    if emulated and shutil.which("qemu-x86_64") is None:
        pytest.skip("qemu-user is not installed")
    code = CodeImage()
    prefix = launch.command([java(version)], session / "pt")[:-1] if emulated else []

    def told() -> int:
        for message in drain.poll():
            if isinstance(message, JitBatch):
                code.feed(message.data, message.tsc)
        return code.counts["patches"]

    with (
        closing(Drain(session, host="h", reread_share=0.2)) as drain,
        Subject(version, [f"-agentpath:{library()}=dir={session}", *options], prefix) as jvm,
    ):
        for command in ("work 20000", "churn 5", "work 20000"):
            jvm.tell(command)
            told()
        memory = ProcessMemory(jvm.pid)

        def differences() -> list[str]:
            """Compares all standing code; only code that the JVM changes in this moment may differ."""
            told()
            view = code.view()
            found = []
            for row in range(len(view.start)):
                start, end = int(view.start[row]), int(view.end[row])
                known = view.code[int(view.data_at[row]) :][: end - start]
                now = live(memory, start, end)
                runs = [(b, e) for b, e in codediff.runs(known, now) if not codediff.padding(now, b, e)]
                if any(steers(now, begin, end) for run in runs for begin, end in stretches(known, now, *run)):
                    blob = code.version(int(view.blob[row]))
                    assert blob is not None
                    found.append(f"{blob.kind.name} {blob.name} {start:#x} {runs}")
            return found

        last: list[str] = []

        def same() -> bool:
            last[:] = differences()
            return not last

        eventually(lambda: f"nothing differs; at last {len(last)}: {last[-5:]}", same)
        assert told() > 10
        standing = [v for v in code.versions() if v.kind == Kind.NMETHOD and v.until == FOREVER]
        assert len(standing) > 20
        assert drain.faults == []
        patched = [v for v in code.versions() if v.patched]
        assert len(patched) > 5
        for v in patched:
            assert v.loaded < v.patched
