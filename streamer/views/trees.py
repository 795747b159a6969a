"""Calling-context trees over HTTP: /api/cct, the file (docs/cct.md), /api/flame, as the page draws it, and /api/export.

The hub is used from one thread, and a tree of a window may have a million nodes: trees are merged, cut and written in a
worker thread, of parts that nobody changes any more. Not more than `AT_ONCE` at a time, so that many readers cannot
take the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stages.cct.merging import inclusive, merged
from stages.cct.tree import EMPTY, Tree
from stages.cct.views import View
from streamer.exports.formats import FORMATS, Export
from streamer.hub.hub import Hub
from streamer.hub.kept import Which
from streamer.trees import flame
from streamer.trees.file import Saved, packed, unpacked
from streamer.trees.levels import pruned
from streamer.trees.weights import WEIGHTS, weights
from streamer.views import query as ask
from streamer.views.query import HEADERS, Query

T = TypeVar("T")
AT_ONCE = 2
MOST_FRAMES = 200_000
POST_SECONDS = 20.0
MOST_POSTED = 32 << 20
MOST_PLAIN = 128 << 20
"""Bytes of a file to be compared with, packed and not."""
FILE = "application/octet-stream"
BEFORE = "before"
NO_TREES = "No calling contexts in this window: a run keeps them at fidelity flow, unless --no-contexts."
NOT_FLOW = "Fidelity ip keeps no calling contexts: run with --fidelity flow."

NOT_KEPT = "No calling contexts are kept of that time: select another in the timeline, or the newest."


class Trees:
    """What the handlers have in common."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._limit, self._posting = trio.CapacityLimiter(AT_ONCE), trio.CapacityLimiter(AT_ONCE)

    async def in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._limit)

    def parts(self, query: Query, window: str = "window") -> tuple[list[Tree], float]:
        """Of the query's window and process. Raises ValueError."""
        return self._hub.tree_parts(query.get(window) or None, ask.processes(self._hub, query))

    async def cct(self, request: Request) -> Response:
        query = request.query_params
        process = ask.processes(self._hub, query)
        (parts, hz), wanted = self.parts(query), _wanted(query)

        def body() -> bytes:
            tree = merged(parts) if parts else EMPTY
            total = inclusive(tree, weights(tree, wanted.weight, wanted.observed))
            tree = pruned(tree, total, wanted.share, len(total)) if wanted.share else tree
            return packed(Saved(tree, hz, *_of(process)))

        return Response(await self.in_thread(body), media_type=FILE, headers=HEADERS)

    async def flame(self, request: Request) -> Response:
        query = request.query_params
        wanted = _wanted(query)
        window, base = self.parts(query), self._base(query)
        about = {name: list(of) for name in ("window", "base") if (of := self._stretch(query, name)) is not None}
        posted = await self._posted(request) if request.method == "POST" else None
        answer = await self.in_thread(partial(_flame, window, base, posted, wanted, self._why(query)))
        return JSONResponse(answer | {"stretches": about}, headers=HEADERS)

    def _why(self, query: Query) -> str:
        """Why there may be no tree: what the page waits for, and since when, or what would have to be done."""
        if self._hub.fidelity != "flow":
            return NOT_FLOW
        if not isinstance(self._hub.chosen(query.get("window") or None), int):
            return NOT_KEPT
        reasons = self._hub.ready()
        if self._hub.trees.fed or not reasons:
            return NO_TREES
        return f"Waiting for the first calling contexts, since {self._hub.seconds():.0f} s: {'; '.join(reasons)}."

    def _stretch(self, query: Query, name: str) -> tuple[float, float] | None:
        """The time of which the trees of a stretch are, where a stretch is asked for, and something is kept of it."""
        asked = self._hub.chosen(query.get(name) or None) if query.get(name) != BEFORE else 0
        if isinstance(asked, int):
            return None
        told = self._hub.tree_stretch(asked, ask.processes(self._hub, query))
        return (told.begin, told.end) if told.seconds > 0 else None

    async def _posted(self, request: Request) -> bytes:
        """A file's bytes. They change nothing here; a page from elsewhere cannot send this type without being asked
        first, and is not let (Fetch, "CORS-safelisted request-header"). Of few clients at once and not for long: the
        part that has come is held. Raises ValueError."""
        if request.headers.get("content-type") != FILE:
            raise ValueError(f"a file to compare with is sent as {FILE}")
        async with self._posting:
            with trio.move_on_after(POST_SECONDS):
                return await ask.body(
                    request, MOST_POSTED, f"a file to compare with has at most {MOST_POSTED >> 20} MiB"
                )
        raise ValueError(f"the file to compare with did not come within {POST_SECONDS:.0f} s")

    def _base(self, query: Query) -> tuple[list[Tree], float] | None:
        """`before`: the time that a shift is measured against, of a young process nothing; else a window."""
        if query.get("base") != BEFORE:
            return self.parts(query, "base") if query.get("base") else None
        parts = self._hub.shift_parts(ask.processes(self._hub, query))
        return parts[0] if parts is not None else [], self.parts(query)[1]

    async def export(self, request: Request) -> Response:
        query = request.query_params
        process, threads = ask.processes(self._hub, query), ask.one_of(query, "threads", ("0", "1", "names"))
        (parts, hz), wanted = self.parts(query), _wanted(query)
        kind = FORMATS[ask.one_of(query, "format", tuple(FORMATS))]
        if kind.experimental and not ask.flag(query, "experimental"):
            raise ValueError("this format is experimental and may change: ask for it with experimental=1 too")
        view = View(
            threads=threads == "1", by_name=threads == "names",
            tids=() if wanted.thread is None else (wanted.thread,), named=_listed(query.get("thread_name")),
        )  # fmt: skip

        def body() -> bytes:
            saved = Saved(merged(parts) if parts else EMPTY, hz, *_of(process))
            return kind.write(Export(saved, view, wanted.weight, wanted.observed, wanted.share))

        as_file = {"Content-Disposition": f'attachment; filename="profile{kind.suffix}"'}
        return Response(await self.in_thread(body), media_type=kind.media_type, headers=HEADERS | as_file)

    def routes(self) -> list[Route]:
        return [
            Route("/api/cct", ask.answered(self.cct)),
            Route("/api/export", ask.answered(self.export)),
            Route("/api/flame", ask.answered(self.flame), methods=["GET", "POST"]),
        ]


