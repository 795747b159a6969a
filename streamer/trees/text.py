"""Trees as people read them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stages.cct.measures import Pair, call_matrix, contributions
from stages.cct.merging import inclusive
from stages.cct.tree import Tree, thread_name
from stages.cct.views import ALL_THREADS
from streamer.hub.text import plain
from streamer.trees.weights import U64, WEIGHTS, weights


@dataclass(frozen=True, slots=True)
class Cut:
    """The nodes to show: those with at least this share of all, down to this depth."""

    share: float = 0.005
    depth: int = 1000


def lines(tree: Tree, weight: str, observed: bool, cut: Cut, hz: float) -> Iterator[str]:
    """The tree as text, heaviest first."""
    own = weights(tree, weight, observed)
    total = inclusive(tree, own)
    calls = weights(tree, "invocations", observed)
    whole = int(own.sum())
    spent = f"{whole / hz:,.3f} s" if weight == "time" else f"{whole:,}"
    yield f"{weight}: {spent}" + _suspect(tree, weight, whole)
    yield f"{'total':>7} {'self':>7} {'invocations':>13}"
    for node, depth in _in_order(tree, total, max(1, int(cut.share * whole)), cut.depth):
        called = f"{int(calls[node]):,}" if calls[node] else ""
        shares = f"{_share(total[node], whole)} {_share(own[node], whole)}"
        yield f"{shares} {called:>13} {'  ' * depth}{label(tree, node)}"


def _suspect(tree: Tree, weight: str, whole: int) -> str:
    doubt = int(tree.nodes[f"suspect_{WEIGHTS[weight]}"].sum())
    return f" ({doubt / whole:.2%} of it suspect)" if doubt and whole else ""


def _share(part: np.generic, whole: int) -> str:
    return f"{int(part) / whole:7.1%}" if whole else f"{'':7}"


def label(tree: Tree, node: int) -> str:
    row = tree.nodes[node]
    name, bci = plain(tree.names[row["method"]]), int(row["bci"])
    if row["parent"] < 0:
        called = plain(thread_name(tree.names[row["method"]]))
        if bci == ALL_THREADS:
            return f"threads {called}" if called else "all threads"
        return f"thread {bci} {called}".rstrip()
    return f"{name} @{bci}" if bci >= 0 else name


def _in_order(tree: Tree, total: U64, least: int, depth: int) -> Iterator[tuple[int, int]]:
    """(node, depth), callers before callees, the heaviest first, names among equals."""
    below: dict[int, list[int]] = {}
    parent = tree.nodes["parent"].tolist()
    for node in np.flatnonzero(total >= np.uint64(least)).tolist():
        below.setdefault(parent[node], []).append(node)
    stack = [(node, 0) for node in _sorted(tree, total, below.get(-1, []))]
    while stack:
        node, level = stack.pop()
        yield node, level
        if level < depth:
            stack += [(child, level + 1) for child in _sorted(tree, total, below.get(node, []))]


def _sorted(tree: Tree, total: U64, nodes: list[int]) -> list[int]:
    """The last first."""
    return sorted(nodes, key=lambda n: (-int(total[n]), label(tree, n)), reverse=True)


def collapsed(tree: Tree, weight: str, observed: bool) -> Iterator[str]:
    """A line a node with weight of its own: its stack, semicolons between frames, and the weight (the format of
    flame-graph tools)."""
    own = weights(tree, weight, observed)
    parent = tree.nodes["parent"].tolist()
    for node in np.flatnonzero(own).tolist():
        frames, at = [], node
        while at >= 0:
            frames.append(" ".join(label(tree, at).replace(";", ":").split()))
            at = parent[at]
        yield f"{';'.join(reversed(frames))} {int(own[node])}"


def matrix(tree: Tree) -> Iterator[str]:
    """Calls between application and library."""
    cells = call_matrix(tree)
    whole = int(cells.sum()) or 1
    names = ("App", "JDK")
    yield "calls (observed), of compiled methods"
    for k, caller in enumerate(names):
        for m, callee in enumerate(names):
            yield f"{caller} → {callee}  {int(cells[k, m]):>15,}  {cells[k, m] / whole:7.2%}"


def movers(pair: Pair, top: int) -> Iterator[str]:
    yield f"{'first':>8} {'second':>8} {'change':>8}"
    for name, a, b in contributions(pair)[:top]:
        if a != b:
            yield f"{a:8.2%} {b:8.2%} {b - a:+8.2%} {plain(name)}"
