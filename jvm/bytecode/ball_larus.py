"""Numbers of the acyclic paths through a method (Ball and Larus, Efficient Path Profiling, MICRO-29, 1996, §3).

The values of the edges that a path takes add up to a number that no other path of the method has, and from which the
path can be told again. A loop's back edge ends a path and begins another (their dummy edges from the entry and to the
exit); so does a call of a subroutine (jsr). Paths begin at the entry, at the targets of back edges, at exception
handlers, and behind jsr. They end at a return, at athrow, and at a back edge. An exception that an instruction throws
on the way cuts its path off: it has no number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.cfg import NOWHERE, Cfg
from jvm.bytecode.opcodes import Kind

MOST = 1 << 62
"""Paths. A method with more has no numbers."""
_FORKS = (Kind.CONDITIONAL, Kind.GOTO, Kind.JSR)


class Numbering(NamedTuple):
    """Of a method with n nodes and e edges."""

    paths: int  # numbers are below it
    start: NDArray[np.int64]  # (n,) the number with which paths begin there; −1: none does
    edge: NDArray[np.int64]  # (n + 1,) where each node's edges begin
    to: NDArray[np.int64]  # (e,) node; no two edges of a node lead to the same one
    value: NDArray[np.int64]  # (e,)
    back: NDArray[np.bool_]  # (e,) the path ends with this edge

    def nodes(self, number: int) -> list[int]:
        """The path of that number; behind a back edge its target, which is the next path's first node, is last. Raises
        IndexError if there is none."""
        if not 0 <= number < self.paths:
            raise IndexError(number)
        begins = np.where(self.start <= number, self.start, -1)
        at = int(np.argmax(begins))
        rest, found = number - int(begins[at]), [at]
        while self.edge[at] < self.edge[at + 1]:
            mine = slice(int(self.edge[at]), int(self.edge[at + 1]))
            e = mine.start + int(np.searchsorted(self.value[mine], rest, "right")) - 1
            rest, at = rest - int(self.value[e]), int(self.to[e])
            found.append(at)
            if self.back[e]:
                break
        return found


def successors(cfg: Cfg) -> list[list[int]]:
    """By node: where control goes without an exception; each once."""
    nodes = cfg.nodes
    out = list[list[int]]()
    for kind, next_, target, arms in zip(
        nodes.kind.tolist(), nodes.next.tolist(), nodes.target.tolist(), nodes.arms.tolist(), strict=True
    ):
        to = [next_] if next_ != NOWHERE and kind != Kind.JSR else []
        to += [target] if kind in _FORKS else cfg.arm[target : target + arms].tolist() if kind == Kind.SWITCH else []
        out.append(list(dict.fromkeys(to)))
    return out


def number(cfg: Cfg) -> Numbering | None:
    """None: it has too many paths, or no code."""
    to, size = successors(cfg), len(cfg.nodes.kind)
    if not size:
        return None
    behind_jsr = cfg.nodes.next[cfg.nodes.kind == Kind.JSR]
    starts = dict.fromkeys([0, *cfg.handlers[:, 2].tolist(), *behind_jsr[behind_jsr != NOWHERE].tolist()])
    order, back = _depth_first(to, list(starts))
    starts.update(dict.fromkeys(target for _, target in sorted(back)))
    count = [0] * size  # of the paths that begin at a node
    value = [list[int]()] * size
    for node in order:
        value[node], total = [], 0
        for target in to[node]:
            value[node].append(total)
            total += 1 if (node, target) in back else count[target]
        count[node] = total if to[node] else 1
        if total > MOST:
            return None
    start, total = np.full(size, -1, np.int64), 0
    for node in starts:
        start[node] = total
        total += count[node]
        if total > MOST:
            return None
    reached = [targets if value[node] or not targets else [] for node, targets in enumerate(to)]
    edges = [(node, target) for node, targets in enumerate(reached) for target in targets]
    return Numbering(
        total, start, np.concatenate(([0], np.cumsum([len(targets) for targets in reached]))).astype(np.int64),
        np.array([target for _, target in edges], np.int64),
        np.array([v for values in value for v in values], np.int64),
        np.array([edge in back for edge in edges], np.bool_),
    )  # fmt: skip


def _depth_first(to: list[list[int]], starts: list[int]) -> tuple[list[int], set[tuple[int, int]]]:
    """The nodes that are reached, each behind all that it leads to but by back edges; those."""
    open_, order, back = set[int](), list[int](), set[tuple[int, int]]()
    seen = set[int]()
    for root in starts:
        if root in seen:
            continue
        seen.add(root)
        open_.add(root)
        stack = [(root, iter(to[root]))]
        while stack:
            node, rest = stack[-1]
            for target in rest:
                if target in open_:
                    back.add((node, target))
                elif target not in seen:
                    seen.add(target)
                    open_.add(target)
                    stack.append((target, iter(to[target])))
                    break
            else:
                stack.pop()
                open_.discard(node)
                order.append(node)
    return order, back
