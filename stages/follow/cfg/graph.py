"""The decision graph: machine code cut at the places where a decoder needs a packet.

A *block* begins at an address where control can arrive (a branch target, a return address, the IP of a packet)
and runs, over direct jumps and calls, to the next instruction whose outcome only the trace knows. It is found once,
when control first arrives there, and then stands for all it passed: address ranges, instructions, calls.

The decoder's position is "in block s, waiting for the outcome of its last instruction". So the states of the walker are
blocks, and a path is the list of the blocks it completed.

All of it lies in flat arrays of fixed capacity (`Tables`). Block ids are never used twice in one generation of
the tables: when code changes, the blocks over it die, and their addresses get new ids when control arrives there
again. An id therefore names a place in one version of the code.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import inner
from stages.pointers import addresses, addresses_anew, excluded, holder, i32_at, i64_at, product, u8_at

I8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

# How a block ends (BL_KIND). The first three, and RESOLVE, take a TIP.
UNWALKED, IND, RET, FAR, COND = 0, 1, 2, 3, 4
OUT = 5  # a direct branch, or just the next instruction, left the IP filter: a TIP.PGD must follow
OFF = 6  # left the known code
STUCK = 7  # bytes that are no instruction, or UD2: only an asynchronous event can follow
LOOP = 8  # a loop without packets: the same
CUT = 9  # ended by an asynchronous event
OUTSIDE = 10  # does not begin in known code: nothing to follow until a packet leads back
LOST = 11  # no block: waiting for an address
DISABLED = 12  # no block: tracing is off until a TIP.PGE
DEAD = 13  # its code has changed
RESOLVE = 14  # an indirect jump by which a resolver goes to the callee it has found (stages.follow.code.jumps)

# columns of a block's row, one cache line
BL = 16
(
    BL_KIND, BL_TIP_PATH, BL_EFFECT, BL_PUSHED, BL_INSTRS, BL_RANGE, BL_RANGES, BL_PUSH, BL_PUSHES, BL_TAKEN, BL_FALL,
    BL_FROM, BL_TURNS, BL_CACHED,
) = range(14)  # fmt: skip

# BL_FROM: of a part of a block, the whole; BL_TURNS: which was a LOOP
# BL_EFFECT: the effect on the return stack of a TIP at the block's end
E_PUSH, E_POP, E_MANY, E_HOP = 1, 2, 4, 8  # pushes BL_PUSHED; pops after it; pushes a list; is a jump
E_UPDATES = 16  # has left the filter for what changes the call before it
E_LEADS = 5  # from this bit on the kind of a jump, if that says where it leads: INTO_… in stages.follow.code.jumps

# columns of a path's row
PA = 8
PA_POOL, PA_LEN, PA_PUSH, PA_PUSHES, PA_HIGH, PA_FLAGS, PA_START, PA_INSTRS = range(8)
PATH_RETURNS = 1  # in PA_FLAGS: its last instruction is a RET to a frame from before it, which the next path begins in
PATH_LEAVES = 2  # tracing is off behind it
PATH_OF_PATHS = 4  # of a window: its list (PA_POOL, PA_LEN) is of paths, not of blocks
PATH_TURNS = 8  # and one of them, not the last, calls or returns: for contexts it is each of its paths, not one

# columns of a TNT cache slot
TC = 8
TC_KEY, TC_NEXT, TC_PATH, TC_FLAGS, TC_PUSHED = range(5)

WC_WORDS = 16  # 64-bit words of a window

# block ids and path ids with a meaning of their own
LOST_BLOCK, DISABLED_BLOCK, FIRST_BLOCK = (np.int64(k) for k in range(3))
P_EMPTY, P_DISABLED, P_BREAK, P_FIRST = (np.int64(k) for k in range(4))

# counters, settings and sizes in `g`
(
    G_BLOCKS, G_PATHS, G_POOL, G_RANGES, G_TNT_CACHE, G_NODES, G_CONTEXT_CACHE, G_FILTER_LO, G_FILTER_HI, G_NORETCOMP,
    G_MISSES, G_CUTS, G_CMISSES, G_CONTEXT_FULL, G_BLOCK_ROOM, G_PATH_ROOM, G_POOL_ROOM, G_RANGE_ROOM, G_NODE_ROOM,
    G_ADDRESS_MASK, G_CUT_MASK, G_TNT_CACHE_MASK, G_CALL_MASK, G_CONTEXT_CACHE_MASK, G_BLOBS, G_CODE_SIZE, G_LINKS,
    G_LINK_ROOM, G_LINES, G_LINE_MASK, G_LONG, G_OFF, G_JUMPS, G_WINDOWS, G_WINDOW_MASK, G_WINDOW_BYTES, G_EPOCH,
    G_INTERPRETER_LO, G_INTERPRETER_HI, G_ENTRIES, G_ERRATA, G_SIZE,
) = range(42)  # fmt: skip

FULL = np.int64(-1)


class Tables(NamedTuple):
    """Everything the kernels share about one process's code; see the columns above."""

    code: I8
    blob_start: I64  # merged where adjacent; ascending as unsigned numbers
    blob_end: I64
    blob_at: I64
    jump: I64  # lo, hi (one past), the kind of the indirect jumps there: see stages.follow.code.jumps
    entry: I64  # entries of methods
    g: I64
    block: I32
    address: I64  # first address of each block
    last: I64  # address of its last instruction; where it left, if OUT or OFF
    by_address: I64  # open addressing: address, id
    by_cut: I32  # open addressing: id
    by_line: I64  # open addressing: line of code, list of the blocks over it
    link: I32  # lists: value, next
    tnt_cache: I32
    path: I32
    path_instrs: I64  # instructions on each path
    pool: I32  # lists of block ids: of paths, each with where it leads behind it (0: a TIP says), and of pushed
    # return addresses
    ranges: I64  # lo, hi (one past), instructions
    node: I32  # calling contexts: parent, return address' block, depth, spare
    by_call: I64  # open addressing: parent << 32 | return block, node
    context_cache: I64  # open addressing, see stages.follow.cfg.context
    node_instrs: I64
    windows: I64  # open addressing, see stages.follow.cfg.window_cache
    seen: I32  # windows seen once
    draft: I64  # of a window
    last_step: I64  # of contexts along each path

    def raw(self, miss: int = 0, before: tuple[Tables, I64] | None = None) -> I64:
        """Where the tables lie, for `raw_tables`; their sizes go to `g`. The tables must outlive it. `miss`: the entry
        (`stages.follow.cfg.miss`) that fills them, where they are to be filled. `before`: tables of which many are
        these, and where those lie."""
        g = self.g
        g[G_BLOCK_ROOM], g[G_PATH_ROOM], g[G_POOL_ROOM] = len(self.address), len(self.path_instrs), len(self.pool)
        g[G_RANGE_ROOM], g[G_NODE_ROOM], g[G_LINK_ROOM] = (
            len(self.ranges) // 3,
            len(self.node_instrs),
            len(self.link) // 2,
        )
        g[G_ADDRESS_MASK], g[G_CUT_MASK] = len(self.by_address) // 2 - 1, len(self.by_cut) - 1
        g[G_TNT_CACHE_MASK], g[G_CALL_MASK] = len(self.tnt_cache) // TC - 1, len(self.by_call) // 2 - 1
        g[G_CONTEXT_CACHE_MASK], g[G_LINE_MASK] = len(self.context_cache) // 2 - 1, len(self.by_line) // 2 - 1
        g[G_WINDOW_MASK] = len(self.windows) // WC_WORDS - 1
        g[G_BLOBS], g[G_CODE_SIZE], g[G_JUMPS] = len(self.blob_start), len(self.code), len(self.jump) // 3
        g[G_ENTRIES] = len(self.entry)
        n = len(self)
        where = np.empty(len(AT), np.int64)
        where[:n] = addresses(*self) if before is None else addresses_anew(self, before[0], before[1][:n])
        where[AT.here], where[AT.miss] = where.ctypes.data, miss
        return where


