"""Other decoders, each a program over the same bytes: libipt, libxdc, perf."""

from __future__ import annotations

import resource
import shutil
import subprocess
from pathlib import Path

import numpy as np

from benchmarks.cases import AGAIN, BenchmarkError, Case
from stages.follow.code.code_copy import Code, Image

PEERS = ("libipt", "perf")


def build(name: str, directory: Path, *libraries: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BenchmarkError(f"{name}: no C compiler")
    program = directory / name
    source = Path(__file__).with_name("peers") / f"{name}.c"
    done = subprocess.run(
        [compiler, "-O2", "-o", str(program), str(source), *libraries], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"{name}: {source.name} does not build: {done.stderr.splitlines()[-1]}")
    return program


class Peers:
    """Other decoders' programs over each stream, in files of its own."""

    GAP = 1 << 20  # blobs nearer than this share a section: libipt is fast on few large ones

    def __init__(self, case: Case, directory: Path, libxdc: Path | None = None) -> None:
        self._case, self._library = case, libxdc
        self._libipt = build("libipt", directory, "-lipt")  # Debian: libipt-dev
        self._libxdc = build("libxdc", directory, "-ldl") if libxdc else None
        self._files: dict[str, list[Path]] = {}
        for number, (row, streams) in enumerate(case.parts.items()):
            self._files[row] = [directory / f"trace{number}.{n}" for n in range(len(streams))]
            for file, stream in zip(self._files[row], streams, strict=True):
                stream.data.tofile(file)
        self._image, self._sections = directory / "image", directory / "sections"
        image = Image()
        image.update(case.view)
        self._pack(image.code)

    def _pack(self, code: Code) -> None:
        lines: list[tuple[int, int, int]] = []
        with self._image.open("wb") as image:
            for start, end, at in zip(code.start.tolist(), code.end.tolist(), code.data_at.tolist(), strict=True):
                here = image.tell()
                if lines and start - (lines[-1][0] + lines[-1][2]) < self.GAP:
                    address, offset, size = lines.pop()
                    image.write(b"\xf4" * (start - address - size))  # HLT: nothing runs through it
                    lines.append((address, offset, end - address))
                else:
                    lines.append((start, here, end - start))
                image.write(code.code[at : at + end - start].tobytes())
        self._sections.write_text("".join(f"{a:x} {o:x} {n:x}\n" for a, o, n in lines))

    def packets(self) -> tuple[float, float]:
        """libipt's packet decoder: CPU seconds and packets."""
        seconds, packets, *_ = np.sum(
            [self._run(self._libipt, "packets", 1, file)[0] for file in self._files[AGAIN]], axis=0
        ).tolist()
        return seconds, packets

    def blocks(self, *rows: str) -> list[tuple[float, float, float, float]]:
        """libipt's block decoder over one row after the other: CPU seconds, blocks, instructions, errors of each."""
        return self._flow(rows, self._libipt, "blocks")

    def xdc(self, mode: str, *rows: str) -> list[tuple[float, float, float, float]]:
        """libxdc: CPU seconds, edges, 0, streams that it did not decode to their end."""
        assert self._libxdc is not None
        return self._flow(rows, self._libxdc, self._library, mode)

    def _flow(self, rows: tuple[str, ...], program: Path, *words: object) -> list[tuple[float, float, float, float]]:
        config = self._case.streams[0].config
        filters = f"{config.filter_lo:x}", f"{config.filter_hi:x}"
        each = [
            self._run(program, *words, len(rows), self._image, self._sections, *filters, *traces)
            for traces in zip(*(self._files[row] for row in rows), strict=True)
        ]
        return [tuple(row) for row in np.sum(each, axis=0).tolist()]

    @staticmethod
    def _run(program: Path, *words: object) -> list[list[float]]:
        done = subprocess.run(
            [str(x) for x in (program, *words)], capture_output=True, text=True, check=False, timeout=3600
        )
        lines = done.stdout.splitlines()
        if done.returncode or not lines or "endless" in lines:
            raise BenchmarkError(f"{program.name}: {done.stderr.strip() or 'goes round in circles on this image'}")
        return [[float(x) for x in line.split()] for line in lines]


def perf_pass(case: Case) -> float:
    """perf script over the recording, asked for one sample in 10⁹ instructions: it decodes all and prints nothing."""
    if case.recording is None:
        raise BenchmarkError("perf: needs a recording (perf.data), once")
    perf = shutil.which("perf")
    if perf is None:
        raise BenchmarkError("perf: not installed (Debian: linux-perf)")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [perf, "script", "-i", str(case.recording), "--itrace=i1000000000i", "-F", "ip"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=3600,
    )
    if done.returncode:
        raise BenchmarkError(f"perf: {(done.stderr.splitlines() or ['failed'])[-1]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
