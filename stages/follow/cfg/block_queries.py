"""Queries of blocks and of the code in them: where they may lead, and whether an address lies on them."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.graph import (
    BL,
    BL_EFFECT,
    BL_KIND,
    BL_RANGE,
    BL_RANGES,
    DEAD,
    E_LEADS,
    G_CODE_SIZE,
    G_FILTER_HI,
    G_FILTER_LO,
    OUT,
    blob_of,
)
from stages.follow.code.jumps import LOADED, behind_call_out, loaded
from stages.pointers import below, within
from stages.pt import x86


@inner
def goes_on_at(t, after, s):  # type: ignore[no-untyped-def]
    """Whether block `s` is what comes behind a call, whose entry on the stack is block `after`: that may be of before
    the code there has changed."""
    return after == s or (t.block[after * BL + BL_KIND] == DEAD and t.address[after] == t.address[s])


@inner
def leads_out(t, s, ip):  # type: ignore[no-untyped-def]
    """Whether block `s`, which is walked and ends tracing, may lead to `ip` outside of the filter."""
    row = s * BL
    if t.block[row + BL_KIND] == OUT:
        return t.last[s] == ip
    if t.block[row + BL_EFFECT] >> E_LEADS != LOADED:
        return True
    here = t.last[s]
    b = blob_of(t, here)
    return b < 0 or loaded(t.code, t.blob_at[b] + here - t.blob_start[b], here - t.blob_start[b]) == ip


@inner
def returns_in(t, ip):  # type: ignore[no-untyped-def]
    """Whether a call that left the filter may end at `ip`."""
    b = blob_of(t, ip)
    if b < 0:
        return False
    before = ip - t.blob_start[b]
    return behind_call_out(t.code, t.blob_at[b] + before, before, ip, t.g[G_FILTER_LO], t.g[G_FILTER_HI])


@inner
def enters_vm(t, ip):  # type: ignore[no-untyped-def]
    """Whether VMLAUNCH or VMRESUME stands at `ip`."""
    b = blob_of(t, ip)
    if b < 0 or below(t.blob_end[b], ip + 3):
        return False
    at = t.blob_at[b] + ip - t.blob_start[b]
    return t.code[at] == 0x0F and t.code[at + 1] == 0x01 and (t.code[at + 2] == 0xC2 or t.code[at + 2] == 0xC3)


@inner
def passes(t, s, ip):  # type: ignore[no-untyped-def]
    """Whether an instruction of block `s` begins at `ip`."""
    r = s * BL
    if ip == t.last[s]:
        return True
    for k in range(t.block[r + BL_RANGES]):
        n = np.int64(t.block[r + BL_RANGE]) + k
        here, hi = t.ranges[3 * n], t.ranges[3 * n + 1]
        if within(here, ip, hi):
            b = blob_of(t, here)
            while b >= 0 and below(here, ip):
                size = x86.decode(t.code, t.blob_at[b] + here - t.blob_start[b], t.g[G_CODE_SIZE]) & 0xFF
                if size == 0:
                    return False
                here += size
            if here == ip:
                return True
    return False
