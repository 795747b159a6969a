"""The bytecodes that a program really runs: recorded by an agent of its own under -Xint, and read.

The format is described in truth_agent.c. A log may be of any size: it is read in blocks.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.agent.build import include_dir
from jvm.cbuild import compiled, compiler

SOURCE = Path(__file__).with_name("truth_agent.c")
MAGIC = b"BCSTEPS1"
MARK, BASE = 0xFFFF, 50_000
BLOCK = 1 << 22  # words
MAX_BYTES = 1 << 32
# HotSpot posts one step for a template that runs two bytecodes (JDK: TemplateTable::aload_0_internal, iload_internal).
STEPPED = ("-Xint", "-XX:-RewriteFrequentPairs")


class TruthError(ValueError):
    """The log of a thread cannot be read, or the program did not run."""


class Event(IntEnum):
    IN = 1  # the steps that follow are of this method
    ENTRY = 2  # the method begins
    EXIT = 3  # it returns, or an exception leaves it
    CATCH = 4  # an exception is caught in it
    CUT = 5  # the limit is reached: nothing follows


class Method(NamedTuple):
    holder: str  # internal name
    name: str
    descriptor: str


class Block(NamedTuple):
    """A piece of a thread's steps."""

    method: NDArray[np.int32]  # (n,) number of the method of each step
    bci: NDArray[np.uint16]  # (n,)
    at: NDArray[np.int64]  # (e,) the step before which each event stands
    event: NDArray[np.uint16]  # (e,) `Event`
    of: NDArray[np.int32]  # (e,) its method


@dataclass(frozen=True)
class Thread:
    """The log of a thread."""

    path: Path
    name: str
    tid: int
    begin: int  # of its words in the file, in bytes

    def blocks(self) -> Iterator[Block]:
        """In order. Raises TruthError where the log is damaged; a cut event at its end is left out."""
        method, rest = 0, np.empty(0, np.uint16)
        with self.path.open("rb") as file:
            file.seek(self.begin)
            while len(data := np.fromfile(file, "<u2", BLOCK)):
                words = np.concatenate((rest, data))
                marks = np.flatnonzero(words == MARK)
                end = int(marks[-1]) if len(marks) and marks[-1] + 4 > len(words) else len(words)
                rest = words[end:]
                block, method = self._block(words[:end], marks[marks < end], method)
                yield block

    def _block(self, words: NDArray[np.uint16], marks: NDArray[np.int64], method: int) -> tuple[Block, int]:
        if (np.diff(marks) < 4).any():
            raise TruthError(f"{self.path}: an event within another")
        kinds = words[marks + 1]
        of = words[marks + 2].astype(np.int32) * BASE + words[marks + 3]
        if not np.isin(kinds, list(Event)).all():
            raise TruthError(f"{self.path}: an unknown event")
        step = np.ones(len(words), np.bool_)
        for k in range(4):
            step[marks + k] = False
        places = np.flatnonzero(step)
        current = np.concatenate(([method], np.where(kinds == Event.EXIT, 0, of))).astype(np.int32)
        methods = current[np.searchsorted(marks, places)]
        return Block(methods, words[places], np.searchsorted(places, marks), kinds, of), int(current[-1])


def threads(directory: Path) -> list[Thread]:
    """In the order in which they ran their first bytecode."""
    found = []
    for path in sorted(directory.glob("*.steps"), key=lambda path: int(path.stem)):
        with path.open("rb") as file:
            found.append(_thread(path, file))
    return found


def _thread(path: Path, file: BinaryIO) -> Thread:
    head = file.read(16)
    if len(head) < 16 or head[:8] != MAGIC:
        raise TruthError(f"{path} is no log of steps")
    tid, size = np.frombuffer(head, "<u4", 2, 8).tolist()
    return Thread(path, file.read(size).decode("utf-8", "replace"), tid, 16 + size + size % 2)


def methods(directory: Path) -> dict[int, Method]:
    """By number; 0 is none."""
    lines = (directory / "methods").read_text("utf-8", "surrogateescape").split("\n")
    rows = (line.split("\t") for line in lines if line)
    return {int(number): Method(*names) for number, *names in rows}


def library() -> Path:
    """The agent, built now if its source changed. Raises jvm.cbuild.BuildError."""
    include = include_dir()
    flags = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra")
    command = [compiler(), *flags, "-Wno-unused-parameter", f"-I{include}", f"-I{include}/linux", str(SOURCE)]
    return compiled("libstreamer-truth.so", [SOURCE], [[*command, "-o", "{out}"]])


def record(
    java: Sequence[str], directory: Path, max_bytes: int = MAX_BYTES, *, steps: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs `java` (program and arguments) to its end, interpreted, with its logs in `directory`, which is made; without
    `steps` of methods that begin and end alone. Raises TruthError if it leaves none."""
    directory.mkdir(parents=True)
    options = f"-agentpath:{library()}=dir={directory.absolute()},max={max_bytes}{'' if steps else ',calls'}"
    done = subprocess.run([java[0], *STEPPED, options, *java[1:]], capture_output=True, text=True, check=False)
    if not threads(directory):
        raise TruthError(f"{java[0]} ended with {done.returncode} and ran no bytecode: {done.stderr.strip()[-500:]}")
    return done
