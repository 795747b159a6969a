"""A hot-method view as text: what `streamer top` shows live and the summary prints at the end.

Takes the JSON form (`HotView.json`), because `streamer top` has it from another process. Names come from the traced
program: they are shown as text, without markup or control characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

View = Mapping[str, Any]

KIND_WORDS = {
    "interpreted": "interpreter",
    "c1": "C1",
    "c2": "C2",
    "native_wrapper": "native",
    "stub": "stub",
    "unknown": "?",
}
UNUSUAL_SCORE = 4.0
BAR = 12


def plain(text: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(text))


def bytes_text(count: float) -> str:
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def percent_down(part: int, whole: int) -> str:
    """In tenths of a percent, rounded down: 100.0 % is said of all only."""
    tenths = 1000 * part // whole
    return f"{tenths // 10}.{tenths % 10} %"


def loss_line(coverage: View) -> str:
    """`98.2 % of 10.0 MB of trace decoded; lost: 120.0 kB desync, …`."""
    size, decoded = int(coverage["bytes"]), int(coverage["decoded"])
    if not size:
        return "no trace bytes"
    lost = sorted(coverage["lost"].items(), key=lambda item: -item[1])
    parts = ", ".join(f"{bytes_text(n)} {words(cause)}" for cause, n in lost)
    return f"{percent_down(decoded, size)} of {bytes_text(size)} of trace decoded; " + (
        f"lost: {parts}" if lost else "nothing lost"
    )


def holes_line(view: View) -> str | None:
    """How many holes of each cause, and what is known to be lost outside the streams; None if there is nothing."""
    parts = [f"{n:,} × {words(cause)}" for cause, n in view["holes"].items()]
    parts += [f"{bytes_text(n)} never written ({words(cause)})" for cause, n in view["unwritten"].items()]
    return f"holes since the start: {', '.join(parts)}" if parts else None


def words(cause: str) -> str:
    return plain(cause).replace("_", " ")


def bar(share: float, largest: float, width: int = BAR) -> str:
    """A bar of eighths of a character, as long as `share` is of `largest`."""
    eighths = round(8 * width * share / largest) if largest else 0
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def shift_text(method: View) -> Text:
    """▲ or ▼ with percentage points, the last short window against the reference before it; bold if unusual."""
    points = 100 * (method["now"] - method["before"])
    if abs(points) < 0.5:
        return Text("")
    style = ("red" if points > 0 else "green") + (" bold" if method["moved"] else "")
    return Text(f"{'▲' if points > 0 else '▼'} {points:+.1f}".replace("-", "−"), style)


def kinds_text(kinds: Mapping[str, float]) -> str:
    parts = sorted(((share, KIND_WORDS.get(kind, plain(kind))) for kind, share in kinds.items()), reverse=True)
    return ", ".join(name if share > 0.99 else f"{name} {share:.0%}" for share, name in parts if share >= 0.01)


def methods_table(view: View, *, shifts: bool = True) -> Table:
    invocations = any(m["invocations"] for m in view["methods"])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=BAR, max_width=BAR)
    if shifts:
        table.add_column("shift", justify="right", no_wrap=True)
    table.add_column("method", overflow="fold")
    table.add_column("ran as", no_wrap=True)
    if invocations:
        table.add_column("invocations", justify="right", no_wrap=True)
    largest = max([view["other"], *(m["share"] for m in view["methods"])])
    for m in view["methods"]:
        cells: list[str | Text] = [Text(f"{m['share']:.1%}"), Text(bar(m["share"], largest), "blue")]
        cells += [shift_text(m)] if shifts else []
        cells += [Text(plain(m["method"])), Text(kinds_text(m["kinds"]))]
        table.add_row(*cells, *([Text(f"{m['invocations']:,}")] if invocations else []))
    if view["other"]:
        cells = [Text(f"{view['other']:.1%}"), Text(bar(view["other"], largest)), *([Text("")] if shifts else [])]
        table.add_row(*cells, Text("other"), style="dim")
    return table


def screen(view: View) -> list[RenderableType]:
    """The live view, of `streamer top` and of a run alike."""
    holes = holes_line(view)
    parts: list[RenderableType] = [Text(headline(view), "bold"), methods_table(view), Text(loss_line(view["coverage"]))]
    return [*parts, *([Text(holes, "dim")] if holes else [])]


def headline(view: View) -> str:
    """One line on the pipeline: window, weight, processes, lag, shift, what is down."""
    live = [p for p in view["processes"] if p["live"]]
    parts = [f"last {plain(view['window'])}", f"share of {plain(view['weight'])}"]
    parts.append(f"{len(live)} process{'' if len(live) == 1 else 'es'}")
    lags = [p["lag_seconds"] for p in live if p["lag_seconds"] is not None]
    if lags:
        parts.append(f"lag {max(lags):.1f} s")
    shifted = [(p["shift_distance"], p["shift_score"]) for p in live if p["shift_distance"] is not None]
    if shifted:
        distance, score = max(shifted)
        parts.append(f"shift {distance:.0%}{' (unusual)' if score >= UNUSUAL_SCORE else ''}")
    if view["restarts"]:
        parts.append(f"{view['restarts']} restart{'' if view['restarts'] == 1 else 's'}")
    parts += [f"{plain(name)} is down" for name in view["down"]]
    return " · ".join(parts)
