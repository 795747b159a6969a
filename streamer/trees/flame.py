"""A tree, or the difference of two, as the page draws it: columns of frames, by level (`levels.by_level`).

A frame's place and width follow from these, so that they are not sent. Of a difference a frame's width is the mean of
its two shares: it adds up, and a frame that is in one tree only is seen, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.cct.measures import paired
from stages.cct.merging import inclusive, united
from stages.cct.tree import COLUMNS, Tree, thread_name
from stages.cct.views import ROOT, View
from streamer.trees.levels import by_level, pruned
from streamer.trees.text import label
from streamer.trees.weights import WEIGHTS, weighted, weights

MOST = 20_000
"""Frames that are sent unless another number is asked for."""
MOST_THREADS = 200
_FINE = 1 << 40  # parts of a share
_SIDES = COLUMNS[:2]  # of a pair
U64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`share`: frames with less of all are put together; `most`: of frames, besides those."""

    weight: str = "instructions"
    observed: bool = False
    thread: int | None = None
    share: float = 0.0
    most: int = MOST

    def of(self, tree: Tree) -> Tree:
        tids = () if self.thread is None else (self.thread,)
        seen = View(threads=self.thread is not None, tids=tids).of(tree)
        roots = seen.nodes["parent"] < 0
        if all(seen.names[k].startswith(ROOT) for k in seen.nodes["method"][roots].tolist()):
            return seen
        rows = seen.nodes.copy()  # of a file from elsewhere, which names its threads in other ways
        rows["method"][roots] = len(seen.names)
        return united(rows, (*seen.names, ROOT))


def flame(tree: Tree, wanted: Wanted, hz: float) -> dict[str, Any]:
    """Columns: `parent` (position; −1), `name` (position in `names`), `bci`, `total` and `own` (with and without the
    frames below), `suspect` (of `total`), `calls`. `levels`: where each depth begins, and the end. `hidden`: how many
    frames are put together in `[other]`."""
    seen = wanted.of(tree)
    own = weights(seen, wanted.weight, wanted.observed)
    shown = pruned(seen, whole := inclusive(seen, own), wanted.share, wanted.most)
    own = weights(shown, wanted.weight, wanted.observed)
    doubt = shown.nodes[f"suspect_{WEIGHTS[wanted.weight]}"].astype(np.uint64)
    columns = {
        "total": inclusive(shown, own),
        "own": own,
        "suspect": np.zeros_like(own) if wanted.observed else inclusive(shown, doubt),
        "calls": weights(shown, "invocations", wanted.observed),
    }
    return {**_about(tree, wanted, hz), "hidden": _hidden(whole, columns["total"]), **_columns(shown, columns)}


def difference(tree: Tree, base: Tree, wanted: Wanted, hz: float, base_hz: float) -> dict[str, Any]:
    """The same of `tree`, and with `base` and `base_own`, `total` and `own` of the other tree, and its `base_unit`.
    There is no `suspect`, and there are no `calls`."""
    both = paired(*(weighted(wanted.of(side), wanted.weight, wanted.observed) for side in (tree, base))).tree
    totals = [inclusive(both, both.nodes[name]) for name in _SIDES]
    shares = [total / max(1, int(total.max(initial=0))) for total in totals]
    parts = np.rint(np.sum(shares, axis=0) * _FINE).astype(np.uint64)
    shown = pruned(both, parts, wanted.share, wanted.most)
    columns = {name: shown.nodes[column] for name, column in zip(("own", "base_own"), _SIDES, strict=True)}
    columns |= {name: inclusive(shown, columns[own]) for name, own in (("total", "own"), ("base", "base_own"))}
    about = _about(tree, wanted, hz) | {"base_unit": base_hz if wanted.weight == "time" else 1}
    hidden = _hidden(parts, columns["total"] + columns["base"])
    return {**about, "hidden": hidden, **_columns(shown, columns)}


def _hidden(all_: U64, shown: U64) -> int:
    """How many frames, of those that have any width, are put together."""
    return max(0, int(np.count_nonzero(all_)) - int(np.count_nonzero(shown)))


def _about(tree: Tree, wanted: Wanted, hz: float) -> dict[str, Any]:
    """`unit`: how many of the weight are one second, or one; `threads`: (tid, weight, name), the heaviest first."""
    roots = np.flatnonzero(tree.nodes["parent"] < 0)
    total = inclusive(tree, weights(tree, wanted.weight, wanted.observed))[roots]
    threads: dict[int, tuple[int, str]] = {}  # an id may have been two threads'
    for row, spent in zip(tree.nodes[roots], total.tolist(), strict=True):
        before, name = threads.get(int(row["bci"]), (0, ""))
        threads[int(row["bci"])] = before + spent, name or thread_name(tree.names[row["method"]])
    first = sorted(threads.items(), key=lambda thread: -thread[1][0])[:MOST_THREADS]
    return {
        "weight": wanted.weight,
        "observed": wanted.observed,
        "unit": hz if wanted.weight == "time" else 1,
        "threads": [[tid, spent, name] for tid, (spent, name) in first],
    }


def _columns(tree: Tree, columns: dict[str, U64]) -> dict[str, Any]:
    order, starts = by_level(tree)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    rows = tree.nodes[order]
    roots = rows["parent"] < 0
    used, name = np.unique(rows["method"], return_inverse=True)
    names = [tree.names[k] for k in used.tolist()]
    return {
        "names": names,
        "root": label(tree, int(order[0])) if len(order) else "",
        "levels": starts.tolist(),
        "parent": np.where(roots, -1, place[rows["parent"]] if len(place) else -1).tolist(),
        "name": name.tolist(),
        "bci": np.where(roots, -1, rows["bci"]).tolist(),
        **{key: values[order].tolist() for key, values in columns.items()},
    }
