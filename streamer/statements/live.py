"""Coverage and path frequencies of a running streamer."""

from __future__ import annotations

from typing import Any, NamedTuple

from streamer.cli import Failure
from streamer.client import Asked, fetch, fetch_bytes
from streamer.statements.text import Most, Sums, Taken

SECONDS = 60.0
"""For an answer: a window of many methods takes a while to put together."""
MOST_LCOV = 1 << 26
"""Bytes."""


class Which(NamedTuple):
    """The streamer, and the window and processes of it."""

    url: str
    window: str | None
    pid: int | None
    host: str | None


def coverage(which: Which, include: tuple[str, ...], below: float) -> tuple[list[Sums], dict[str, int]]:
    """As `streamer.statements.text.coverage` shows it. Raises Failure."""
    answer = _asked(which, {"include": include, "below": below}, "coverage")
    try:
        total = {name: int(value) for name, value in answer["total"].items()}
        return [Sums(**row) for row in answer["methods"]], total
    except (LookupError, TypeError, ValueError, AttributeError):
        raise _strange(which) from None


def lcov(which: Which, include: tuple[str, ...]) -> list[str]:
    """Lines of a file of lcov: 1 for what ran, 0 for the rest. Raises Failure."""
    query = {**_of(which), "include": include, "format": "lcov"}
    lines = fetch_bytes(which.url, query, "coverage", MOST_LCOV, SECONDS).decode(errors="replace").splitlines()
    if lines[:1] != ["TN:"]:
        raise _strange(which)
    return lines


def paths(which: Which, include: tuple[str, ...], top: int) -> Most:
    """Raises Failure."""
    answer = _asked(which, {"include": include, "top": top}, "paths")
    try:
        return Most([Taken(**row) for row in answer["paths"]], **answer["total"])
    except (LookupError, TypeError):
        raise _strange(which) from None


def _asked(which: Which, query: Asked, what: str) -> dict[str, Any]:
    return fetch(which.url, {**_of(which), **query}, what, SECONDS)


def _of(which: Which) -> dict[str, str | int | None]:
    return {"window": which.window, "pid": which.pid, "host": which.host}


def _strange(which: Which) -> Failure:
    return Failure(f"what answers at {which.url} is not a streamer of this version")
