"""The function behind `stages.follow.cfg.miss`."""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from functools import cache

from stages.follow.cfg.block import alive, cut_block, walk
from stages.follow.cfg.block_queries import passes
from stages.follow.cfg.graph import (
    BL,
    BL_KIND,
    FULL,
    UNWALKED,
    raw_tables,
)
from stages.follow.cfg.miss import (
    TO_BUILD,
    TO_CHECK,
    TO_CUT,
    TO_PASS,
    TO_RECORD,
)
from stages.follow.cfg.tnt_path_cache import (
    build,
)
from stages.follow.cfg.window_cache import (
    still,
)
from stages.follow.cfg.window_recorder import (
    record,
)
from stages.pointers import entry, i64_at


def _grow(where: int, what: int, s: int, of: int) -> int:
    t = raw_tables(i64_at(where))
    if what == TO_BUILD:
        return build(t, s, of)  # type: ignore[no-any-return]
    if what == TO_CUT:
        return cut_block(t, s, of)  # type: ignore[no-any-return]
    if what == TO_PASS:
        return passes(t, s, of)  # type: ignore[no-any-return]
    if what == TO_RECORD:
        return record(t)  # type: ignore[no-any-return]
    if what == TO_CHECK:
        return still(t, s)  # type: ignore[no-any-return]
    s = alive(t, s)
    if s != FULL and t.block[s * BL + BL_KIND] == UNWALKED:
        return walk(t, s)  # type: ignore[no-any-return]
    return s


@cache
def address() -> int:
    """Of the function, compiled when it is first asked for."""
    return entry(_grow)
