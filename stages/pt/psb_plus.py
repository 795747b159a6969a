"""PSB+ and OVF, and the role of a FUP because of them: rules on which all readers of packets agree (SDM vol. 3, "Packet
Definitions": PSB, PSBEND, OVF, FUP; Intel's table of compound packet events).

A PSB+ is status: from a PSB to its PSBEND, or to an OVF, which took the rest of it. A FUP in it says where execution
is. Behind an OVF a FUP says where execution goes on. Behind a packet that asks for one it says where that packet's
event was. None of these moves anything; any other is the first half of an asynchronous branch.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

from __future__ import annotations

import numpy as np

from jvm.kernels import near
from stages.pt.packets import (
    CBR,
    CYC,
    MNT,
    MODE_EXEC,
    MODE_TSX,
    OVF,
    PAD,
    PIP,
    PSBEND,
    VMCS,
    Int,
    asks_fup,
)  # fmt: skip

STATUS, RESUMES, PLACE, BRANCH = (np.int64(k) for k in range(4))  # roles of a FUP
TSX_ABORT = 2  # in the second byte of a MODE.TSX


@near
def ends_psb_plus(kind: Int) -> Int:
    """Whether a packet of this kind, in a PSB+, is its end."""
    return kind == PSBEND or kind == OVF


@near
def belongs_in_psb_plus(kind: Int) -> Int:
    """Whether a packet of this kind may stand between PSB and PSBEND. (FUP and PSBEND do, too, once.)"""
    timing = CBR <= kind <= CYC
    return timing or kind == PAD or kind == PIP or kind == MODE_EXEC or kind == MODE_TSX or kind == VMCS or kind == MNT


@near
def binds_fup(kind: Int, low: Int, psb_plus: Int) -> Int:
    """Whether the next FUP says where this packet's event was. `low`: its first eight bytes; `psb_plus`: whether it
    stands in one, where modes are status. An aborted transaction's FUP is the first half of a branch."""
    mode = kind == MODE_EXEC or (kind == MODE_TSX and low >> 8 & TSX_ABORT == 0)
    return asks_fup(kind, low) or (mode and not psb_plus)


@near
def fup_is(psb_plus: Int, behind_ovf: Int, bound: Int) -> Int:
    """The role of a FUP that stands in a PSB+, behind an OVF, or is bound."""
    if psb_plus:
        return STATUS
    if behind_ovf:
        return RESUMES
    return PLACE if bound else BRANCH