def _of(which: Which) -> tuple[str, int]:
    return which if isinstance(which, tuple) else (which or "", 0)


def _listed(name: str | None) -> tuple[str, ...]:
    return (name,) if name else ()


def _flame(
    window: tuple[list[Tree], float], base: tuple[list[Tree], float] | None, posted: bytes | None, wanted: flame.Wanted,
    why: str,
) -> dict[str, object]:  # fmt: skip
    tree = merged(window[0]) if window[0] else EMPTY
    if posted is not None:
        saved = unpacked(posted, MOST_PLAIN)
        answer = flame.difference(tree, saved.tree, wanted, window[1], saved.hz)
    elif base is not None:
        answer = flame.difference(tree, merged(base[0]) if base[0] else EMPTY, wanted, window[1], base[1])
    else:
        answer = flame.flame(tree, wanted, window[1])
    return answer if len(tree.nodes) else answer | {"why": why}


def _wanted(query: Query) -> flame.Wanted:
    most = ask.integer(query, "most")
    return flame.Wanted(
        ask.one_of(query, "weight", tuple(WEIGHTS)), ask.flag(query, "observed"), ask.integer(query, "thread"),
        ask.share(query, "min_share"), flame.MOST if most is None else max(1, min(most, MOST_FRAMES)),
    )  # fmt: skip
