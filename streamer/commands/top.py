"""`streamer top`: the hot methods of a running streamer, live in a terminal."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from streamer.cli import Failure
from streamer.client import fetch
from streamer.hub.listing import SORTS, arranged
from streamer.hub.screen import room, screen
from streamer.hub.text import View
from streamer.keyboard import Keyboard
from streamer.navigation import Place, Row
from streamer.trees.weights import WEIGHTS

if TYPE_CHECKING:
    from streamer.trees.around import Around

TABLE_KEYS = "↑ ↓ choose · Enter callers and callees · w window · b share of · s sort · q quit"
AROUND_KEYS = "↑ ↓ choose · Enter goes on · ← back · w window · b share of · q quit"
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked at, whatever the place."""

    url: str
    count: int | None
    pid: int | None
    pattern: str
    lines: int | None
    """Of the terminal; None: no limit."""

    def look(self, place: Place) -> Screen:
        """Raises Failure."""
        if place.way:
            view = fetch(self.url, {"window": place.window, "top": 1, "pid": self.pid})
            found = self.around(place, place.way[-1].method)
            return Screen(view, found.rows(), lambda chosen: Group(*found.text(chosen)))
        view, rows = self._table(place)
        return Screen(
            view, rows, lambda row: render(view, self.url, partial(screen, chosen=None if row is None else row.method))
        )

    def around(self, place: Place, method: str) -> Around:
        """Raises Failure."""
        from streamer.trees.around import around  # with numba, which the table does without

        shown = SHOWN if self.lines is None else min(SHOWN, room(self.lines) // 2)
        return around(self.url, place.window, self.pid, place.spent, method, shown)

    def _table(self, place: Place) -> tuple[dict[str, Any], list[Row]]:
        every = place.sort != "share" or bool(self.pattern)
        query = {"window": place.window, "weight": place.weight, "top": 500 if every else self.count, "pid": self.pid}
        view = fetch(self.url, query)
        view["timeline"] = fetch(self.url, query | {"window": view.get("window")}, "timeline")
        try:
            fitting = len(view["methods"]) if self.lines is None else room(self.lines)
            count = self.count or (min(SHOWN, fitting) if every else fitting)
            if every or len(view["methods"]) > count:
                view = arranged(view, place.sort, self.pattern, count)
            return view, [Row("", str(method["method"])) for method in view["methods"]]
        except (LookupError, TypeError, ValueError, AttributeError):
            raise Failure(f"{self.url}: that is not from a streamer of this version") from None


@dataclass(frozen=True, slots=True)
class Screen:
    """A place as it is now: the rows that can be chosen, and the picture with one of them marked."""

    view: View
    rows: list[Row]
    draw: Callable[[Row | None], Group]


def render(view: dict[str, Any], source: str, build: Callable[[View], Iterable[RenderableType]] = screen) -> Group:
    """`build` of a view that may come from any server. Raises Failure."""
    try:
        group = Group(*build(view))
        Console(file=io.StringIO()).print(group)  # some of it is built only when it is shown
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, OSError):
        raise Failure(f"{source}: that is not from a streamer of this version") from None
    return group


@click.command()
@click.option("--url", default="http://127.0.0.1:9464", show_default=True, help="Where the streamer serves.")
@click.option(
    "--window", help="10s, 1m, 5m, … as configured, or FROM..TO, seconds since the epoch; default: the shortest."
)
@click.option(
    "--weight", help="What a share is a share of: hits, instructions, time, bytecodes; default: the fidelity's own."
)
@click.option("--top", "count", type=click.IntRange(1, 500), help="How many methods; default: as configured.")
@click.option("--pid", type=click.IntRange(0, 999_999_999), help="One process only; default: all together.")
@click.option(
    "--sort", type=click.Choice(list(SORTS)), default="share", show_default=True, help="Order of the methods."
)
@click.option(
    "--filter", "pattern", default="", metavar="PATTERN", help="Only names with this text, or with * a pattern."
)
@click.option(
    "--method", metavar="NAME", help="Callers and callees of this method (or the end of its name) instead of the table."
)
@click.option("--interval", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="Seconds.")
@click.option("--once", is_flag=True, help="Print once and exit (also when the output is no terminal).")
def command(
    url: str,
    window: str | None,
    weight: str | None,
    count: int | None,
    pid: int | None,
    sort: str,
    pattern: str,
    method: str | None,
    interval: float,
    once: bool,
) -> None:
    """Live table of the hot methods of a running streamer. Stop with Ctrl-C or q.

    Keys: up and down choose a method, Enter opens its callers and callees, of which again one can be opened; left or
    Backspace goes back. w is the next window, b the next weight, s the next order.

    `lately` is each method's share in the last minute, as high as its own highest. The bar below says what became of
    the trace: observed, shed (its addresses alone were counted, to keep up), lost, off duty (not traced, for the CPU
    budget).

    \b
    Examples:
      streamer top --sort shift                    what moved most
      streamer top --filter 'shop.*' --window 1m   methods of a package
      streamer top --method shop.Cart.total        who calls it, and what it calls
    """
    console = Console()
    live = console.is_terminal and not once
    asked = Asked(url, count, pid, pattern, console.height if live else None)
    place = Place(window, weight, sort)
    if method is not None:
        found = asked.around(replace(place, spent=weight or place.spent), method)
        if found.found is None:
            raise Failure(found.nowhere)
        place = Place(window, None, sort, spent=found.weight, way=(Row("", found.method),))
    if live:
        with suppress(KeyboardInterrupt):
            _go_about(asked, place, console, interval)
    else:
        console.print(asked.look(place).draw(None))


def _go_about(asked: Asked, place: Place, console: Console, interval: float) -> None:
    """Until q: what is there is asked for anew after each interval, and where a key asks for something else."""
    now = asked.look(place)
    due = time.monotonic() + interval
    with (
        Keyboard() as keyboard,
        Live(_framed(now, place, asked), console=console, auto_refresh=False, screen=True,
             vertical_overflow="crop") as live,
    ):  # fmt: skip
        while (key := keyboard.key(max(0.0, due - time.monotonic()))) != "q":
            before, place = place, place.after(key, now.rows, now.view, list(WEIGHTS))
            asked = replace(asked, lines=console.height)
            if not key or not place.asks_as(before):
                now = asked.look(place)
                due = time.monotonic() + interval
            live.update(_framed(now, place, asked), refresh=True)


def _framed(now: Screen, place: Place, asked: Asked) -> Group:
    told = f" · {asked.pattern}" if asked.pattern else ""
    keys = AROUND_KEYS if place.way else f"{TABLE_KEYS} · sorted by {place.sort}{told}"
    return Group(now.draw(place.chosen), Text(keys, "dim"))
