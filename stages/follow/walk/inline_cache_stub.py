"""Events in inline-cache stubs (JDK 17 to 22: icBuffer.cpp), two instructions through which a call passes for a while.

What stands in a stub is seldom known: it is used for another call before the code is read again. So the walk takes the
call to lead where the stub does, and the packets are the same, but for an event in the stub: a FUP says that control is
there. It was the last call of the block, for where such calls lead begins with a branch that the trace tells (the check
of the receiver, or the jump of a table's stub); and behind the event the stub goes on where the call was taken to lead.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.graph import BL, BL_RANGE, BL_RANGES, G_JUMPS, blob_of
from stages.follow.cfg.miss import cut
from stages.follow.code.jumps import PASSES_ON, known
from stages.follow.walk.state import X_AT, X_PASSED


@inner
def _in_stub(t, ip):  # type: ignore[no-untyped-def]
    """Whether `ip` lies in the buffer of inline-cache stubs."""
    return known(t.jump, t.g[G_JUMPS], ip) == PASSES_ON


@inner
def _called_last(t, s):  # type: ignore[no-untyped-def]
    """Where the last direct call of block `s` leads; 0: there is none."""
    for k in range(t.block[s * BL + BL_RANGES] - 1, 0, -1):
        n = np.int64(t.block[s * BL + BL_RANGE]) + k
        call = t.ranges[3 * (n - 1) + 1] - 5
        b = blob_of(t, call)
        if b >= 0 and t.code[t.blob_at[b] + call - t.blob_start[b]] == 0xE8:  # CALL rel32
            return t.ranges[3 * n]
    return np.int64(0)


@inner
def cut_at_call(t, x, ip):  # type: ignore[no-untyped-def]
    """There was an event at `ip`, which is not on the block: the block as far as behind the call, if that is in a stub.
    0: it is not; FULL: no room."""
    if not _in_stub(t, ip):
        return np.int64(0)
    to = _called_last(t, x[X_AT])
    c = cut(t, x[X_AT], to) if to else np.int64(0)
    if c > 0:
        x[X_PASSED] = to
    return c


@inner
def behind_stub(t, x, ip):  # type: ignore[no-untyped-def]
    """The walk goes on at `ip`: where that leads, if it is the stub in which there was an event."""
    if x[X_PASSED]:
        ip = x[X_PASSED] if _in_stub(t, ip) else ip
        x[X_PASSED] = 0
    return ip
