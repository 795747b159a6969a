"""A process with some memory that another one writes: python -m tests.capture.codechild FILE

Maps FILE and prints where; runs until its standard input is closed.
"""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path
from typing import Self

import numpy as np

ROOT = Path(__file__).parents[2]


class CodeChild:
    """`memory` is the child's, too; there it is at `address`."""

    def __init__(self, path: Path, pages: int) -> None:
        path.write_bytes(bytes(pages * mmap.PAGESIZE))
        with path.open("r+b") as file:
            self.memory = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        command = [sys.executable, "-m", "tests.capture.codechild", str(path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
        assert self.process.stdout is not None
        self.address = int(self.process.stdout.readline())
        self.pid = self.process.pid

    def put(self, offset: int, code: bytes) -> None:
        self.memory[offset : offset + len(code)] = np.frombuffer(code, np.uint8)

    def end(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


if __name__ == "__main__":
    with open(sys.argv[1], "r+b") as mapped:  # noqa: PTH123
        area = mmap.mmap(mapped.fileno(), 0)
    print(ctypes.addressof(ctypes.c_char.from_buffer(area)), flush=True)
    sys.stdin.read()
