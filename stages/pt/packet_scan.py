"""Bytes → records of packets (PACKET_DTYPE), over chunk borders: a packet cut by the end is not consumed and comes
again, bytes that are no packet are skipped to the next PSB and accounted for in a `SKIPPED` record. The fields of a
record are those of `stages.pt.packets`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner, kernel
from stages.messages import U8
from stages.pt.packets import (
    BAD,
    BLOCK_BYTES,
    CUT,
    FUP,
    PSB,
    PSB_SIZE,
    SKIPPED,
    TIP,
    Int,
    Records,
    find_psb,
    next_context,
    next_packet,
    reconstruct_ip,
)

PACKET_DTYPE = np.dtype(
    [("offset", "<u8"), ("payload", "<u8"), ("ip", "<u8"), ("size", "<u4"), ("sub", "<u2"), ("kind", "u1"), ("_", "u1")]
)

_0 = np.uint64(0)

STATE_CONTEXT, STATE_LAST_IP, STATE_SYNCED = range(3)  # fields of a scanner's state


def scanner(context: int = 0, synced: bool = False) -> NDArray[np.uint64]:
    """The state of a `scan` at the beginning of a stream. `synced`: its first byte is known to begin a packet."""
    return np.array([context, 0, synced], np.uint64)


@inner
def _put(out: Records, n: Int, kind: Int, offset: Int, size: Int, sub: Int) -> None:
    out[n]["offset"] = offset
    out[n]["payload"] = 0
    out[n]["ip"] = 0
    out[n]["size"] = size
    out[n]["sub"] = sub
    out[n]["kind"] = kind


@kernel
def scan(data: U8, at: Int, end: Int, base: Int, state: NDArray[np.uint64], out: Records) -> Any:
    """Packets of data[at:end] into `out` (PACKET_DTYPE) → (records written, position reached).

    `base` is the stream offset of data[0], `state` a `scanner`, changed in place. Stops where `out` is full or the
    next packet is cut: go on with the bytes from the position reached, and more behind them. `ip` is filled in for
    TIP, TIP_PGE, TIP_PGD and FUP (the last IP where they carry none) and is 0 elsewhere.

    Records follow each other without a gap. Where bytes are no packet stands a BAD record of size 0, then SKIPPED
    records up to the next PSB (one for each call that met a piece of the gap). There is one overlap: a PSB may cut
    the packet before it, which is noticed only at the bytes after. So the search for a PSB begins up to 15 bytes
    before them, as far as data[:at] has those bytes; the PSB's offset then lies before that of BAD.
    """
    if at < 0 or at > end or end > data.size:
        return 0, at
    context = np.int64(state[STATE_CONTEXT])
    last_ip = state[STATE_LAST_IP]
    synced = state[STATE_SYNCED] != _0
    n = 0
    while n < out.size and at < end:
        if not synced:
            psb = find_psb(data, at, end)
            to = psb if psb >= 0 else max(at, end - PSB_SIZE + 1)  # the end may be the beginning of a PSB
            if to > at:
                size = min(to - at, 0xFFFFFFFF)
                _put(out, n, SKIPPED, base + at, size, 0)
                n += 1
                at += size
            if psb < 0:
                break
            synced = at == psb
            continue
        kind, size, payload, sub = next_packet(data, at, end, context)
        if kind == CUT:
            break
        if kind < 0:
            _put(out, n, BAD, base + at, 0, -kind)
            n += 1
            context &= ~BLOCK_BYTES
            psb = find_psb(data, max(at - PSB_SIZE + 1, 0), min(at + PSB_SIZE - 1, end))
            synced = 0 <= psb < at
            if synced:
                at = psb
            continue
        ip = np.uint64(0)
        if TIP <= kind <= FUP:
            last_ip = reconstruct_ip(last_ip, sub, payload)
            ip = last_ip
        elif kind == PSB:
            last_ip = np.uint64(0)
        context = next_context(context, kind, payload)
        _put(out, n, kind, base + at, size, sub)
        out[n]["payload"] = payload
        out[n]["ip"] = ip
        n += 1
        at += size
    state[STATE_CONTEXT] = context
    state[STATE_LAST_IP] = last_ip
    state[STATE_SYNCED] = 1 if synced else 0
    return n, at
