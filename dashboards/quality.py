"""Trace quality: how much was seen, how much of it is in doubt, and where the rest went."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import PROCESS, board, graph, number, stacked, variable

WINDOW = f'{PROCESS}, window="$window"'
SUSPECT = f"sum(rate(streamer_suspect_instructions_total{{{PROCESS}}}[$__rate_interval]))"


def dashboard() -> model.Dashboard:
    return (
        board("JVM trace streamer: trace quality", "jvm-trace-streamer-quality", "How much was seen, and how surely.")
        .with_variable(variable("window", "Window", "streamer_window_weight, window"))
        .with_row(build.Row("Now"))
        .with_panel(
            number("Decoded", "Of the window's trace bytes, the worst process.",
                   f"min(streamer_window_decoded_ratio{{{WINDOW}}})", "percentunit",
                   (None, "red"), (0.9, "orange"), (0.99, "green"))
        )
        .with_panel(
            number("Shed", "Of the decoded bytes, read for their addresses only; the worst process.",
                   f"max(streamer_window_shed_ratio{{{WINDOW}}})", "percentunit",
                   (None, "green"), (0.1, "orange"), (0.5, "red"))
        )
        .with_panel(
            number("Traced", "Part of the time that was traced: 1 without a CPU budget.",
                   f"min(streamer_window_duty_ratio{{{WINDOW}}})", "percentunit", (None, "green"))
        )
        .with_panel(
            number("Code described", "Share of the compiled code that tells bytecodes and inlined methods apart.",
                   f"min(streamer_code_detail_ratio{{{PROCESS}}})", "percentunit",
                   (None, "red"), (0.5, "orange"), (0.9, "green"))
        )
        .with_panel(
            number("Delay, 99 %", "From the execution of code until the windows hold it.",
                   "histogram_quantile(0.99, sum by (le) "
                   f"(rate(streamer_delay_seconds_bucket{{{PROCESS}}}[$__rate_interval])))", "s",
                   (None, "green"), (2, "orange"), (10, "red"))
        )
        .with_panel(
            number("Names folded", "Method names that were added to `other` for want of room.",
                   f"sum(streamer_folded_methods_total{{{PROCESS}}})", "short", (None, "green"), (1, "orange"))
        )
        .with_row(build.Row("Bytes"))
        .with_panel(
            graph("Decoded, by window", "Share of the trace bytes.", "percentunit",
                  (f"streamer_window_decoded_ratio{{{PROCESS}}}", "{{window}} {{host}} {{pid}}"))
        )
        .with_panel(
            stacked(graph("Lost, by cause", "Bytes in holes (docs/losses.md).", "Bps",
                          (f"sum by (cause) (rate(streamer_lost_bytes_total{{{PROCESS}}}[$__rate_interval]))",
                           "{{cause}}")))
        )
        .with_panel(
            stacked(graph("Lost before it was written", "As far as the source knows.", "Bps",
                          (f"sum by (cause) (rate(streamer_unwritten_bytes_total{{{PROCESS}}}[$__rate_interval]))",
                           "{{cause}}")))
        )
        .with_panel(
            stacked(graph("Holes, by cause", "Also those of no known size.", "ops",
                          (f"sum by (cause) (rate(streamer_holes_total{{{PROCESS}}}[$__rate_interval]))",
                           "{{cause}}")))
        )
        .with_row(build.Row("In doubt"))
        .with_panel(
            stacked(graph("Contradictions, by cause", "Where the trace contradicted the code (streamer report).", "ops",
                          (f"sum by (cause) (rate(streamer_contradictions_total{{{PROCESS}}}[$__rate_interval]))",
                           "{{cause}}")))
        )
        .with_panel(
            graph("Suspect instructions", "Passed between the last confirmation and a contradiction.", "ops",
                  (SUSPECT, "suspect"))
        )
        .with_panel(
            graph("Late and expired reports", "Added to a closed pane; too late for any window.", "ops",
                  (f"sum(rate(streamer_late_reports_total{{{PROCESS}}}[$__rate_interval]))", "late"),
                  (f"sum(rate(streamer_expired_reports_total{{{PROCESS}}}[$__rate_interval]))", "expired"))
        )
        .with_panel(
            graph("Bytes accounted for twice", "And counted once.", "Bps",
                  (f"sum(rate(streamer_overlap_bytes_total{{{PROCESS}}}[$__rate_interval]))", "overlap"))
        )
        .build()
    )  # fmt: skip
