"""Metrics of the pipeline's own parts: what passes through them, waits in them and is kept by them, as their last
heartbeat told (`Hub.heartbeat`). Counters begin anew with a part that was started again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from streamer.hub.hub import Hub

_TABLES = {
    "cct_nodes": "contexts", "cct_activations": "activations", "cct_steps": "context steps", "code_versions": "code",
    "code_methods": "methods", "flow_blocks": "blocks", "flow_paths": "paths", "flow_windows": "windows",
    "segment_threads": "threads", "decode_streams": "streams",
}  # fmt: skip
"""By the name in the stages' statistics."""
_GAUGES = {
    "follow_behind_seconds": ("streamer_behind_seconds", "Age of the trace that flow took up last."),
    "budget_cpus": ("streamer_budget_cpus", "CPU budget of the whole pipeline, in CPUs."),
    "spent_cpus": ("streamer_spent_cpus", "What the whole pipeline spent in the last seconds, in CPUs."),
    "duty_share": ("streamer_duty_ratio", "Part of the time that capture traces, to keep to the budget."),
}
_QUEUES = {"backlog_bytes": "rings", "ready_held_bytes": "code"}


def families(hub: Hub) -> Iterable[Metric]:
    component, queue = ("component",), ("component", "queue")
    waiting = GaugeMetricFamily(
        "streamer_queue_bytes",
        "Trace that waits: in rings to be drained, or for the code that it ran in.",
        labels=queue,
    )
    steps = CounterMetricFamily("streamer_steps", "Steps of work done.", labels=component)
    passed = CounterMetricFamily("streamer_messages", "Messages that it received or sent.", labels=(*component, "way"))
    sizes = CounterMetricFamily(
        "streamer_message_bytes", "Bytes of the messages that it received or sent.", labels=(*component, "way")
    )
    dropped = CounterMetricFamily(
        "streamer_dropped_messages", "Messages that it could not send: their trace is a hole.", labels=component
    )
    followed = CounterMetricFamily(
        "streamer_followed_bytes", "Trace followed, by table a window at a time or branch by branch.",
        labels=(*component, "by"),
    )  # fmt: skip
    misses = CounterMetricFamily(
        "streamer_table_misses", "Times that flow met bytes for the first time, and followed them slowly.",
        labels=component,
    )  # fmt: skip
    entries = GaugeMetricFamily("streamer_table_entries", "Entries of a table.", labels=(*component, "table"))
    pushes = CounterMetricFamily(
        "streamer_pushes", "Profiles sent to a Pyroscope server, by outcome; retried: pushes.", labels=("outcome",)
    )
    gauges = {key: GaugeMetricFamily(name, why, labels=component) for key, (name, why) in _GAUGES.items()}
    for name, status in sorted(hub.components.items()):
        told: Mapping[str, Any] = status.get("statistics", {})
        stages = told.get("stages", {})
        for key, label in _QUEUES.items():
            if key in stages:
                waiting.add_metric((name, label), float(stages[key]))
        if "steps" in told:
            steps.add_metric((name,), float(told["steps"]))
        for way, numbers, key in (("in", told.get("input", {}), "received"), ("out", told.get("output", {}), "sent")):
            if key in numbers:
                passed.add_metric((name, way), float(numbers[key]))
                sizes.add_metric((name, way), float(numbers[f"{key}_bytes"]))
        if "dropped" in (output := told.get("output", {})):
            dropped.add_metric((name,), float(output["dropped"]) + float(output["refused"]))
        if "flow_window_bytes" in stages:
            followed.add_metric((name, "window"), float(stages["flow_window_bytes"]))
            followed.add_metric((name, "branch"), float(stages["flow_bytes"]) - float(stages["flow_window_bytes"]))
            misses.add_metric((name,), float(stages["flow_misses"]))
        for key, label in _TABLES.items():
            if key in stages:
                entries.add_metric((name, label), float(stages[key]))
        for outcome in ("sent", "failed", "retried"):
            if f"push_{outcome}" in stages:
                pushes.add_metric((outcome,), float(stages[f"push_{outcome}"]))
        for key, gauge in gauges.items():
            if key in stages:
                gauge.add_metric((name,), float(stages[key]))
    entries.add_metric(("hub", "trees"), float(hub.trees.statistics()["tree_nodes"]))
    yield from (waiting, steps, passed, sizes, dropped, followed, misses, entries, pushes, *gauges.values())
