"""The tables of a flow: how large they may be, empty ones, larger ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.follow.cfg import rehash
from stages.follow.cfg.block import PACKET_BLOCKS, PACKET_LINKS, PACKET_PATHS
from stages.follow.cfg.context import BEHIND, NO, TIMES
from stages.follow.cfg.graph import (
    BL,
    BL_KIND,
    DISABLED,
    DISABLED_BLOCK,
    FIRST_BLOCK,
    G_BLOCKS,
    G_ERRATA,
    G_FILTER_HI,
    G_FILTER_LO,
    G_INTERPRETER_HI,
    G_INTERPRETER_LO,
    G_LINES,
    G_LINKS,
    G_NODES,
    G_NORETCOMP,
    G_PATHS,
    G_SIZE,
    G_TNT_CACHE,
    G_WINDOWS,
    LOST,
    LOST_BLOCK,
    P_FIRST,
    PA,
    TC,
    WC_WORDS,
    Tables,
)
from stages.follow.cfg.window_cache import D_SIZE, SEEN
from stages.follow.code.code_copy import Code
from stages.follow.code.jumps import Jumps
from stages.fresh import zeros
from stages.messages import PtConfig
from stages.pt.errata import of_cpu

LINE = 64  # bytes


class Capacity(NamedTuple):
    """Bounds of the tables, in entries; tnt_cache, contexts and windows: powers of two. Memory is touched as it is
    used."""

    blocks: int = 1 << 18
    paths: int = 1 << 19
    tnt_cache: int = 1 << 20
    pool: int = 1 << 23
    links: int = 1 << 23
    nodes: int = 1 << 18
    contexts: int = 1 << 20
    windows: int = 1 << 16  # 0: packets are taken one by one

    def check(self) -> None:
        least = 4 * PACKET_BLOCKS
        small = self.blocks < least or self.pool < 2 * least or self.paths < 1024 or self.tnt_cache < 4096
        if small or self.links < 4 * PACKET_LINKS or 0 < self.windows < 1024:
            raise ValueError("flow tables too small to hold what one packet can need")
        if self.blocks > 1 << 22 or self.paths > 1 << BEHIND or self.nodes > 1 << TIMES:
            raise ValueError("more blocks, paths or nodes than keys can name")


def _windows(slots: int) -> NDArray[np.int64]:
    """So many empty ones, each in two cache lines."""
    memory = zeros(slots * WC_WORDS + LINE // 8, np.int64)
    skip = -memory.ctypes.data % LINE // 8
    return memory[skip : skip + slots * WC_WORDS]


def empty(c: Capacity, code: Code, jumps: Jumps, config: PtConfig, context: bool) -> Tables:
    g = np.zeros(G_SIZE, np.int64)
    g[G_BLOCKS], g[G_PATHS], g[G_NODES] = FIRST_BLOCK, P_FIRST, 1
    g[G_LINKS] = 1
    g[G_FILTER_LO] = np.uint64(config.filter_lo).view(np.int64)
    g[G_FILTER_HI] = np.uint64(config.filter_hi).view(np.int64)
    g[G_NORETCOMP], g[G_ERRATA] = config.noretcomp, of_cpu(config.family, config.model)
    g[G_INTERPRETER_LO], g[G_INTERPRETER_HI] = jumps.interpreter
    small = min(c.tnt_cache, 1 << 14)
    contexts = min(c.contexts, 1 << 14)
    start, end, at, buffer = code.words()
    tables = Tables(
        code=buffer,
        blob_start=start,
        blob_end=end,
        blob_at=at,
        jump=jumps.ranges.reshape(-1),
        entry=jumps.entries,
        g=g,
        block=zeros(c.blocks * BL, np.int32),
        address=zeros(c.blocks, np.int64),
        last=zeros(c.blocks, np.int64),
        by_address=zeros(2 << 15, np.int64),
        by_cut=zeros(1 << 14, np.int32),
        by_line=zeros(2 << 15, np.int64),
        link=zeros(2 * c.links, np.int32),
        tnt_cache=zeros(small * TC, np.int32),
        path=zeros(c.paths * PA, np.int32),
        path_instrs=zeros(c.paths, np.int64),
        pool=zeros(c.pool, np.int32),
        ranges=zeros(3 * 2 * c.blocks, np.int64),
        node=zeros((c.nodes if context else 2) * NO, np.int32),
        by_call=zeros(2 * 2 * c.nodes if context else 4, np.int64),
        context_cache=zeros(2 * contexts if context else 4, np.int64),
        node_instrs=zeros(c.nodes if context else 2, np.int64),
        windows=_windows(min(c.windows, 1 << 10) or 1),
        seen=np.zeros(SEEN, np.int32),
        draft=np.zeros(D_SIZE, np.int64),
        last_step=zeros(2 * c.paths if context else 2, np.int64),
    )
    tables.block[LOST_BLOCK * BL + BL_KIND] = LOST
    tables.block[DISABLED_BLOCK * BL + BL_KIND] = DISABLED
    return tables


def enlarged(t: Tables, c: Capacity) -> Tables | None:
    """With the hash table that is full twice as large, if one is and may grow: ids do not change. A table of windows
    that may not is emptied."""
    slots, addresses, lines = len(t.tnt_cache) // TC, len(t.by_address) // 2, len(t.by_line) // 2
    windows = len(t.windows) // WC_WORDS
    g = t.g
    if windows > 1 and 2 * (g[G_WINDOWS] + 1) > windows - 1:
        more = _windows(min(2 * windows, c.windows))
        g[G_WINDOWS] = rehash.windows(t.windows, more) if windows < c.windows else 0
        return t._replace(windows=more)
    if 2 * (g[G_TNT_CACHE] + 2 * PACKET_PATHS) >= slots - 1 and slots < c.tnt_cache:
        return t._replace(tnt_cache=rehash.tnt_cache(t.tnt_cache, 2 * slots))
    if 4 * (g[G_BLOCKS] + 2 * PACKET_BLOCKS) >= 3 * (addresses - 1) and addresses < 2 * c.blocks:
        return t._replace(by_address=rehash.pairs(t.by_address, 2 * addresses))
    if 4 * (g[G_LINES] + 2 * PACKET_LINKS) >= 3 * (lines - 1) and lines < c.links:
        return t._replace(by_line=rehash.pairs(t.by_line, 2 * lines))
    return None
