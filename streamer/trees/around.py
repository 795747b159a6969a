"""Callers and callees of a method of a running streamer, as `streamer top --method` shows them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from streamer.cli import Failure
from streamer.client import fetch_tree
from streamer.hub.text import plain
from streamer.trees.file import CctFileError, unpacked
from streamer.trees.neighbours import neighbours
from streamer.trees.text import WEIGHTS, weights

SHOWN = 20
LISTED = 5


def around(url: str, window: str | None, pid: int | None, weight: str | None, method: str) -> Iterator[RenderableType]:
    """`method`: a name, or the end of the only one that ends so, as `Area.render`. Raises Failure."""
    try:
        saved = unpacked(fetch_tree(url, {"window": window, "pid": pid}))
    except CctFileError as error:
        raise Failure(f"what answers at {url} is not a streamer of this version: {error}") from None
    weight = weight if weight in WEIGHTS else "instructions"
    if method not in saved.tree.names:
        ending = sorted({name for name in saved.tree.names if name.endswith((f".{method}", f"${method}"))})
        if len(ending) > 1:
            more = ", …" if len(ending) > LISTED else ""
            raise Failure(f"{method} may be {', '.join(plain(name) for name in ending[:LISTED])}{more}: say which")
        method = ending[0] if ending else method
    found = neighbours(saved.tree, weights(saved.tree, weight, False), method)
    if found is None:
        raise Failure(f"{method} is in no calling context of this window (kept at fidelity flow, unless --no-contexts)")
    yield Text(f"{plain(method)}: {found.total:.1%} of {weight}, itself {found.own:.1%}", "bold")
    for title, rows in (("called by", found.callers), ("calls", found.callees)):
        yield Text(f"\n{title}" if rows else f"\n{title} nothing")
        for name, share in rows[:SHOWN]:
            yield Text(f"{share:7.1%}  {plain(name)}")
