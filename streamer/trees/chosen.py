"""The tree that a command's source and options choose (`streamer.trees.options`)."""

from __future__ import annotations

import click

from stages.cct.tree import Tree, thread_name
from stages.cct.views import View
from streamer.cli import Failure
from streamer.client import fetch_tree
from streamer.hub.text import plain
from streamer.trees import source as sources
from streamer.trees.file import CctFileError, Saved, unpacked
from streamer.trees.options import LIVE

LISTED = 10


def seen(saved: Saved, view: View, source: str) -> Tree:
    """What `view` leaves of a tree. Raises Failure where it leaves nothing of one in which there is something."""
    tree = view.of(saved.tree)
    if (saved.tree.nodes["parent"] >= 0).any() and not (tree.nodes["parent"] >= 0).any():
        roots = saved.tree.nodes[saved.tree.nodes["parent"] < 0]
        if not (View(threads=True, tids=view.tids, named=view.named).of(saved.tree).nodes["parent"] < 0).any():
            threads = {int(row["bci"]): thread_name(saved.tree.names[row["method"]]) for row in roots}
            known = [f"{tid} {plain(name)}".rstrip() for tid, name in sorted(threads.items())]
            told = ", ".join(known[:LISTED]) + ", …" * (len(known) > LISTED)
            raise Failure(f"{source} has no such thread; it has {told}")
        why = "a pattern is a whole name, or has a *"
        raise Failure(f"nothing of {source} is left by --include, --exclude and --thread: {why}")
    return tree


def loaded(
    source: str, url: str, window: str | None, pid: int | None, host: str | None = None, *, kept: bool = False
) -> Saved:
    """`kept`: the user keeps the tree. Raises Failure."""
    if source != LIVE and (window, pid, host) != (None, None, None):
        raise Failure(f"--window, --pid and --host choose from a running streamer (live): {source} is taken whole")
    if source == LIVE:
        try:
            return unpacked(fetch_tree(url, {"window": window, "pid": pid, "host": host}))
        except CctFileError as error:
            raise Failure(f"what answers at {url} is not a streamer of this version: {error}") from None
    return sources.load(source, lambda line: click.echo(f"streamer: {line}", err=True), kept=kept)
