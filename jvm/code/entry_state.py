"""When an nmethod can be entered: since it was loaded, until it was made not entrant, as early as that can be told.
It is for good: nothing is bound to it from then on.

The JVM says so by polling at times (NMETHOD_STATE). Before that, two things tell. The installation of another version
of a method has made the one before not entrant (ciEnv::register_method). Apart are code entered by on-stack
replacement, and wrappers, which no compiler makes: MethodHandle.invokeBasic is one method to JVMTI and has one a
signature, all of which stand side by side (SystemDictionary::find_method_handle_intrinsic). And a JMP at the verified
entry, where no method's code begins with one, makes it so (NativeJump::patch_verified_entry).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.calls.call_sites import JMP
from jvm.code.version import Version


class EntryState:
    def __init__(self) -> None:
        self._last: dict[int, Version] = {}  # by method
        self.ended: dict[int, Version] = {}  # by id: those that were made not entrant, as long as they are kept
        self.changes = 0  # of when any was made so
        self.opened: dict[int, int] = {}  # entries, checking and verified ones: since when the last stands there

    def loaded(self, v: Version, code: NDArray[np.uint8], replayed: bool) -> None:
        """`replayed`: all that stand are told, in any order."""
        self.seen(v, 0, code, v.loaded)
        self.opened |= dict.fromkeys((v.entry, v.verified_entry), v.loaded)
        if v.method == 0 or v.level == 0 or v.osr_entry or (replayed and v.not_entrant <= v.loaded):
            return
        before = self._last.get(v.method)
        if before is not None and not replayed:
            self.end(before, v.loaded)
        self._last[v.method] = v

    def seen(self, v: Version, offset: int, code: NDArray[np.uint8], tsc: int) -> bool:
        """From `offset` on there was `code` at `tsc`. Whether that is the jump."""
        at = v.verified_entry - v.start - offset
        closes = bool(v.verified_entry and 0 <= at < len(code) and code[at] == JMP)
        if closes:
            self.end(v, tsc)
        return closes

    def gone(self, v: Version) -> None:
        """It is not kept any more."""
        self.ended.pop(v.id, None)
        if self._last.get(v.method) is v:
            del self._last[v.method]
        for entry in (v.entry, v.verified_entry):
            if self.opened.get(entry) == v.loaded:
                del self.opened[entry]

    def end(self, v: Version, tsc: int) -> None:
        """At `tsc` it was not entrant."""
        if tsc < v.not_entrant:
            v.not_entrant = tsc
            self.ended[v.id] = v
            self.changes += 1
