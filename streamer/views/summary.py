"""The summary at exit of `run` and `replay`: the hot methods of the whole run, and how much of it was seen."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from streamer.hub.edges import SIDES
from streamer.hub.hub import Hub
from streamer.hub.ledger import Balance
from streamer.hub.screen import MethodsTable
from streamer.hub.text import bytes_text, contradictions_line, holes_line, loss_line
from streamer.hub.view import CAUSES
from streamer.views.matrix import cells

WIDTH = 120


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of the pipeline by group of processes, in `seconds` of a run; `budget` in CPUs, None without one.
    Of a member that died, those of its last incarnation."""

    spent: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    budget: float | None = None

    def line(self) -> str | None:
        """None: nothing is known of it."""
        total = sum(self.spent.values())
        if not total or self.seconds <= 0:
            return None

        heaviest = sorted(self.spent.items(), key=lambda item: (-item[1], item[0]))
        parts = ", ".join(f"{name} {seconds:.1f} s ({seconds / self.seconds:.1%})" for name, seconds in heaviest)
        line = f"CPU of the pipeline: {total:.1f} s ({total / self.seconds:.1%} of a core): {parts}"
        if self.budget is None:
            return line
        return f"{line}; the budget is {self.budget:.1%} of a core, from when kernels are ready"


def duration(seconds: float) -> str:
    """1.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def render(
    hub: Hub, balances: Iterable[Balance] = (), *, top: int | None = None, color: bool = False, cost: Cost | None = None
) -> str:
    """The text, ending in a newline. `balances` as `Hub.finish` returned them: whether the books balance is said
    of them; without any it is not said. Never raises for an empty run."""
    view = hub.hot(top=top, whole_run=True).json()
    balances = list(balances)
    head = f"{duration(view['seconds'])}, {len(view['processes'])} process{'' if len(view['processes']) == 1 else 'es'}"
    head += f", {sum(p['panes'] for p in view['processes']):,} panes"
    if view["total"]:
        unit = "ticks" if view["weight"] == "time" else view["weight"]
        head += f", {view['total']:,} {unit} (fidelity {view['fidelity']})"
    parts: list[RenderableType] = [Text(f"Run: {head}", "bold")]
    if view["methods"]:
        parts.append(MethodsTable(view, shifts=False))
    else:
        parts.append(Text("No method was seen."))
    if calls := matrix_line(hub):
        parts.append(Text(calls))
    if view["duty"] < 1:
        parts.append(
            Text(
                f"{view['duty']:.1%} of the time traced: counts stand for about {1 / max(view['duty'], 1e-3):.3g} times"
            )
        )
    parts.append(Text(loss_line(view["run"])))
    holes = holes_line(view)
    if holes:
        parts.append(Text(holes))
    contradictions = contradictions_line(hub.contradictions(1).json())
    if contradictions:
        parts.append(Text(contradictions))
    if balances:
        parts.append(Text(_balance_line(balances)))
    if cost is not None and (spent := cost.line()):
        parts.append(Text(spent))
    restarts = {name: n for name, s in sorted(hub.components.items()) if (n := int(s.get("restarts", 0)))}
    listed = ", ".join(f"{name} × {n}" for name, n in restarts.items())
    parts.append(Text(f"restarts: {listed or 'none'}"))
    if lost := lost_output(hub):
        listed = ", ".join(f"{bytes_text(size)} of {name.replace('/', ' (')})" for name, size in lost.items())
        parts.append(Text(f"output lost: {listed}"))
    late = sum(p["late"] for p in view["processes"])
    if late:
        parts.append(Text(f"late reports: {late:,} (counted in the run)"))
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=color, color_system="standard" if color else None)
    console.print(Group(*parts))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def matrix_line(hub: Hub) -> str:
    """Calls between application and JDK; empty where calling contexts were not kept, or no call was seen."""
    calls = hub.trees.edges.matrix
    whole = calls.total()
    listed = ", ".join(f"{a} → {b} {calls[a, b] / whole:.1%}" for a in SIDES for b in SIDES) if whole else ""
    return f"calls: {whole:,}: {listed}" if listed else ""


def figures(hub: Hub, balances: Iterable[Balance] = ()) -> dict[str, Any]:
    """The same for programs, JSON: `run` (a `HotView` with every method), `calls` (between application and JDK, by
    caller and callee), `contradictions` (a `ContradictionsView` with every place), `streams` (the bytes of each,
    written, decoded, shed among these, and in holes by cause; those of ended threads in one row a process, with their
    number in `streams`), `restarts` by component, `lost_output`, `delays` (`streamer_delay_seconds` of all processes:
    how many were up to each bound, in seconds; `+Inf` the last)."""
    return {
        "run": hub.hot(top=len(hub.processes) << 20, whole_run=True).json(),
        "calls": cells(hub.trees.edges.matrix),
        "contradictions": hub.contradictions(len(hub.processes) << 20).json(),
        "streams": [
            {
                "stream": list(b.stream),
                "streams": b.streams,
                "written": b.aux_head,
                "decoded": b.decoded,
                "shed": b.shed,
                "holes": {CAUSES[cause]: size for cause, size in sorted(b.holes.items()) if size},
            }
            for b in balances
        ],
        "restarts": {name: int(s.get("restarts", 0)) for name, s in sorted(hub.components.items())},
        "lost_output": lost_output(hub),
        "delays": delays(hub),
    }


def delays(hub: Hub) -> dict[str, int]:
    total: Counter[str] = Counter()
    for process in hub.processes.values():
        total.update(dict(process.delays.cumulative()))
    return dict(total)


def lost_output(hub: Hub) -> dict[str, int]:
    """Bytes that could not be written, by `output/ERRNO` (`streamer.lossy`), all processes together."""
    total: Counter[str] = Counter()
    for status in hub.components.values():
        total.update(status.get("lost_output", {}))
    return dict(sorted(total.items()))


def _balance_line(balances: list[Balance]) -> str:
    written = sum(b.aux_head for b in balances)
    decoded = sum(b.decoded for b in balances)
    holes = sum(sum(b.holes.values()) for b in balances)
    wrong = [b for b in balances if b.error]
    on = _streams(sum(b.streams for b in balances))
    line = f"written {written:,} B = decoded {decoded:,} B + in holes {holes:,} B, on {on}"
    if wrong:
        off = sum(b.error for b in wrong)
        line = f"THE BOOKS DO NOT BALANCE on {_streams(len(wrong))}, by {bytes_text(abs(off))} ({off:+,} B): " + line
    return line


def _streams(count: int) -> str:
    return f"{count} stream{'' if count == 1 else 's'}"
