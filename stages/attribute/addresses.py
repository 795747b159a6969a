"""Addresses that stand in packets, and the time that passed at each.

Between two time marks packets are taken to be written at an even pace: the time of a byte is interpolated by its
offset. Hardware writes a byte for so many branches, so this follows execution better than counting addresses would:
a loop that only writes TNT bytes keeps its address, and its share of the time. An address holds from its packet to
the next one (or to a PGD: time outside the filter belongs to no address).

One pass goes from packets to sums, because it is also made when there is no time for more (`stages.shed`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.code.lookup import Table, known, slot_of, store
from jvm.kernels import kernel
from stages.messages import U8
from stages.pointers import first_item, load64
from stages.pt import packets as pt
from stages.pt.last_ip import full_ip, ip_size, reserved
from stages.pt.packets import Int

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]
POSITION, CONTEXT, SITE, POINT, ADDRESSES, UNKNOWN = range(6)
LAST_IP, SINCE = range(2)
AT_SIZE, WHEN_SIZE = 6, 2
OUTSIDE = -1
"""In place of a site: no code in the filter runs."""


@kernel
def attribute(data: U8, table: Table, point: I64, tsc: U64, hi: Int, at: I64, when: U64, hits: U64, ticks: U64) -> None:
    """Goes on in `data` (whole packets) to the time `hi` (uint64) or the end: adds each address in a TIP, FUP (those in
    PSB+ too) or PGE packet to `hits[site]`, and the time from there to the next one, or a PGD, to `ticks[site]`.

    At the positions `point` (m,), ascending from 0 to the size of the data, it is `tsc` (m,), not descending. The state
    between two calls is in `at` and `when`: SITE holds since SINCE, and the packet at POSITION is next; ADDRESSES
    counts addresses, UNKNOWN those where no code is known (site 0).
    """
    i, context, site, k = at[POSITION], at[CONTEXT], at[SITE], at[POINT]
    last_ip, since = when[LAST_IP], when[SINCE]
    end = np.int64(data.size)
    start = first_item(data)
    slope = _slope(point, tsc, k)
    memo = table.memo
    here, there = tsc[k], tsc[k + 1]
    begin = point[k]
    told = unknown = np.int64(0)
    while i < end:
        byte = np.int64(data[i])
        if byte & 1 == 0 and byte != 2 and context == 0:  # a short TNT or a PAD
            i += 1
            continue
        ip, size, inside, context_behind = last_ip, np.int64(0), True, context
        if byte & 0x1F == 0x0D and byte >> 5 and i + 9 <= end and not reserved(byte):
            ip = np.uint64(full_ip(byte >> 5, load64(start, i + 1), np.int64(last_ip)))
            size = 1 + ip_size(byte)
        else:
            kind, size, payload, sub = pt.next_packet(data, i, end, context)
            if kind < 0:
                i = end
                break
            context_behind = pt.next_context(context, kind, payload)
            if pt.TIP <= kind <= pt.FUP:
                ip = pt.reconstruct_ip(last_ip, sub, payload)
                inside = kind != pt.TIP_PGD
            elif kind == pt.PSB:
                ip = np.uint64(0)
            if not (pt.TIP <= kind <= pt.FUP) or (inside and not sub):
                last_ip, context = ip, context_behind
                i += size
                continue
        if k + 2 < point.size and point[k + 1] <= i:
            while k + 2 < point.size and point[k + 1] <= i:
                k += 1
            slope = _slope(point, tsc, k)
            begin, here, there = point[k], tsc[k], tsc[k + 1]
        now = min(here + np.uint64(np.int64(slope * float(i - begin))), there)
        if now >= hi:
            break
        if site >= 0:
            ticks[np.uint64(site)] += now - since
        since = now
        site = np.int64(OUTSIDE)
        if inside and ip != 0:  # at 0 there is no code
            slot = slot_of(ip)
            if known(memo, slot, ip, now):
                site = np.int64(memo[slot + np.uint64(3)])
            else:
                site = np.int64(store(table, slot, ip, now))
            hits[np.uint64(site)] += np.uint64(1)
            told += 1
            unknown += site == 0
        last_ip, context = ip, context_behind
        i += size
    until = hi if i < end else min(tsc[-1], hi)
    if site >= 0 and until > since:
        ticks[site] += until - since
    at[POSITION], at[CONTEXT], at[SITE], at[POINT] = i, context, site, k
    at[ADDRESSES] += told
    at[UNKNOWN] += unknown
    when[LAST_IP], when[SINCE] = last_ip, max(since, until)


@kernel
def _slope(point: I64, tsc: U64, k: Int) -> float:
    """Ticks a byte behind point `k`."""
    width = point[k + 1] - point[k]
    return float(tsc[k + 1] - tsc[k]) / float(width) if width > 0 else 0.0
