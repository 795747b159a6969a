"""Arrays that grow at their end, so that many small pieces are one flat array for kernels.

Appended items are never written again: slices handed out stay as they were, also after the arena has moved.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


class Arena(Generic[T]):
    def __init__(self, dtype: type[T]) -> None:
        self._data: NDArray[Any] = np.empty(1024, dtype)
        self.used = 0
        self.garbage = 0  # items that no one needs any more

    def append(self, items: NDArray[T]) -> int:
        """Where the items now begin."""
        at, end = self.used, self.used + len(items)
        if end > len(self._data):
            data = np.empty(max(end, 2 * len(self._data)), self._data.dtype)
            data[:at] = self._data[:at]
            self._data = data
        self._data[at:end] = items
        self.used = end
        return at

    def view(self) -> NDArray[T]:
        return self._data[: self.used]

    def part(self, at: int, size: int) -> NDArray[T]:
        return self._data[at : at + size]

    @property
    def wasteful(self) -> bool:
        """More than half of it, and enough to matter, is garbage: worth copying the needed parts into a new one."""
        return self.garbage > 4096 and 2 * self.garbage > self.used
