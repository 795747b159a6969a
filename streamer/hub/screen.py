"""The live table of hot methods, of `streamer top` and of a run alike, as wide as the terminal is.

The method is the answer to the user's question, so its column stays. Where the others leave it too little room, they go
one after the other: the bar, the bytecodes, the invocations, how the method ran, its last minute, the shift. Then its
name is made short (`streamer.hub.text.short`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from streamer.hub.text import (
    BAR,
    TOO_EARLY,
    View,
    bar,
    bytecodes_text,
    fate_bar,
    headline,
    holes_line,
    invocations_text,
    kinds_text,
    loss_line,
    plain,
    share_text,
    shift_text,
    short,
    spark,
    too_early,
)
from streamer.hub.view import LATELY_SECONDS

LEAST_METHOD = 32
"""Characters that the method's column has, unless all names are shorter or it stands alone with the share."""
DROPPED = ("bar", "bytecodes", "invocations", "ran as", "lately", "shift")
SPARK = 12
"""Characters of a sparkline: five panes each."""
FATE = 24
"""Characters of the bar of what became of the trace."""
ROOMY = 110
FRAME = 15
"""Lines of the screen that are no methods, on a narrow terminal."""
LEAST = 3
"""Methods that are shown on a terminal of any height."""
_GAP = 2  # characters between two columns
_EDGES = 2  # characters before the first and behind the last


@dataclass(frozen=True, slots=True)
class MethodsTable:
    """`view`: the JSON form of a hot-method view (`HotView.json`); in `timeline` perhaps that of its methods' timeline
    (`streamer.hub.timeline`)."""

    view: View
    shifts: bool = True
    chosen: str | None = None
    """A method whose row is marked."""

    def _columns(self) -> dict[str, list[Text]]:
        """Cells by column, in order; those of `other` last."""
        methods, other = self.view["methods"], float(self.view["other"])
        largest = max([other, *(m["share"] for m in methods)])
        columns = {
            "share": [Text(share_text(m)) for m in methods],
            "bar": [Text(bar(m["share"], largest), "blue") for m in methods],
            "shift": [shift_text(m) for m in methods] if self.shifts else [],
            "lately": self._lately(),
            "method": [Text(plain(m["method"])) for m in methods],
            "ran as": [Text(kinds_text(m["kinds"])) for m in methods],
            "invocations": [Text(invocations_text(m)) for m in methods],
            "bytecodes": [Text(bytecodes_text(m)) for m in methods],
        }
        if not self.shifts:
            del columns["shift"]
        if "timeline" not in self.view:
            del columns["lately"]
        if not any(m["invocations"] != 0 for m in methods):
            del columns["invocations"]
        if not any(m["bytecodes"] for m in methods):
            del columns["bytecodes"]
        if other:
            last = {"share": f"{other:.1%}", "bar": bar(other, largest), "method": "other"}
            for name, cells in columns.items():
                cells.append(Text(last.get(name, ""), "dim"))
        return columns

    def _lately(self) -> list[Text]:
        """Each method's share of the last minute's panes."""
        timeline = self.view.get("timeline")
        if timeline is None:
            return []
        panes = max(1, round(LATELY_SECONDS / timeline["seconds"]))
        totals = timeline["total"][-panes:]
        weights = {band["method"]: band["weights"][-panes:] for band in timeline["bands"]}
        shares = {
            name: [w / total if total else 0.0 for w, total in zip(of, totals, strict=True)]
            for name, of in weights.items()
        }
        return [Text(spark(shares.get(m["method"], []), SPARK), "cyan") for m in self.view["methods"]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self._columns()
        width = {
            name: max(map(cell_len, ["" if name == "bar" else name, *(c.plain for c in columns[name])]))
            for name in columns
        }
        width["bar"] = BAR
        width["method"] = min(width["method"], LEAST_METHOD)
        for name in DROPPED:
            if sum(width[c] + _GAP for c in columns) - _GAP <= options.max_width:
                break
            columns.pop(name, None)
        room = options.max_width - _EDGES - sum(width[c] + _GAP for c in columns if c != "method")
        columns["method"] = [Text(short(cell.plain, room), cell.style) for cell in columns["method"]]
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name in columns:
            match name:
                case "method" | "lately":
                    table.add_column(name, no_wrap=True)
                case "bar":
                    table.add_column("", no_wrap=True, min_width=BAR, max_width=BAR)
                case _:
                    table.add_column(name, justify="left" if name == "ran as" else "right", no_wrap=True)
        names = [m["method"] for m in self.view["methods"]]
        for row, name in zip_longest(zip(*columns.values(), strict=True), names):
            table.add_row(*row, style="reverse" if name is not None and name == self.chosen else None)
        yield table
        if any(map(too_early, self.view["methods"])):
            yield Text(TOO_EARLY, "dim")


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of the trace, as a bar and in words."""

    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield fate_bar(self.view, FATE if options.max_width >= ROOMY else FATE // 2)
        yield Text(loss_line(self.view["coverage"]))


def room(lines: int) -> int:
    """Methods that are whole on a terminal of so many lines, with all that stands around them."""
    return max(LEAST, lines - FRAME)


def screen(view: View, chosen: str | None = None) -> list[RenderableType]:
    """The live view: a line on the pipeline, the hot methods (`chosen` is marked), how much of the trace was seen."""
    holes = holes_line(view)
    parts: list[RenderableType] = [Text(headline(view), "bold"), MethodsTable(view, chosen=chosen), Fate(view)]
    return [*parts, *([Text(holes, "dim")] if holes else [])]
