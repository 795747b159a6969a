"""The function behind `stages.flow.grow`."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from functools import cache

from stages.flow.graph import (
    FULL,
    ST,
    ST_KIND,
    UNWALKED,
    raw_tables,
)
from stages.flow.grow import (
    TO_BUILD,
    TO_CHECK,
    TO_CUT,
    TO_LEARN,
    TO_PASS,
)
from stages.flow.learning import (
    learn,
)
from stages.flow.memo import (
    build,
)
from stages.flow.raw import entry, i64_at
from stages.flow.stretch import (
    alive,
    cut_stretch,
    passes,
    walk,
)
from stages.flow.unit import (
    still,
)


def _grow(where: int, what: int, s: int, of: int) -> int:
    t = raw_tables(i64_at(where))
    if what == TO_BUILD:
        return build(t, s, of)  # type: ignore[no-any-return]
    if what == TO_CUT:
        return cut_stretch(t, s, of)  # type: ignore[no-any-return]
    if what == TO_PASS:
        return passes(t, s, of)  # type: ignore[no-any-return]
    if what == TO_LEARN:
        return learn(t)  # type: ignore[no-any-return]
    if what == TO_CHECK:
        return still(t, s)  # type: ignore[no-any-return]
    s = alive(t, s)
    if s != FULL and t.stretch[s * ST + ST_KIND] == UNWALKED:
        return walk(t, s)  # type: ignore[no-any-return]
    return s


@cache
def address() -> int:
    """Of the function, compiled when it is first asked for."""
    return entry(_grow)
