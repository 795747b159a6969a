"""The same numbers for the same methods in every run: the names that differ from run to run are taken out of them."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

import numpy as np
from numpy.typing import NDArray

from jvm.names import display

I64 = NDArray[np.int64]
BITS = 16
"""Of a bytecode: its method's number << BITS | bci. Below zero: −FrameEvent, a change of the stack."""


class Methods:
    """Methods of one name and descriptor (of classes in two loaders, and of generated classes) are one."""

    def __init__(self) -> None:
        self._number: dict[tuple[str, str], int] = defaultdict(count().__next__)

    def number(self, holder: str, name: str, descriptor: str) -> int:
        return self._number[display(f"L{holder};", name), descriptor]

    def names(self) -> list[str]:
        """By number. Overloads have one."""
        return [name for name, _ in self._number]

    def named(self, numbers: I64) -> dict[str, int]:
        """How often each name is among (n,) numbers."""
        times = np.bincount(numbers, minlength=len(self._number))
        out: dict[str, int] = defaultdict(int)
        names = self.names()
        for number in np.flatnonzero(times).tolist():
            out[names[number]] += int(times[number])
        return dict(out)
