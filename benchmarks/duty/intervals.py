"""How often the interval that is said of a share holds the share at full duty."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np

from benchmarks.duty.cut import DUTIES, FINE, PANE, drawn
from streamer.hub import estimate

WINDOW, HOTTEST = 10.0, 20


def intervals(table: list[Counter[str]], draws: int, seed: int) -> dict[str, dict[str, float]]:
    """By duty: the part of (window, method) whose interval holds the share, the mean half width of the hottest method's
    share and of all, the part of windows whose hottest method is found, and the number of windows."""
    rng, size, pane = Random(seed), round(WINDOW / FINE), round(PANE / FINE)
    result = {}
    for duty in DUTIES:
        inside, halves, first, found, windows = 0, [], [], 0, 0
        for start in range(0, len(table) - size + 1, size):
            of = table[start : start + size]
            whole = sum(of, Counter[str]())
            if not whole:
                continue
            hot = [name for name, _ in whole.most_common(HOTTEST)]
            weights = np.array([[p[name] for name in hot] for p in of], float)
            totals = np.array([p.total() for p in of], float)
            true = weights.sum(axis=0) / totals.sum()
            for _ in range(draws):
                on = drawn(WINDOW, duty, rng)
                parts = (weights * on[:, None]).reshape(-1, pane, len(hot)).sum(axis=1)
                sums = (totals * on).reshape(-1, pane).sum(axis=1)
                windows += 1
                if not sums.any():
                    continue
                half = estimate.half_widths(parts, sums, float(on.mean()))
                share = parts.sum(axis=0) / sums.sum()
                inside += int((np.abs(share - true) <= half).sum())
                halves += half.tolist()
                first.append(half[0])
                found += int(np.argmax(share)) == 0
        result[f"{duty:.0%}"] = {
            "inside": inside / max(1, len(halves)),
            "half_width": float(np.mean(halves)) if halves else 0.0,
            "half_width_of_hottest": float(np.mean(first)) if first else 0.0,
            "hottest_found": found / max(1, windows),
            "windows": windows,
        }
    return result
