"""`streamer top`: the hot methods of a running streamer, live in a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from streamer.cli import Failure
from streamer.client import fetch
from streamer.hub.listing import SORTS, arranged
from streamer.hub.screen import screen
from streamer.hub.text import View
from streamer.keyboard import Keyboard

KEYS = "w window · b share of · s sort · q quit"
SHOWN = 20


@dataclass(frozen=True, slots=True)
class Shown:
    """What is asked for, and how it is arranged."""

    window: str | None
    weight: str | None
    count: int | None
    pid: int | None
    sort: str
    pattern: str

    def view(self, url: str) -> dict[str, Any]:
        """Raises Failure."""
        every = self.sort != "share" or bool(self.pattern)
        query = {"window": self.window, "weight": self.weight, "top": 500 if every else self.count, "pid": self.pid}
        view = fetch(url, query)
        view["timeline"] = fetch(url, query | {"window": view.get("window")}, "timeline")
        if not every:
            return view
        try:
            return arranged(view, self.sort, self.pattern, self.count or SHOWN)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise Failure(f"{url}: that is not from a streamer of this version") from None

    def after(self, key: str, view: View) -> Shown:
        """What a key makes of it: the next window, weight or order."""
        match key:
            case "w":
                return replace(self, window=_next(view["windows"], view["window"]))
            case "b":
                return replace(self, weight=_next(view["weights"], view["weight"]))
            case "s":
                return replace(self, sort=_next(list(SORTS), self.sort))
        return self


def _next(values: list[str], value: str) -> str:
    return values[(values.index(value) + 1) % len(values)] if value in values else values[0]


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

    Keys: w the next window, b the next weight, s the next order. `lately` is each method's share in the last minute,
    as high as its own highest. The bar below says what became of the trace: observed, shed (its addresses alone were
    counted, to keep up), lost, off duty (not traced, for the CPU budget).

    \b
    Examples:
      streamer top --sort shift                    what moved most
      streamer top --filter 'shop.*' --window 1m   methods of a package
      streamer top --method shop.Cart.total        who calls it, and what it calls
    """
    shown = Shown(window, weight, count, pid, sort, pattern)
    console = Console()

    def drawn() -> tuple[dict[str, Any], Group]:
        if method is not None:
            from streamer.trees.around import around  # loads what trees need, which the table does not

            return {}, Group(*around(url, shown.window, shown.pid, shown.weight, method))
        view = shown.view(url)
        return view, render(view, url)

    view, group = drawn()
    if once or not console.is_terminal:
        console.print(group)
        return
    try:
        with (
            Keyboard() as keyboard,
            Live(_with_keys(group, shown), console=console, auto_refresh=False, screen=True,
                 vertical_overflow="crop") as live,
        ):  # fmt: skip
            while True:
                key = keyboard.key(interval)
                if key == "q":
                    return
                if key and method is None:
                    shown = shown.after(key, view)
                view, group = drawn()
                live.update(_with_keys(group, shown), refresh=True)
    except KeyboardInterrupt:
        return


def _with_keys(group: Group, shown: Shown) -> Group:
    return Group(group, Text(f"{KEYS} · sorted by {shown.sort}" + (f" · {shown.pattern}" * bool(shown.pattern)), "dim"))
