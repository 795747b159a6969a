"""Metrics of call edges: the heaviest of the shortest window, and the sum of the others, so that the number of series
is bounded by processes × 4 × (exported + 1); and the four of calls between application and JDK, a process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric

from streamer.hub.edges import MATRIX, Edge
from streamer.hub.hub import Hub, ProcessKey
from streamer.hub.profile import OTHER

WEIGHTS = {"instructions": "instructions", "time": "ticks", "bytecodes": "bytecodes"}


def families(hub: Hub, keys: Iterable[ProcessKey]) -> Iterable[Metric]:
    window, seconds = next(iter(hub.windows.items()))
    process = ("host", "pid", "window")
    share = GaugeMetricFamily(
        "streamer_call_edge_share_ratio",
        "Share of the window's weight that the callee itself spent when called from the caller; the rest is `other`.",
        labels=(*process, "weight", "caller", "callee"),
    )
    calls = GaugeMetricFamily(
        "streamer_call_edge_invocations",
        "Calls of the callee by the caller in the window, as far as the trace tells; the most frequent, and `other`.",
        labels=(*process, "caller", "callee"),
    )
    matrix = GaugeMetricFamily(
        "streamer_call_matrix_invocations",
        "Calls in the window between application and JDK, told apart by package.",
        labels=(*process, "caller", "callee"),
    )
    for key in keys:
        if not hub.live(key, seconds):
            continue
        edges = hub.trees.edges.window(key)
        for (caller, callee), n in edges[MATRIX].items():
            matrix.add_metric((key[0], str(key[1]), window, caller, callee), n)
        for weight, column in WEIGHTS.items():
            total = edges[column].total()
            for (caller, callee), n in _top(edges[column], hub.config.exported) if total else ():
                share.add_metric((key[0], str(key[1]), window, weight, caller, callee), n / total)
        for (caller, callee), n in _top(edges["invocations"], hub.config.exported):
            calls.add_metric((key[0], str(key[1]), window, caller, callee), n)
    yield from (share, calls, matrix)


def _top(edges: Counter[Edge], count: int) -> list[tuple[Edge, int]]:
    """The `count` heaviest, and the sum of all others."""
    rest = edges.total()
    edges.pop((OTHER, OTHER), None)
    listed = [(edge, n) for edge, n in edges.most_common(count) if n]
    rest -= sum(n for _, n in listed)
    return [*listed, ((OTHER, OTHER), rest)] if listed or rest else []
