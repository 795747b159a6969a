"""Calls that the trace has shown where they go.

A call that is not bound yet goes to a resolver stub of the JVM (`SharedRuntime::resolve_*`, `handle_wrong_method`,
`ic_miss`; sharedRuntime.cpp), which finds the callee, patches the call and jumps to the callee: an indirect jump, so
its target is in the trace. The call lies right before the return address on top of the return stack. From then on the
call *may* go where the stub went: to the callee's verified entry, or, where the receiver is to be checked, to the entry
before it. That is inferred, not read; what chooses it says so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from jvm.codeimage import CodeImage
from jvm.codeversion import Kind
from jvm.sites import stub_label
from stages.flow.variants import Known

I64 = NDArray[np.int64]

CALL_SIZE = 5  # E8 rel32
EACH = 4  # targets kept of a call: the last ones
MOST = 1 << 15  # calls kept: those learnt last

RESOLVERS = tuple(
    stub_label(name)
    for name in (
        "resolve_static_call", "resolve_opt_virtual_call", "resolve_virtual_call", "ic_miss_stub", "wrong_method_stub",
        "wrong_method_abstract_stub",
    )
)  # fmt: skip
"""Names of the stubs in JDK 17 to 25 (sharedRuntime.cpp, stubDeclarations.hpp), as the code image has them."""

REFUSAL = stub_label("wrong_method_stub")


def resolvers(image: CodeImage) -> list[tuple[int, int]]:
    """Where they stand: (first address, one past the last)."""
    return sorted((v.start, v.end) for v in image.versions() if v.name in RESOLVERS)


def with_image(known: Known, image: CodeImage) -> Known:
    """What the code image says of nmethods and of the stubs that they call before they are bound."""
    nmethods = [v for v in image.versions() if v.kind == Kind.NMETHOD]
    rows = np.array([(v.start, v.end, v.verified_entry, v.loaded) for v in nmethods], np.uint64)
    begin, end, entry, told = rows.view(np.int64).reshape(-1, 4).T.copy()
    stubs = {v.name: v.start for v in image.versions() if v.kind == Kind.DYNAMIC and v.name in RESOLVERS}
    refusal = [stubs[REFUSAL]] if REFUSAL in stubs else []
    resolver = [stubs[name] for name in RESOLVERS[:3] if name in stubs]
    known = known.with_nmethods(begin, end, entry, told)
    return known.with_stubs(np.array(refusal, np.int64), np.array(resolver, np.int64))


class Learnt:
    """Of one process. Bounded; what was learnt longest ago goes first."""

    def __init__(self, image: CodeImage) -> None:
        self._image = image
        self._targets: OrderedDict[int, list[int]] = OrderedDict()  # by call
        self._arrays: tuple[I64, I64] | None = None
        self.version = 0  # counts changes

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, shown: Iterable[tuple[int, int]], tsc: int) -> None:
        """`shown`: (return address, where the stub jumped to) pairs, seen about `tsc`."""
        for returns, target in shown:
            call = returns - CALL_SIZE
            known = self._targets.setdefault(call, [])
            self._targets.move_to_end(call)
            found = [target]
            version = self._image.at(target, tsc)
            if version is not None and version.verified_entry == target and version.entry not in (0, target):
                found.append(version.entry)
            if known[: len(found)] != found:
                known[:] = (found + [t for t in known if t not in found])[:EACH]
                self._arrays = None
                self.version += 1
        while len(self._targets) > MOST:
            self._targets.popitem(last=False)
            self._arrays = None

    def arrays(self) -> tuple[I64, I64]:
        """(n,) calls, (n,) where each may go; a call comes once for each of its targets, the last learnt first."""
        if self._arrays is None:
            pairs = [(call, target) for call, targets in self._targets.items() for target in targets]
            columns = np.array(pairs, np.int64).reshape(-1, 2)
            self._arrays = columns[:, 0].copy(), columns[:, 1].copy()
        return self._arrays
