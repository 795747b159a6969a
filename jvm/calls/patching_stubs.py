"""Places of C1's code that wait to be patched: a class that is not loaded yet, a field whose offset is not known.

Until then a JMP stands there, into a stub behind the code: `CALL …_patching; JMP back`. Before it is a record of five
bytes (MOV EAX, imm32), of which the third says how far before the CALL there is a copy of the bytes that will stand at
the place. The JVM puts that there, or, while the class of a mirror is being initialised, another JMP, to the copy:
behind that, up to the record, the code asks whether this thread is the one that initialises the class, and the fourth
byte says how much that is, the record included. Where nothing is asked the copy is never run, for it would run into the
CALL (PatchingStub::emit_code, c1_CodeStubs_x86.cpp; Runtime1::patch_code).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.calls.call_sites import CALL, CALL_SIZE, JMP, targets

_SHORT_JMP = 0xEB  # rel8
_RECORD = 5  # bytes before the CALL
_COPY_AT, _SKIPPED_AT, _SIZE_AT = 3, 2, 1
"""Bytes of the record, counted back from the CALL: how far before the CALL the copy is, how many bytes lie between the
two, and the size of the copy."""


class Place(NamedTuple):
    """Offsets in the code."""

    at: int  # where a JMP stood
    stub: int  # and led
    copy: int  # of the bytes that will stand at the place
    size: int  # of these
    asks: bool  # a JMP to the copy stands at the place while the class is being initialised

    def patched(self, code: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(n,) The nmethod's code from the place on, as it will be but for constants."""
        return np.concatenate((code[self.copy : self.copy + self.size], code[self.at + self.size :]))


def places(code: NDArray[np.uint8], start: int, patching: NDArray[np.uint64]) -> list[Place]:
    """Of the nmethod `code` at `start`, patched or not, ascending by stub. `patching`: (n,) where the CALLs of such
    stubs lead."""
    at = np.flatnonzero(code[: max(len(code) - 2 * CALL_SIZE, 0)] == CALL)
    at = at[at >= _RECORD]
    at = at[np.isin(targets(code, start, at), patching)]
    found: list[Place] = []
    for stub in at.tolist():
        back = stub + CALL_SIZE
        if code[back] == JMP:
            place = int(targets(code, start, np.array([back], np.int64))[0]) - start
        elif code[back] == _SHORT_JMP:
            place = back + 2 + int(code[back + 1 : back + 2].view(np.int8)[0])
        else:
            continue
        away, skipped, size = (int(code[stub - k]) for k in (_COPY_AT, _SKIPPED_AT, _SIZE_AT))
        if 0 <= place < stub - away:
            found.append(Place(place, stub, stub - away, size, skipped > _RECORD))
    return found
