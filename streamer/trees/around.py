"""Callers and callees of a method of a running streamer, as `streamer top` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from streamer.cli import Failure
from streamer.client import fetch_tree
from streamer.hub.text import plain
from streamer.navigation import Row
from streamer.trees.file import CctFileError, unpacked
from streamer.trees.neighbours import Neighbours, neighbours
from streamer.trees.weights import WEIGHTS, weights

SHOWN = 20
LISTED = 5


@dataclass(frozen=True, slots=True)
class Around:
    method: str
    weight: str
    found: Neighbours | None  # none: it is in no context
    shown: int = SHOWN
    """Callers, and callees, that there is room for."""

    @property
    def nowhere(self) -> str:
        """Where it is in no context."""
        kept = "kept at fidelity flow, unless --no-contexts"
        return f"{plain(self.method)} is in no calling context of this window ({kept})"

    def _lists(self) -> tuple[tuple[str, tuple[tuple[str, float], ...]], ...]:
        found = self.found
        return () if found is None else (("called by", found.callers), ("calls", found.callees))

    def rows(self) -> list[Row]:
        return [Row(title, name) for title, listed in self._lists() for name, _ in listed[: self.shown]]

    def text(self, chosen: Row | None = None) -> Iterator[RenderableType]:
        """`chosen`: a row that is marked."""
        if self.found is None:
            yield Text(self.nowhere)
            return
        yield Text(
            f"{plain(self.method)}: {self.found.total:.1%} of {self.weight}, itself {self.found.own:.1%}", "bold"
        )
        for title, listed in self._lists():
            yield Text(f"\n{title}" if listed else f"\n{title} nothing")
            for name, share in listed[: self.shown]:
                style = "reverse" if chosen == Row(title, name) else ""
                yield Text(f"{share:7.1%}  {plain(name)}", style, no_wrap=True, overflow="ellipsis")
            if more := listed[self.shown :]:
                yield Text(f"{sum(share for _, share in more):7.1%}  {len(more)} more", "dim")


def around(
    url: str, window: str | None, pid: int | None, weight: str | None, method: str, shown: int = SHOWN
) -> Around:
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
    return Around(method, weight, neighbours(saved.tree, weights(saved.tree, weight, False), method), shown)
