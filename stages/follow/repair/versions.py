"""Versions of one method that a return tells apart.

Versions of a method call the same methods, so one that takes another's place gives the same packets for a while: the
call of it may be taken for a call of the other. A return that has an address shows which it was. It goes behind the
call that was made (JDK: deoptimisation and exceptions lead to stubs), so into the version from which that was made;
where the return stack has been left by a jump, into a caller, which is rarely another version of the same method.
"""

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.repair.known import first
from stages.pointers import below

_NOTHING = np.int64(-1)


@inner
def _body(known, address):  # type: ignore[no-untyped-def]
    """The row of the nmethod that stands at an address; −1: none."""
    row = first(known.body, address + 1) - 1
    return row if row >= 0 and below(address, known.body_end.at[row]) else _NOTHING


@inner
def returns_to_other(known, back, to):  # type: ignore[no-untyped-def]
    """Whether a return to `to` comes out in another version of the method in which it was called from before `back`.
    `known`: `Known` as `Column`s."""
    if back == to:
        return False
    called, returned = _body(known, back), _body(known, to)
    if called < 0 or returned < 0 or called == returned:
        return False
    return known.body_method.at[called] == known.body_method.at[returned]
