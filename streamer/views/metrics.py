"""The metrics that Prometheus scrapes (docs/metrics.md lists them).

A custom collector: the client library keeps a labelled child for ever, and here methods come and go. A scrape gets
exactly the top methods of each window and `other`, so the number of series is bounded by
processes × windows × (weights + 1) × (exported + 1), invocations included. Counters are the hub's own sums and never go
back.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import version

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry

from streamer.hub import contradictions
from streamer.hub.hub import Hub, ProcessKey
from streamer.hub.invoked import most_invoked
from streamer.hub.profile import OTHER
from streamer.hub.view import CAUSES
from streamer.views import edge_metrics, pipeline_metrics, statement_metrics

PROCESS = ("host", "pid")
KEEP_SECONDS = 3600.0
"""A process that reported nothing for so long is no longer exported. Its windows are empty long before."""


class HubCollector(Collector):
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def collect(self) -> Iterable[Metric]:
        hub = self._hub
        hub.poll()
        yield InfoMetricFamily(
            "streamer_build",
            "Version of the streamer and of the Python it runs on.",
            value={"version": version("jvm-trace-streamer"), "python": platform.python_version()},
        )
        keys = [key for key in hub.processes if hub.live(key, KEEP_SECONDS)]
        yield from self._windows(keys)
        yield from self._bytes(keys)
        yield from self._contradictions(keys)
        yield from self._state(keys)
        yield from self._movers(keys)
        yield from edge_metrics.families(hub, keys)
        yield from statement_metrics.families(hub, keys)
        yield from self._components()
        yield from pipeline_metrics.families(hub)

    def _windows(self, keys: list[ProcessKey]) -> Iterable[Metric]:
        hub = self._hub
        share = GaugeMetricFamily(
            "streamer_method_share_ratio",
            "Share of the window's weight that was observed in the method; what is not among the top is `other`.",
            labels=(*PROCESS, "window", "weight", "method"),
        )
        sure = GaugeMetricFamily(
            "streamer_method_share_halfwidth_ratio",
            "Half of the 95 % interval of the method's share, where only a part of the time was traced.",
            labels=(*PROCESS, "window", "weight", "method"),
        )
        duty = GaugeMetricFamily(
            "streamer_window_duty_ratio",
            "Part of the window's time in which the process was traced: 1 without a CPU budget.",
            labels=(*PROCESS, "window"),
        )
        invocations = GaugeMetricFamily(
            "streamer_method_invocations",
            "Invocations in the window, of the methods with the most that the trace tells of; fidelity flow only.",
            labels=(*PROCESS, "window", "method"),
        )
        at_least = GaugeMetricFamily(
            "streamer_method_invocations_at_least",
            "Lower bound of the method's invocations in the window, where some leave no packet; fidelity flow only.",
            labels=(*PROCESS, "window", "method"),
        )
        weight = GaugeMetricFamily(
            "streamer_window_weight",
            "What the shares of the window are shares of: hits, instructions, or TSC ticks for weight `time`.",
            labels=(*PROCESS, "window", "weight"),
        )
        decoded = GaugeMetricFamily(
            "streamer_window_decoded_ratio",
            "Share of the window's trace bytes that was decoded.",
            labels=(*PROCESS, "window"),
        )
        shed = GaugeMetricFamily(
            "streamer_window_shed_ratio",
            "Share of the window's decoded bytes that was not followed: only addresses in it were read; flow only.",
            labels=(*PROCESS, "window"),
        )
        recovered = GaugeMetricFamily(
            "streamer_window_recovered_ratio",
            "What holes were filled with, against that and all that was observed, which alone has shares; flow only.",
            labels=(*PROCESS, "window", "weight"),
        )
        guessed = GaugeMetricFamily(
            "streamer_window_guessed_ratio",
            "What was guessed of holes that nothing filled, against that and all that was observed; flow only.",
            labels=(*PROCESS, "window", "weight"),
        )
        for key in keys:
            process = (key[0], str(key[1]))
            for window, seconds in hub.windows.items():
                if not hub.live(key, seconds):
                    continue
                for name in hub.weights:
                    view = hub.hot(window, hub.config.exported, name, key)
                    weight.add_metric((*process, window, name), view.total)
                    if hub.fidelity == "flow" and view.total:
                        for family, n in ((recovered, view.recovered), (guessed, view.guessed)):
                            family.add_metric((*process, window, name), n / (view.total + n))
                    for method in view.methods:
                        share.add_metric((*process, window, name, method.method), method.share)
                        if view.duty < 1:
                            sure.add_metric((*process, window, name, method.method), method.sure)
                    if view.total:
                        share.add_metric((*process, window, name, OTHER), view.other)
                    if name == hub.weights[0]:
                        duty.add_metric((*process, window), view.duty)
                        if view.coverage.ratio is not None:
                            decoded.add_metric((*process, window), view.coverage.ratio)
                        if hub.fidelity == "flow" and view.coverage.shed_ratio is not None:
                            shed.add_metric((*process, window), view.coverage.shed_ratio)
                chosen, most = hub.window(window), hub.config.exported
                for invoked in most_invoked(hub, key, chosen, most) if hub.fidelity == "flow" else ():
                    family = at_least if invoked.at_least else invocations
                    family.add_metric((*process, window, invoked.method), invoked.invocations)
        yield from (share, sure, duty, invocations, at_least, weight, decoded, shed, recovered, guessed)

    def _bytes(self, keys: list[ProcessKey]) -> Iterable[Metric]:
        trace = CounterMetricFamily(
            "streamer_trace_bytes",
            "Trace bytes accounted for: decoded and lost ones together.",
            labels=PROCESS,
        )
        decoded = CounterMetricFamily("streamer_decoded_bytes", "Trace bytes decoded.", labels=PROCESS)
        shed = CounterMetricFamily(
            "streamer_shed_bytes",
            "Of the decoded trace bytes, those that were not followed, to keep up: only addresses in them were read.",
            labels=PROCESS,
        )
        lost = CounterMetricFamily(
            "streamer_lost_bytes", "Trace bytes that lie in holes, by cause.", labels=(*PROCESS, "cause")
        )
        holes = CounterMetricFamily("streamer_holes", "Holes in the trace, by cause.", labels=(*PROCESS, "cause"))
        unwritten = CounterMetricFamily(
            "streamer_unwritten_bytes",
            "Trace bytes lost before they were written to a stream, by cause, as far as the source knows.",
            labels=(*PROCESS, "cause"),
        )
        overlaps = CounterMetricFamily(
            "streamer_overlap_bytes", "Trace bytes accounted for a second time (and counted once).", labels=PROCESS
        )
        malformed = CounterMetricFamily(
            "streamer_malformed_accounts", "Accounts that contradicted themselves.", labels=PROCESS
        )
        for key in keys:
            process = (key[0], str(key[1]))
            totals = self._hub.totals(key)
            trace.add_metric(process, totals.accounted)
            decoded.add_metric(process, totals.decoded)
            shed.add_metric(process, totals.shed)
            overlaps.add_metric(process, totals.overlaps)
            malformed.add_metric(process, totals.malformed)
            for cause, name in CAUSES.items():
                lost.add_metric((*process, name), totals.holes[cause])
                holes.add_metric((*process, name), totals.events[cause])
                unwritten.add_metric((*process, name), totals.unwritten[cause])
        yield from (trace, decoded, shed, lost, holes, unwritten, overlaps, malformed)

    def _contradictions(self, keys: list[ProcessKey]) -> Iterable[Metric]:
        """Not at fidelity ip, which follows no code: a 0 would claim a check that was not made."""
        met = CounterMetricFamily(
            "streamer_contradictions",
            "Times the trace contradicted the code, by cause; fidelity flow only.",
            labels=(*PROCESS, "cause"),
        )
        suspect = CounterMetricFamily(
            "streamer_suspect_instructions",
            "Instructions in doubt: passed between the last confirmation by the trace and a contradiction.",
            labels=PROCESS,
        )
        for key in keys if self._hub.fidelity == "flow" else ():
            process = (key[0], str(key[1]))
            sums = self._hub.processes[key].contradictions
            suspect.add_metric(process, sums.suspect)
            for cause, name in contradictions.CAUSES.items():
                met.add_metric((*process, name), sums.causes[cause])
        yield from (met, suspect)

    def _state(self, keys: list[ProcessKey]) -> Iterable[Metric]:
        hub = self._hub
        lag = GaugeMetricFamily(
            "streamer_lag_seconds", "Time from the end of the newest closed pane to now.", labels=PROCESS
        )
        delay = HistogramMetricFamily(
            "streamer_delay_seconds", "Time from the execution of code until the windows hold it.", labels=PROCESS
        )
        panes = CounterMetricFamily("streamer_panes", "Panes closed.", labels=PROCESS)
        late = CounterMetricFamily(
            "streamer_late_reports",
            "Reports that came after their pane had closed (and were added to it).",
            labels=PROCESS,
        )
        expired = CounterMetricFamily(
            "streamer_expired_reports",
            "Reports that came after their pane had left every window.",
            labels=PROCESS,
        )
        methods = GaugeMetricFamily("streamer_methods", "Method names known of the process.", labels=PROCESS)
        folded = CounterMetricFamily(
            "streamer_folded_methods", "Method names that were folded into `other` for want of room.", labels=PROCESS
        )
        detail = GaugeMetricFamily(
            "streamer_code_detail_ratio",
            "Share of the compiled code that is described finely enough to tell bytecodes and inlined methods apart.",
            labels=PROCESS,
        )
        distance = GaugeMetricFamily(
            "streamer_shift_distance_ratio",
            "Total variation distance between the methods' shares in the shortest window and before it.",
            labels=PROCESS,
        )
        score = GaugeMetricFamily(
            "streamer_shift_score",
            "How unusual the distance is for this process: robust standard deviations from its median.",
            labels=PROCESS,
        )
        for key in keys:
            process = (key[0], str(key[1]))
            state = hub.processes[key]
            seconds = hub.lag(key)
            if seconds is not None:
                lag.add_metric(process, seconds)
            delay.add_metric(process, state.delays.cumulative(), state.delays.seconds)
            panes.add_metric(process, state.windows.closed)
            late.add_metric(process, state.windows.late)
            expired.add_metric(process, state.windows.expired)
            methods.add_metric(process, len(state.table))
            folded.add_metric(process, state.table.folded)
            described = hub.gauge(key, "code_detail")
            if described is not None:
                detail.add_metric(process, described)
            shift = state.shift.held
            if shift is not None and hub.live(key, min(hub.windows.values())):
                distance.add_metric(process, shift.distance)
                score.add_metric(process, shift.score)
        yield from (lag, delay, panes, late, expired, methods, folded, detail, distance, score)

    def _movers(self, keys: list[ProcessKey]) -> Iterable[Metric]:
        mover = GaugeMetricFamily(
            "streamer_shift_mover_share_ratio",
            "Share, now and before, of each method that a shift moved unusually far; at most 20 a process.",
            labels=(*PROCESS, "method", "when"),
        )
        for key in keys:
            shift = self._hub.processes[key].shift.held
            if shift is not None and self._hub.live(key, min(self._hub.windows.values())):
                for method in shift.movers:
                    for when, share in (("now", method.now), ("before", method.before)):
                        mover.add_metric((key[0], str(key[1]), method.method, when), share)
        yield mover

    def _components(self) -> Iterable[Metric]:
        up = GaugeMetricFamily(
            "streamer_component_up", "Whether the part of the pipeline is running.", labels=("component",)
        )
        lost = CounterMetricFamily(
            "streamer_lost_output_bytes",
            "Bytes that the part of the pipeline could not write, by output (stdout, stderr, recording) and errno.",
            labels=("component", "output", "cause"),
        )
        restarts = CounterMetricFamily(
            "streamer_restarts", "Times the part of the pipeline was restarted.", labels=("component",)
        )
        deaths = GaugeMetricFamily(
            "streamer_deaths_in_a_row",
            "Deaths of the part of the pipeline, each soon after its start; it is tried again after a bounded pause.",
            labels=("component",),
        )
        cpu = CounterMetricFamily(
            "streamer_cpu_seconds", "Processor time used by the part of the pipeline.", labels=("component",)
        )
        memory = GaugeMetricFamily(
            "streamer_resident_memory_bytes", "Resident memory of the part of the pipeline.", labels=("component",)
        )
        strangers = CounterMetricFamily(
            "streamer_turned_away_peers",
            "Peers that were not let in at a tcp socket: without a key of the session.",
            labels=("component",),
        )
        kernels = GaugeMetricFamily(
            "streamer_kernels_ready",
            "Whether the part of the pipeline has its kernels; before, all trace is shed. Fidelity flow only.",
            labels=("component",),
        )
        faults = CounterMetricFamily(
            "streamer_capture_faults",
            "Rings that were refused or given up, and files of capture's own that were damaged, since it was started.",
            labels=("component",),
        )
        ready = GaugeMetricFamily("streamer_ready", "Whether /readyz says yes.", value=float(not self._hub.ready()))
        refused = CounterMetricFamily(
            "streamer_refused_reports",
            "Reports that were malformed, or of a process beyond the limit.",
            value=self._hub.refused_reports,
        )
        for component, status in sorted(self._hub.components.items()):
            up.add_metric((component,), float(bool(status.get("up", True))))
            restarts.add_metric((component,), int(status.get("restarts", 0)))
            deaths.add_metric((component,), int(status.get("deaths_in_a_row", 0)))
            strangers.add_metric((component,), int(status.get("turned_away", 0)))
            for output, size in sorted(status.get("lost_output", {}).items()):
                lost.add_metric((component, *output.split("/", 1)), size)
            if "cpu_seconds" in status:
                cpu.add_metric((component,), float(status["cpu_seconds"]))
            if "kernels_ready" in status:
                kernels.add_metric((component,), float(bool(status["kernels_ready"])))
            if "faults" in status:
                faults.add_metric((component,), int(status["faults"]))
            if "memory_bytes" in status:
                memory.add_metric((component,), float(status["memory_bytes"]))
        yield from (up, restarts, deaths, lost, cpu, memory, strangers, kernels, faults, ready, refused)


def registry(hub: Hub) -> CollectorRegistry:
    """A registry of its own with the hub's metrics."""
    own = CollectorRegistry(auto_describe=False)
    own.register(HubCollector(hub))
    return own
