"""The live table of hot methods, of `streamer top` and of a run alike, as wide as the terminal is.

The method is the answer to the user's question, so its column stays. Where the others leave it too little room, they go
one after the other: the bar, the invocations, how the method ran, the shift.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from streamer.hub.text import (
    BAR,
    View,
    bar,
    headline,
    holes_line,
    invocations_text,
    kinds_text,
    loss_line,
    plain,
    share_text,
    shift_text,
)

LEAST_METHOD = 32
"""Characters that the method's column has, unless all names are shorter or it stands alone with the share."""
DROPPED = ("bar", "invocations", "ran as", "shift")
_GAP = 2  # characters between two columns


@dataclass(frozen=True, slots=True)
class MethodsTable:
    """`view`: the JSON form of a hot-method view (`HotView.json`)."""

    view: View
    shifts: bool = True

    def _columns(self) -> dict[str, list[Text]]:
        """Cells by column, in order; those of `other` last."""
        methods, other = self.view["methods"], float(self.view["other"])
        largest = max([other, *(m["share"] for m in methods)])
        columns = {
            "share": [Text(share_text(m)) for m in methods],
            "bar": [Text(bar(m["share"], largest), "blue") for m in methods],
            "shift": [shift_text(m) for m in methods] if self.shifts else [],
            "method": [Text(plain(m["method"])) for m in methods],
            "ran as": [Text(kinds_text(m["kinds"])) for m in methods],
            "invocations": [Text(invocations_text(m)) for m in methods],
        }
        if not self.shifts:
            del columns["shift"]
        if not any(m["invocations"] != 0 for m in methods):
            del columns["invocations"]
        if other:
            last = {"share": f"{other:.1%}", "bar": bar(other, largest), "method": "other"}
            for name, cells in columns.items():
                cells.append(Text(last.get(name, ""), "dim"))
        return columns

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
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for name in columns:
            match name:
                case "method":
                    table.add_column(name, overflow="fold")
                case "bar":
                    table.add_column("", no_wrap=True, min_width=BAR, max_width=BAR)
                case _:
                    table.add_column(name, justify="left" if name == "ran as" else "right", no_wrap=True)
        for row in zip(*columns.values(), strict=True):
            table.add_row(*row)
        yield table


def screen(view: View) -> list[RenderableType]:
    """The live view: a line on the pipeline, the hot methods, how much of the trace was seen."""
    holes = holes_line(view)
    parts: list[RenderableType] = [Text(headline(view), "bold"), MethodsTable(view), Text(loss_line(view["coverage"]))]
    return [*parts, *([Text(holes, "dim")] if holes else [])]
