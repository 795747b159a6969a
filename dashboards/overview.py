"""The overview: what is hot, what shifted, what was seen, and the streamer itself."""

from __future__ import annotations

from grafana_foundation_sdk.builders import bargauge, common
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import PROCESS, SOURCE, WINDOW, board, graph, number, query, stacked, variable

# shares of several processes together: each weighted with its observed part
SHARE = (
    f"sum by (method) (streamer_method_share_ratio{{{WINDOW}}}"
    f" * on (host, pid) group_left () streamer_window_weight{{{WINDOW}}})"
    f" / on () group_left () (sum(streamer_window_weight{{{WINDOW}}}) > 0)"
)
DECODED = (
    f"sum(rate(streamer_decoded_bytes_total{{{PROCESS}}}[$__rate_interval]))"
    f" / (sum(rate(streamer_trace_bytes_total{{{PROCESS}}}[$__rate_interval])) > 0)"
)


def dashboard() -> model.Dashboard:
    shares = stacked(
        graph(
            "Hot methods",
            "Share of the window's weight that was observed in each method; `other` is what is not among the top.",
            "percentunit",
            (SHARE, "{{method}}"),
            span=24,
        )
    ).max(1)
    now = (
        bargauge.Panel()
        .title("Hottest now")
        .description("The same shares at the end of the time range.")
        .datasource(SOURCE)
        .with_target(query(f"sort_desc(topk(15, {SHARE}))", "{{method}}", instant=True))
        .unit("percentunit")
        .min(0)
        .orientation(kinds.VizOrientation.HORIZONTAL)
        .display_mode(kinds.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .height(12)
        .span(12)
    )
    made = (
        board(
            "JVM trace streamer",
            "jvm-trace-streamer",
            "What is hot in the traced JVMs, what shifted, and how much of it was really seen.",
        )
        .with_variable(variable("window", "Window", "streamer_window_weight, window"))
        .with_variable(variable("weight", "Share of", "streamer_window_weight, weight"))
        .with_row(build.Row("At a glance"))
        .with_panel(
            number(
                "Trace decoded",
                "Of the trace bytes accounted for. The rest lies in holes with a cause.",
                DECODED,
                "percentunit",
                (None, "red"),
                (0.9, "orange"),
                (0.99, "green"),
            )
        )
        .with_panel(
            number(
                "Lag",
                "From the end of the newest closed pane to now, the worst process.",
                f"max(streamer_lag_seconds{{{PROCESS}}})",
                "s",
                (None, "green"),
                (5, "orange"),
                (10, "red"),
            )
        )
        .with_panel(
            number(
                "Shift distance",
                "Share of the time that moved to other methods: the shortest window against the one before it.",
                f"max(streamer_shift_distance_ratio{{{PROCESS}}})",
                "percentunit",
                (None, "green"),
                (0.15, "orange"),
                (0.3, "red"),
            )
        )
        .with_panel(
            number(
                "Components down",
                "Parts of the pipeline that are not running.",
                "count(streamer_component_up == 0) or vector(0)",
                "none",
                (None, "green"),
                (1, "red"),
            )
        )
        .with_panel(
            number(
                "Restarts",
                "In the last hour.",
                "sum(increase(streamer_restarts_total[1h])) or vector(0)",
                "none",
                (None, "green"),
                (1, "orange"),
                (4, "red"),
            )
        )
        .with_panel(
            number(
                "Processes",
                "With at least one closed pane.",
                f"count(streamer_panes_total{{{PROCESS}}}) or vector(0)",
                "none",
                (None, "green"),
            )
        )
        .with_row(build.Row("Hot methods"))
        .with_panel(shares)
        .with_panel(now)
        .with_panel(
            graph(
                "Shift",
                "Distance: 0 the same mixture, 1 nothing in common. Score: how unusual that is for the process.",
                "percentunit",
                (f"streamer_shift_distance_ratio{{{PROCESS}}}", "distance {{host}} {{pid}}"),
                (f"streamer_shift_score{{{PROCESS}}}", "score {{host}} {{pid}}"),
            )
            .height(12)
            .override_by_regexp(
                "score.*",
                [
                    model.DynamicConfigValue(id_val="unit", value="none"),
                    model.DynamicConfigValue(id_val="custom.axisPlacement", value="right"),
                ],
            )
        )
        .with_row(build.Row("What was seen"))
        .with_panel(
            graph(
                "Trace",
                "Bytes of trace accounted for, decoded, and of these shed: to keep up, only their addresses were read.",
                "Bps",
                (f"sum(rate(streamer_trace_bytes_total{{{PROCESS}}}[$__rate_interval]))", "trace"),
                (f"sum(rate(streamer_decoded_bytes_total{{{PROCESS}}}[$__rate_interval]))", "decoded"),
                (f"sum(rate(streamer_shed_bytes_total{{{PROCESS}}}[$__rate_interval]))", "shed"),
                span=8,
            )
        )
        .with_panel(
            stacked(
                graph(
                    "Lost, by cause",
                    "Bytes in holes.",
                    "Bps",
                    (
                        f"sum by (cause) (rate(streamer_lost_bytes_total{{{PROCESS}}}[$__rate_interval])) > 0",
                        "{{cause}}",
                    ),
                    span=8,
                )
            )
        )
        .with_panel(
            stacked(
                graph(
                    "Holes, by cause",
                    "Some holes have no known size: an overflow in the processor is counted here and has no bytes.",
                    "ops",
                    (f"sum by (cause) (rate(streamer_holes_total{{{PROCESS}}}[$__rate_interval])) > 0", "{{cause}}"),
                    span=8,
                )
            )
        )
        .with_row(build.Row("The streamer itself"))
        .with_panel(
            graph(
                "Lag",
                "From the end of the newest closed pane to now; and from the execution of code until it is seen.",
                "s",
                (f"streamer_lag_seconds{{{PROCESS}}}", "{{host}} {{pid}}"),
                (
                    "histogram_quantile(0.99, sum by (host, pid, le) "
                    f"(rate(streamer_delay_seconds_bucket{{{PROCESS}}}[$__rate_interval])))",
                    "99 % of {{host}} {{pid}} seen within",
                ),
                span=6,
            )
        )
        .with_panel(
            graph(
                "Queues",
                "Trace that waits: in rings, or for the code that it ran in.",
                "bytes",
                ("streamer_queue_bytes", "{{component}}: {{queue}}"),
                span=6,
            )
        )
        .with_panel(
            graph(
                "Processor time",
                "Cores used by each part.",
                "none",
                ("rate(streamer_cpu_seconds_total[$__rate_interval])", "{{component}}"),
                span=6,
            )
        )
        .with_panel(graph("Memory", "Resident.", "bytes", ("streamer_resident_memory_bytes", "{{component}}"), span=6))
    )
    return made.build()
