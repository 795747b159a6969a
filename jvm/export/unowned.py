"""Methods that are told of without a class: of interpreted frames in stacks, whose names the agent read from memory.

No CLASS_UNLOAD tells of their end. But the agent knows at most `MOST` of them at a time and tells a method anew when it
has forgotten it, so of each reader's methods the last `MOST` are enough.
"""

from __future__ import annotations

from jvm.export.records import Method

MOST = 4096
"""jvm/agent/stack_methods.c has the same."""


class Unowned:
    def __init__(self) -> None:
        self._told: dict[int, None] = {}  # in the order in which they were told the last time

    def told(self, method: Method) -> int:
        """The id of a method that is not used any more; 0: of none."""
        if method.class_id:
            return 0
        self._told.pop(method.id, None)
        self._told[method.id] = None
        if len(self._told) <= MOST:
            return 0
        oldest = next(iter(self._told))
        del self._told[oldest]
        return oldest
