"""Addresses that stand in packets, and the time that passed at each.

Between two time marks packets are taken to be written at an even pace: the time of a byte is interpolated by its
offset. Hardware writes a byte for so many branches, so this follows execution better than counting addresses would:
a loop that only writes TNT bytes keeps its address, and its share of the time. An address holds from its packet to
the next one (or to a PGD: what runs outside the filter is nobody's).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from stages.messages import U8
from stages.pt import packets as pt
from stages.pt.packets import Int
from stages.walk import PLAIN_SIZE, plain_ip, plain_tip, plain_tnt

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
OUTSIDE = np.uint64(0)
"""In place of an address: from here on no code in the filter runs."""


@njit(cache=True, nogil=True)
def addresses(data: U8, last_ip: Int, ips: U64, at: I64) -> int:
    """Addresses of TIP, FUP (those in PSB+ too) and PGE packets, and OUTSIDE at each PGD: into `ips`, their packets'
    positions into `at` (both as long as `data`). Returns how many. `data` holds whole packets."""
    n = 0
    i = np.int64(0)
    end = data.size
    context = np.int64(0)
    while i < end:
        byte = np.int64(data[i])
        if plain_tnt(byte, context):
            i += 1
            continue
        if plain_tip(byte, i, end):
            last_ip = plain_ip(data, i, byte, last_ip)
            ips[n] = last_ip
            at[n] = i
            n += 1
            i += PLAIN_SIZE[byte >> 5]
            continue
        kind, size, payload, sub = pt.next_packet(data, i, end, context)
        if kind < 0:
            break
        if pt.TIP <= kind <= pt.FUP:
            last_ip = pt.reconstruct_ip(last_ip, sub, payload)
            if kind == pt.TIP_PGD:
                ips[n] = OUTSIDE
                at[n] = i
                n += 1
            elif sub:
                ips[n] = last_ip
                at[n] = i
                n += 1
        elif kind == pt.PSB:
            last_ip = np.uint64(0)
        context = pt.next_context(context, kind, payload)
        i += size
    return n


@njit(cache=True, nogil=True)
def times(at: I64, point: I64, tsc: U64, out: U64) -> None:
    """Times of (n,) ascending positions into `out`, between (m,) points: `point` ascending, `tsc` not descending;
    the first point lies at or before, the last behind all positions."""
    k = -1
    slope = 0.0
    for i in range(at.size):
        if k < 0 or (k + 2 < point.size and point[k + 1] <= at[i]):
            k = max(k, 0)
            while k + 2 < point.size and point[k + 1] <= at[i]:
                k += 1
            width = point[k + 1] - point[k]
            slope = float(tsc[k + 1] - tsc[k]) / float(width) if width > 0 else 0.0
        out[i] = min(tsc[k] + np.uint64(slope * float(at[i] - point[k])), tsc[k + 1])


@njit(cache=True, nogil=True)
def tally(
    sites: NDArray[np.int32],
    inside: NDArray[np.bool_],
    tscs: U64,
    end: Int,
    lo: Int,
    hi: Int,
    hits: U64,
    ticks: U64,
) -> None:
    """Adds what falls into the time [lo, hi) to `hits[site]` and `ticks[site]`.

    Address i, at `sites[i]`, holds from `tscs[i]` to `tscs[i + 1]` (the last one to `end`); `inside[i]` False: OUTSIDE.
    The first is the one that held before: it gets time, but its hit was where it stood.
    """
    n = sites.size
    for i in range(n):
        if not inside[i]:
            continue
        since = tscs[i]
        until = tscs[i + 1] if i + 1 < n else end
        if lo <= since and since < hi and i:
            hits[sites[i]] += np.uint64(1)
        a = max(since, lo)
        b = min(until, hi)
        if a < b:
            ticks[sites[i]] += b - a
