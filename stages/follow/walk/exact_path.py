"""The exact part of the walker: one packet of any kind, in any state.

Rules and their sources: SDM vol. 3, "Intel Processor Trace"; FUP binds to the packet that follows or precedes it
("FUP+TIP" and so on); PSB+ is status, not events; OVF resumes with FUP or TIP.PGE.
"""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.follow.cfg.block import room
from stages.follow.cfg.graph import (
    BL,
    BL_KIND,
    DISABLED_BLOCK,
    FULL,
)
from stages.follow.walk.state import (
    B_BAD_PACKET,
    B_FUP_OFF_PATH,
    B_OVERFLOW,
    CONFIRMED,
    M_ABORT,
    M_BLOCK,
    M_BOUND,
    M_LONG_BIP,
    M_NOT64,
    M_OVF,
    M_PSB,
    M_REFUSED,
    M_SEEN,
    NONE,
    OK,
    RUNNING,
    TABLES_FULL,
    X_AT,
    X_BREAKS,
    X_CAUSE,
    X_FUP_IP,
    X_LAST_IP,
    X_MODE,
    X_POS,
    X_SEEN_IP,
    break_off,
    confirm,
)
from stages.follow.walk.transitions import cut_at_fup, go_to, nowhere, on_bits, on_fup, on_pgd, on_pge, on_tip
from stages.pointers import load64
from stages.pt.last_ip import full_ip
from stages.pt.packets import (
    BBP,
    FUP,
    MODE_EXEC,
    MODE_TSX,
    OVF,
    PSB,
    TIP,
    TIP_PGD,
    TIP_PGE,
    TNT_8,
    TNT_64,
    ends_block,
    is_psb,
    packet_at,
)
from stages.pt.psb_plus import TSX_ABORT, binds_fup, ends_psb_plus
from stages.pt.tnt import long_bits, short_bits

TWICE = np.int64(2)


@inner
def packet(t, w, end):  # type: ignore[no-untyped-def]
    """Take the one packet at X_POS, whatever it is."""
    if not room(t, TWICE):
        return TABLES_FULL
    x, data = w.x, w.data
    pos = x[X_POS]
    mode = x[X_MODE]
    broken = x[X_BREAKS]
    block = NONE
    if mode & M_BLOCK:
        block = np.int64(8 if mode & M_LONG_BIP else 4)
    kind, size = packet_at(data, pos, block)
    if kind < 0 or pos + size > end:
        break_off(t, w, B_BAD_PACKET, NONE)
        pos += 1
        while pos < end and not (pos + 16 <= end and is_psb(load64(data, pos), load64(data, pos + 8))):
            pos += 1
        x[X_POS] = pos
        x[X_MODE] = 0
        confirm(x)
        return RUNNING
    low = np.int64(load64(data, pos))
    leaf = low >> 8 & 0xFF
    result = OK
    if block and ends_block(kind):
        mode &= ~(M_BLOCK | M_LONG_BIP)
        x[X_MODE] = mode
    if kind == TNT_8:
        result = on_bits(t, w, short_bits(low & 0xFF))
    elif kind == TNT_64:
        result = on_bits(t, w, long_bits(low))
    elif TIP <= kind <= FUP:
        form = low >> 5 & 7
        known = form != 0
        ip = full_ip(form, np.int64(load64(data, pos + 1)), x[X_LAST_IP])
        if kind == TIP:
            result = on_tip(t, w, ip, known)
        elif kind == TIP_PGD:
            result = on_pgd(t, w, ip, known)
        elif known and kind == TIP_PGE:
            result = on_pge(t, w, ip)
        elif known:
            result = on_fup(t, w, ip)
        if result != FULL:
            x[X_LAST_IP] = ip
    elif kind == MODE_EXEC:
        x[X_MODE] = mode & ~(M_NOT64 | M_REFUSED) if leaf & 3 == 1 else mode | M_NOT64
        if mode & M_PSB and leaf & 3 != 1 and not nowhere(np.int64(t.block[x[X_AT] * BL + BL_KIND])):
            go_to(t, w, NONE)  # the FUP came before it
    elif kind == MODE_TSX and leaf & TSX_ABORT:
        if not mode & M_PSB and x[X_AT] != DISABLED_BLOCK:
            x[X_MODE] |= M_ABORT
    elif kind == PSB:
        x[X_LAST_IP] = 0
        x[X_MODE] = (mode | M_PSB) & ~M_BOUND
    elif kind == OVF:
        if mode & M_SEEN:  # the code before the PSB did run
            x[X_FUP_IP] = x[X_SEEN_IP]
            if cut_at_fup(t, w, B_FUP_OFF_PATH) == FULL:
                return TABLES_FULL
        break_off(t, w, B_OVERFLOW, NONE)
        x[X_MODE] = M_OVF | (mode & (M_NOT64 | M_REFUSED))
    elif ends_psb_plus(kind):
        x[X_MODE] &= ~M_PSB
    elif kind == BBP:
        x[X_MODE] = mode & ~M_LONG_BIP | M_BLOCK | (M_LONG_BIP if not low & 0x80_0000 else 0)
    if binds_fup(kind, low, mode & M_PSB):
        x[X_MODE] |= M_BOUND
    if result == FULL:
        return TABLES_FULL
    x[X_POS] = pos + size
    if (result == CONFIRMED or x[X_BREAKS] > broken) and x[X_CAUSE] == 0:
        confirm(x)
    return RUNNING
