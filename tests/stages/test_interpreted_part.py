"""What the interpreter ran for known methods, taken out of a message's counts: against plain sums."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages.bytecodes import EVENT_DTYPE, KNOWN_DTYPE, METHOD_DTYPE, Bytecodes
from stages.paths.counts import Executed
from stages.profile.contents import BYTECODES, COLUMNS, INSTRUCTIONS, INVOCATIONS, Sums
from stages.profile.interpreted import known_part, with_methods

SMALL = st.integers(0, 3)
EXECUTED = st.lists(st.tuples(SMALL, st.integers(0, 5), st.integers(1, 9)), max_size=12)


def bytecodes(known: list[tuple[int, int, int]], methods: list[tuple[int, int, int, int, int]]) -> Bytecodes:
    return Bytecodes(
        "", 1, 0, 0, 0, np.array(methods, METHOD_DTYPE), np.array(known, KNOWN_DTYPE), np.zeros(0, EVENT_DTYPE), ()
    )


@settings(deadline=None)
@given(EXECUTED, st.dictionaries(st.tuples(SMALL, st.integers(0, 6)), st.integers(1, 20), max_size=6))
def test_blocks_of_known_methods_are_at_most_those_that_ran(
    ran: list[tuple[int, int, int]], known: dict[tuple[int, int], int]
) -> None:
    times = Counter[tuple[int, int]]()
    for group, block, n in ran:
        times[group, block] += n
    columns = np.array(ran, np.int64).reshape(-1, 3)
    all_ = Executed(
        columns[:, 0].astype(np.int32),
        columns[:, 1],
        np.zeros(len(ran), np.int32),
        columns[:, 2],
        2 * columns[:, 2].astype(float),
    )
    part = known_part(bytecodes([(*key, n) for key, n in known.items()], []), all_)
    found = {
        (g, b): (n, ticks)
        for g, b, n, ticks in zip(*(c.tolist() for c in (part.group, part.block, part.times, part.ticks)), strict=True)
    }
    least = {key: min(n, times[key]) for key, n in known.items() if key in times}
    assert found == {key: (n, 2.0 * n) for key, n in least.items()}


@settings(deadline=None)
@given(EXECUTED, EXECUTED)
def test_methods_come_in_the_place_of_templates(
    templates: list[tuple[int, int, int]], methods: list[tuple[int, int, int]]
) -> None:
    """Half of each template's instructions are a method's; sites of methods are other numbers."""
    distinct = {(g, s): n for g, s, n in templates}

    def sums(half: int) -> Sums:
        rows = np.array([(g, s, n // half) for (g, s), n in sorted(distinct.items())], np.int64).reshape(-1, 3)
        counts = np.zeros((len(rows), len(COLUMNS)), np.int64)
        counts[:, INSTRUCTIONS] = rows[:, 2]
        return Sums(rows[:, 0], rows[:, 1], counts, np.zeros(len(rows)))

    rows = [(group, method, 1, 3 * n, n) for group, method, n in methods]
    out = with_methods(sums(1), sums(2), bytecodes([], rows), np.array([100 + m for _, m, *_ in rows], np.int64))
    expected = Counter({(g, s): n - n // 2 for (g, s), n in distinct.items()})
    invoked, executed = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for group, method, n in methods:
        expected[group, 100 + method] += n
        invoked[group, 100 + method] += 1
        executed[group, 100 + method] += 3 * n
    keys = list(zip(out.group.tolist(), out.site.tolist(), strict=True))
    assert keys == sorted(+expected)
    assert dict(zip(keys, out.counts[:, INSTRUCTIONS].tolist(), strict=True)) == +expected
    assert +Counter(dict(zip(keys, out.counts[:, INVOCATIONS].tolist(), strict=True))) == invoked
    assert +Counter(dict(zip(keys, out.counts[:, BYTECODES].tolist(), strict=True))) == +executed
