"""The tables of a flow: how large they may be, empty ones, larger ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.follow.cfg import rehash
from stages.follow.cfg.block import PACKET_LINKS, PACKET_PATHS, PACKET_STRETCHES
from stages.follow.cfg.context import BEHIND, NO, TIMES
from stages.follow.cfg.graph import (
    DISABLED,
    G_ERRATA,
    G_FILTER_HI,
    G_FILTER_LO,
    G_INTERPRETER_HI,
    G_INTERPRETER_LO,
    G_LINES,
    G_LINKS,
    G_MEMO,
    G_NODES,
    G_NORETCOMP,
    G_PATHS,
    G_SIZE,
    G_STRETCHES,
    G_UNITS,
    LOST,
    ME,
    P_FIRST,
    PA,
    S_DISABLED,
    S_FIRST,
    S_LOST,
    ST,
    ST_KIND,
    UW,
    Tables,
)
from stages.follow.cfg.window_cache import D_SIZE, SEEN
from stages.follow.code.code_copy import Code
from stages.follow.code.jumps import Jumps
from stages.messages import PtConfig
from stages.pt.errata import of_cpu

LINE = 64  # bytes


class Capacity(NamedTuple):
    """Bounds of the tables, in entries; memo, contexts and units: powers of two. Memory is touched as it is used."""

    stretches: int = 1 << 18
    paths: int = 1 << 19
    memo: int = 1 << 20
    pool: int = 1 << 23
    links: int = 1 << 23
    nodes: int = 1 << 18
    contexts: int = 1 << 20
    units: int = 1 << 16  # 0: packets are taken one by one

    def check(self) -> None:
        least = 4 * PACKET_STRETCHES
        small = self.stretches < least or self.pool < 2 * least or self.paths < 1024 or self.memo < 4096
        if small or self.links < 4 * PACKET_LINKS or 0 < self.units < 1024:
            raise ValueError("flow tables too small to hold what one packet can need")
        if self.stretches > 1 << 22 or self.paths > 1 << BEHIND or self.nodes > 1 << TIMES:
            raise ValueError("more stretches, paths or nodes than keys can name")


def _units(slots: int) -> NDArray[np.int64]:
    """So many empty ones, each in two cache lines."""
    memory = np.zeros(slots * UW + LINE // 8, np.int64)
    skip = -memory.ctypes.data % LINE // 8
    return memory[skip : skip + slots * UW]


def empty(c: Capacity, code: Code, jumps: Jumps, config: PtConfig, context: bool) -> Tables:
    g = np.zeros(G_SIZE, np.int64)
    g[G_STRETCHES], g[G_PATHS], g[G_NODES] = S_FIRST, P_FIRST, 1
    g[G_LINKS] = 1
    g[G_FILTER_LO] = np.uint64(config.filter_lo).view(np.int64)
    g[G_FILTER_HI] = np.uint64(config.filter_hi).view(np.int64)
    g[G_NORETCOMP], g[G_ERRATA] = config.noretcomp, of_cpu(config.family, config.model)
    g[G_INTERPRETER_LO], g[G_INTERPRETER_HI] = jumps.interpreter
    small = min(c.memo, 1 << 14)
    contexts = min(c.contexts, 1 << 14)
    start, end, at, buffer = code.words()
    tables = Tables(
        code=buffer,
        blob_start=start,
        blob_end=end,
        blob_at=at,
        jump=jumps.ranges.reshape(-1),
        door=jumps.doors,
        g=g,
        stretch=np.zeros(c.stretches * ST, np.int32),
        address=np.zeros(c.stretches, np.int64),
        last=np.zeros(c.stretches, np.int64),
        by_address=np.zeros(2 << 15, np.int64),
        by_cut=np.zeros(1 << 14, np.int32),
        by_line=np.zeros(2 << 15, np.int64),
        link=np.zeros(2 * c.links, np.int32),
        memo=np.zeros(small * ME, np.int32),
        path=np.zeros(c.paths * PA, np.int32),
        path_instrs=np.zeros(c.paths, np.int64),
        pool=np.zeros(c.pool, np.int32),
        ranges=np.zeros(3 * 2 * c.stretches, np.int64),
        node=np.zeros((c.nodes if context else 2) * NO, np.int32),
        by_call=np.zeros(2 * 2 * c.nodes if context else 4, np.int64),
        cmemo=np.zeros(2 * contexts if context else 4, np.int64),
        node_instrs=np.zeros(c.nodes if context else 2, np.int64),
        units=_units(min(c.units, 1 << 10) or 1),
        seen=np.zeros(SEEN, np.int32),
        draft=np.zeros(D_SIZE, np.int64),
        last_step=np.zeros(2 * c.paths if context else 2, np.int64),
    )
    tables.stretch[S_LOST * ST + ST_KIND] = LOST
    tables.stretch[S_DISABLED * ST + ST_KIND] = DISABLED
    return tables


def enlarged(t: Tables, c: Capacity) -> Tables | None:
    """With the hash table that is full twice as large, if one is and may grow: ids stay what they are. A table of units
    that may not is emptied."""
    slots, addresses, lines = len(t.memo) // ME, len(t.by_address) // 2, len(t.by_line) // 2
    units = len(t.units) // UW
    g = t.g
    if units > 1 and 2 * (g[G_UNITS] + 1) > units - 1:
        more = _units(min(2 * units, c.units))
        g[G_UNITS] = rehash.units(t.units, more) if units < c.units else 0
        return t._replace(units=more)
    if 2 * (g[G_MEMO] + 2 * PACKET_PATHS) >= slots - 1 and slots < c.memo:
        return t._replace(memo=rehash.memo(t.memo, 2 * slots))
    if 4 * (g[G_STRETCHES] + 2 * PACKET_STRETCHES) >= 3 * (addresses - 1) and addresses < 2 * c.stretches:
        return t._replace(by_address=rehash.pairs(t.by_address, 2 * addresses))
    if 4 * (g[G_LINES] + 2 * PACKET_LINKS) >= 3 * (lines - 1) and lines < c.links:
        return t._replace(by_line=rehash.pairs(t.by_line, 2 * lines))
    return None
