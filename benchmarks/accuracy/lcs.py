"""A longest common subsequence of two sequences that differ in few places.

Myers, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1986, section 4b: time O(n + d²) as a rule,
memory O(d). From both ends the ways with the fewest differences are followed, as far as they reach on each diagonal
(position in the one minus position in the other), until two meet: the equal stretch there is on a best way, and the
parts before and behind it are solved in the same manner.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner

MOST = 1 << 13
"""Differences from either end: where there are more, nothing is found."""
ROOM = 2 * MOST + 3  # diagonals
DEEP = 128  # parts that wait: three for each time that the differences are halved


@inner
def _meet(one, i, i_end, other, j, j_end, ahead, back, out):  # type: ignore[no-untyped-def]
    """The stretch where the ways meet, into `out` (begin and end in both); the number of differences, −1: too many.
    `ahead`, `back`: room for ROOM diagonals."""
    n, m = i_end - i, j_end - j
    between = n - m
    odd = between & 1
    if abs(between) >= 2 * MOST:
        return np.int64(-1)
    ahead[MOST + 2] = back[MOST + 2] = 0
    for d in range(MOST):
        for turned in range(2):
            mine, its = (back, ahead) if turned else (ahead, back)
            for k in range(-(d - 2 * max(0, d - m)), d - 2 * max(0, d - n) + 1, 2):
                at = MOST + 1 + k
                x = mine[at + 1] if k == -d or (k != d and mine[at - 1] < mine[at + 1]) else mine[at - 1] + 1
                y = x - k
                begin = x
                if turned:
                    while x < n and y < m and one[i_end - 1 - x] == other[j_end - 1 - y]:
                        x, y = x + 1, y + 1
                else:
                    while x < n and y < m and one[i + x] == other[j + y]:
                        x, y = x + 1, y + 1
                mine[at] = x
                met = between - k
                reach = d if turned else d - 1
                if odd != turned and -reach <= met <= reach and x + its[MOST + 1 + met] >= n:
                    if turned:
                        out[0], out[1], out[2], out[3] = n - x, m - y, n - begin, m - (begin - k)
                    else:
                        out[0], out[1], out[2], out[3] = begin, begin - k, x, y
                    return 2 * d - 1 + turned
    return np.int64(-1)


@inner
def longest_common(one, i, i_end, other, j, j_end, ahead, back, parts, out):  # type: ignore[no-untyped-def]
    """The pairs of a longest common subsequence, ascending, into `out`; how many. −1: the two differ in too much.
    `parts`: room for DEEP."""
    found, waiting = 0, 1
    parts[0, 0], parts[0, 1], parts[0, 2], parts[0, 3], parts[0, 4] = i, i_end, j, j_end, 0
    met = np.empty(4, np.int64)
    while waiting:
        waiting -= 1
        a, a_end, b, b_end, equal = parts[waiting]
        if equal:
            for x in range(a_end - a):
                out[found, 0], out[found, 1] = a + x, b + x
                found += 1
            continue
        if a == a_end or b == b_end:
            continue
        different = _meet(one, a, a_end, other, b, b_end, ahead, back, met)
        if different < 0:
            return np.int64(-1)
        if different <= 1 and (met[0] == met[2] or met[1] == met[3]):  # the one is the beginning of the other
            met[0] = met[1] = 0
            met[2] = met[3] = min(a_end - a, b_end - b)
            different = 0
        for k in range(3):  # the last is taken first
            part = parts[waiting + k]
            part[0], part[1] = a + (met[2], met[0], 0)[k], a + (a_end - a, met[2], met[0])[k]
            part[2], part[3] = b + (met[3], met[1], 0)[k], b + (b_end - b, met[3], met[1])[k]
            part[4] = k == 1
        waiting += 3
    return np.int64(found)