_NUMBERS = "here", "miss"  # where the array of addresses itself lies, and the entry that fills the tables
Raw = namedtuple("Raw", (*Tables._fields, *_NUMBERS, "window_numbers"))  # type: ignore[misc]
_At = namedtuple("_At", (*Tables._fields, *_NUMBERS))  # type: ignore[misc]
AT: Any = _At(*range(len(_At._fields)))
"""Where the address of each table stands in the array that kernels are given (`Tables.raw`)."""


@inner
def raw_tables(a):  # type: ignore[no-untyped-def]
    """The tables as pointers, from `Tables.raw()`; `window_numbers` are the `windows` as 32-bit numbers."""
    return Raw(  # type: ignore[call-arg]
        code=u8_at(a[AT.code]),
        blob_start=i64_at(a[AT.blob_start]),
        blob_end=i64_at(a[AT.blob_end]),
        blob_at=i64_at(a[AT.blob_at]),
        jump=i64_at(a[AT.jump]),
        entry=i64_at(a[AT.entry]),
        g=i64_at(a[AT.g]),
        block=i32_at(a[AT.block]),
        address=i64_at(a[AT.address]),
        last=i64_at(a[AT.last]),
        by_address=i64_at(a[AT.by_address]),
        by_cut=i32_at(a[AT.by_cut]),
        by_line=i64_at(a[AT.by_line]),
        link=i32_at(a[AT.link]),
        tnt_cache=i32_at(a[AT.tnt_cache]),
        path=i32_at(a[AT.path]),
        path_instrs=i64_at(a[AT.path_instrs]),
        pool=i32_at(a[AT.pool]),
        ranges=i64_at(a[AT.ranges]),
        node=i32_at(a[AT.node]),
        by_call=i64_at(a[AT.by_call]),
        context_cache=i64_at(a[AT.context_cache]),
        node_instrs=i64_at(a[AT.node_instrs]),
        windows=i64_at(a[AT.windows]),
        seen=i32_at(a[AT.seen]),
        draft=i64_at(a[AT.draft]),
        last_step=i64_at(a[AT.last_step]),
        here=a[AT.here],
        miss=a[AT.miss],
        window_numbers=i32_at(a[AT.windows]),
    )


@inner
def scatter(x):  # type: ignore[no-untyped-def]
    """A hash of a 64-bit number; the caller masks its low bits."""
    h = product(x, -7046029254386353131)
    return (h >> 40) ^ (h >> 20)


@inner
def blob_of(t, address):  # type: ignore[no-untyped-def]
    """Index of the blob that holds `address`, or -1."""
    return holder(t.blob_start, t.blob_end, t.g[G_BLOBS], address)


@inner
def filtered(t, address):  # type: ignore[no-untyped-def]
    """Whether there is an IP filter and it excludes `address`."""
    return excluded(t.g[G_FILTER_LO], address, t.g[G_FILTER_HI])
