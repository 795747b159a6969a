"""Which of a method's bytecodes ran: those that were seen, and those that must have run for these to be seen.

From a bytecode that ran it follows that its dominators did (each way to it from the entry or, by an exception, over a
handler leads through them), and those behind it that are reached without a choice, as long as none of them can throw.
Dominators are found as in Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm (2001).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.cfg import Cfg
from jvm.bytecode.opcodes import OPCODE, Kind
from jvm.kernels import inner, kernel
from stages.paths.dictionary import spans

I64 = NDArray[np.int64]

_THROW = """iaload laload faload daload aaload baload caload saload iastore lastore fastore dastore aastore bastore
    castore sastore idiv ldiv irem lrem ldc ldc_w ldc2_w getstatic putstatic getfield putfield new newarray anewarray
    arraylength checkcast instanceof monitorenter monitorexit multianewarray wide"""
SAFE = np.ones(256, np.bool_)
"""(256,) by opcode: control goes on to a successor, whatever happens (JVMS 6.5, and its asynchronous exceptions
aside)."""
SAFE[[OPCODE[name] for name in _THROW.split()]] = False
_JUMPS = (Kind.CONDITIONAL, Kind.GOTO, Kind.JSR)
_ONWARD = (Kind.PLAIN, Kind.CONDITIONAL, Kind.GOTO, Kind.SWITCH)


def concluded(cfg: Cfg, ran: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) bytecodes that ran, given those of which it is known."""
    found = ran.copy()
    if found.any():
        conclude(found, *followers(cfg))
    return found


def followers(cfg: Cfg) -> tuple[I64, I64]:
    """(n,) each: the nearest dominator of each node, and the one that certainly runs behind it; −1: none."""
    size = len(cfg.nodes.kind)
    begin, end = _successors(cfg)
    onward = np.isin(cfg.nodes.kind, _ONWARD) & SAFE[cfg.nodes.opcode] & (np.bincount(begin, minlength=size) == 1)
    after, sure = np.full(size, -1, np.int64), onward[begin]
    after[begin[sure]] = end[sure]
    return dominators(*_with_handlers(cfg, begin, end)), after


def conclude(ran: NDArray[np.bool_], above: I64, after: I64) -> None:
    """Adds to (n,) nodes, of any number of methods, those that follow from them by `followers`."""
    _close(ran, above, after, np.zeros(len(ran), np.int64))


def dominators(edge: I64, to: I64) -> I64:
    """(n,) the nearest of each node but the first, which is the entry; −1: none, or it is not reached. Edges to
    `to[edge[k] : edge[k + 1]]` lead away from node k."""
    size = len(edge) - 1
    above = np.full(size, -1, np.int64)
    if size:
        _nearest(edge, to, above, np.full(size, -1, np.int64), *(np.zeros(size, np.int64) for _ in range(2)),
                 edge[:-1].copy())  # fmt: skip
    return above


def _successors(cfg: Cfg) -> tuple[I64, I64]:
    """(e,) each: edges from node to node without an exception, each once, as `ball_larus.successors`."""
    nodes = cfg.nodes
    plain = np.flatnonzero((nodes.next >= 0) & (nodes.kind != Kind.JSR))
    jump = np.flatnonzero(np.isin(nodes.kind, _JUMPS))
    switch = np.flatnonzero(nodes.kind == Kind.SWITCH)
    arm, owner = spans(nodes.target[switch].astype(np.int64), nodes.arms[switch].astype(np.int64))
    begin = np.concatenate((plain, jump, switch[owner]))
    end = np.concatenate((nodes.next[plain], nodes.target[jump], cfg.arm[arm])).astype(np.int64)
    pairs = np.unique(begin << 32 | end)
    return pairs >> 32, pairs & 0xFFFFFFFF


def _with_handlers(cfg: Cfg, begin: I64, end: I64) -> tuple[I64, I64]:
    """As `dominators` takes them, with the edges to handlers, and those behind a jsr."""
    first, last, handler = (cfg.handlers[:, k].astype(np.int64) for k in range(3))
    covered, owner = spans(first, np.maximum(last - first, 0))
    jsr = np.flatnonzero((cfg.nodes.kind == Kind.JSR) & (cfg.nodes.next >= 0))
    every = np.concatenate((begin, covered, jsr))
    to = np.concatenate((end, handler[owner], cfg.nodes.next[jsr].astype(np.int64)))
    edge = np.concatenate(([0], np.cumsum(np.bincount(every, minlength=len(cfg.nodes.kind))))).astype(np.int64)
    return edge, to[np.argsort(every, kind="stable")]


@kernel
def _close(ran, above, after, todo):  # type: ignore[no-untyped-def]
    n = 0
    for node in range(len(ran)):
        if ran[node]:
            todo[n] = node
            n += 1
    while n > 0:
        n -= 1
        node = todo[n]
        for other in (above[node], after[node]):
            if other >= 0 and not ran[other]:
                ran[other] = True
                todo[n] = other
                n += 1


@inner
def _common(a, b, above, rank):  # type: ignore[no-untyped-def]
    while a != b:
        while rank[a] < rank[b]:
            a = above[a]
        while rank[b] < rank[a]:
            b = above[b]
    return a


@kernel
def _nearest(edge, to, above, rank, order, stack, at):  # type: ignore[no-untyped-def]
    """`rank`: −1, becomes the position in postorder; `at`: where each node's edges begin."""
    count, depth = 0, 0
    stack[0], rank[0] = 0, -2  # met, not left
    while depth >= 0:
        node = stack[depth]
        if at[node] < edge[node + 1]:
            target = to[at[node]]
            at[node] += 1
            if rank[target] == -1:
                rank[target] = -2
                depth += 1
                stack[depth] = target
        else:
            rank[node], order[count] = count, node
            count += 1
            depth -= 1
    above[0] = 0
    changed = True
    while changed:
        changed = False
        for k in range(count - 1, -1, -1):
            node = order[k]
            for e in range(edge[node], edge[node + 1]):
                target = to[e]
                if target == 0:
                    continue
                found = node
                if above[target] >= 0:
                    found = _common(above[target], node, above, rank)
                if found != above[target]:
                    above[target] = found
                    changed = True
    above[0] = -1
