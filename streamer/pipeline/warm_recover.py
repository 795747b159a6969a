"""Has numba compile the kernels of `stages.recover`."""

from __future__ import annotations

import numpy as np


def compile_recover() -> None:
    """By a window in which nothing ran."""
    from stages.messages.paths import BREAK_DTYPE, LINK_DTYPE, PATH_DTYPE
    from stages.recover import append, filling, guess, window
    from stages.recover.append import AC, FC, PACE, RC, TC
    from stages.recover.trace_size import ENCODED_DTYPE
    from stages.recover.window import LONGEST

    w, nothing = window.empty(0), np.zeros(0, np.int32)
    breaks = np.zeros(0, BREAK_DTYPE)
    append.add(
        w, np.zeros((1, TC), np.int64), np.zeros((1, LONGEST), np.int32), np.zeros((1, PACE)),
        np.zeros((0, RC), np.int64), nothing, breaks["confirmed"].copy(), breaks["order"].copy(),
        np.zeros(0, ENCODED_DTYPE), np.zeros(0, PATH_DTYPE), np.zeros(0, LINK_DTYPE), np.zeros((0, FC), np.int64),
        np.zeros(AC, np.int64), 1,
    )  # fmt: skip
    holes = np.zeros((0, filling.HC), np.int64)
    filling.fill(w, holes, 0, 0)
    filling.copied(w, holes, nothing)
    edges = guess.with_room(guess.empty(), 1)
    guess.count(w, edges, 1)
    guess.guess(w, edges, np.zeros(filling.HC, np.int64))
