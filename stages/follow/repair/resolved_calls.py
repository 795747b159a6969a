"""Calls that the trace has shown where they go.

A call that is not bound yet goes to a resolver stub of the JVM (`SharedRuntime::resolve_*`, `handle_wrong_method`,
`ic_miss`; sharedRuntime.cpp), which finds the callee, patches the call and jumps to the callee: an indirect jump, so
its target is in the trace. The call lies right before the return address on top of the return stack. From then on the
call *may* go where the stub went: to the callee's verified entry, or, where the receiver is to be checked, to the entry
before it, or, where it went to the interpreter's adapter, through the call's own stub. That is inferred, not read; a
search that chooses it says so.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from jvm.calls.call_sites import CALL_SIZE, STUB_JUMP
from jvm.calls.stubs import Stub, stub_of
from jvm.code.image import CodeImage
from jvm.code.version import Kind
from stages.follow.repair.call_targets import Callees
from stages.follow.repair.recent import Recent
from stages.pointers import signed

I64 = NDArray[np.int64]

EACH = 4  # targets kept of a call: the last ones
MOST = 1 << 15  # calls kept: those resolved last


class ResolvedCalls:
    """Of one process. Bounded; the call that was resolved longest ago goes first."""

    def __init__(self, image: CodeImage, callees: Callees) -> None:
        self._image, self._callees = image, callees
        self.branches = Recent(2, np.int64, EACH, MOST)
        """By address: where a CALL (0), or the JMP of a call's own stub (1), may go."""

    def add(self, shown: Iterable[tuple[int, int]], tsc: int) -> None:
        """`shown`: (return address, where the stub jumped to) pairs, seen about `tsc`."""
        for returns, target in shown:
            if not target:
                continue
            call = returns - CALL_SIZE
            caller = self._image.at(call, tsc) if call > 0 else None
            if caller is None or caller.kind != Kind.NMETHOD:
                continue  # nothing was on the stack, or not what ought to be
            for to in reversed(self._found(call, target, tsc)):
                self.branches.add(call, np.array([signed(to), 0], np.int64))

    def targets(self, call: int) -> list[int]:
        """Where it may go: the last targets that a resolver was seen to find."""
        found: list[int] = self.branches.of(call)[:, 0].astype(np.int64).view(np.uint64).tolist()
        return found

    def _found(self, call: int, target: int, tsc: int) -> list[int]:
        version = self._image.at(target, tsc)
        if version is None:
            return [target]
        if version.verified_entry == target and version.entry not in (0, target):
            checked = self._callees.checked(call)
            return [target, version.entry] if checked is None else [version.entry if checked else target]
        if stub_of(version) != Stub.ADAPTER:
            return [target]
        to, through_stub = self._callees.to_adapter(call, target, version, tsc)
        if through_stub:
            self.branches.add(to + STUB_JUMP, np.array([signed(target), 1], np.int64))
        return [to]
