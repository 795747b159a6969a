"""Metrics of which bytecodes ran (`flow.statements`), by process and window: six series of each, no method by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamer.hub.hub import Hub, ProcessKey
from streamer.hub.statements import Statements

PROCESS = ("host", "pid", "window")


def finding(hub: Hub, statements: Statements) -> Callable[[], None]:
    """What `families` needs and takes a while: another thread may do it before."""
    windows = list(enumerate(hub.windows.values()))
    return statements.finding(
        (position, key) for key in hub.processes for position, seconds in windows if hub.live(key, seconds)
    )


def families(hub: Hub, keys: Iterable[ProcessKey]) -> Iterable[Metric]:
    methods = GaugeMetricFamily(
        "streamer_statement_methods",
        "Methods of which any bytecode is known to have run in the window; with flow.statements only.",
        labels=PROCESS,
    )
    bytecodes = GaugeMetricFamily(
        "streamer_statement_bytecodes",
        "Bytecodes of these methods: seen to run, concluded to have run, and those that did not, as far as is known.",
        labels=(*PROCESS, "state"),
    )
    lines = GaugeMetricFamily(
        "streamer_statement_lines",
        "Source lines of these methods: those of which a bytecode ran, and the others.",
        labels=(*PROCESS, "state"),
    )
    dropped = CounterMetricFamily(
        "streamer_statement_dropped_panes",
        "Panes of which the hub had no room to keep what ran; windows are without them.",
    )
    if hub.statements is not None:
        dropped.add_metric((), hub.statements.statistics()["statements_dropped"])
        for key in keys:
            for position, (window, seconds) in enumerate(hub.windows.items()):
                if not hub.live(key, seconds):
                    continue
                of = (key[0], str(key[1]), window)
                told = hub.statements.total(position, key)
                methods.add_metric(of, told.methods)
                for state, n in (
                    ("seen", told.seen), ("concluded", told.ran - told.seen), ("missed", told.bytecodes - told.ran)
                ):  # fmt: skip
                    bytecodes.add_metric((*of, state), n)
                for state, n in (("ran", told.hit), ("missed", told.lines - told.hit)):
                    lines.add_metric((*of, state), n)
    yield from (methods, bytecodes, lines, dropped)
