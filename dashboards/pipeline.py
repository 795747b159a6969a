"""The pipeline's own parts: what waits where and for how long, what they keep, and what they cost."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import heatmap
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import PROCESS, SOURCE, board, graph, number, query, stacked, variable

OF = 'instance=~"$instance"'
DELAY = f"streamer_delay_seconds_bucket{{{PROCESS}}}[$__rate_interval]"
WINDOW = f'{PROCESS}, window="$window"'
FOLLOWED = f"rate(streamer_followed_bytes_total{{{OF}"


def dashboard() -> model.Dashboard:
    delays = (
        heatmap.Panel()
        .title("Delay")
        .description("From the execution of code until the windows hold it: panes by delay.")
        .datasource(SOURCE)
        .with_target(query(f"sum by (le) (increase({DELAY}))", "{{le}}").format(PromQueryFormat.HEATMAP))
        .calculate(False)
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .height(8)
        .span(12)
    )
    return (
        board("JVM trace streamer: pipeline", "jvm-trace-streamer-pipeline", "The streamer's own parts.")
        .with_variable(variable("window", "Window", "streamer_window_weight, window"))
        .with_row(build.Row("Now"))
        .with_panel(
            number("Ready", "What /readyz says.", f"min(streamer_ready{{{OF}}})", "none", (None, "red"), (1, "green"))
        )
        .with_panel(
            number("Behind", "Age of the trace that flow took up last, the worst part.",
                   f"max(streamer_behind_seconds{{{OF}}}) or vector(0)", "s",
                   (None, "green"), (0.5, "orange"), (5, "red"))
        )
        .with_panel(
            number("Processor", "Cores used by all parts.",
                   f"sum(rate(streamer_cpu_seconds_total{{{OF}}}[$__rate_interval]))", "none", (None, "green"))
        )
        .with_panel(
            number("Of the budget", "What is spent, in parts of the CPU budget; none without one.",
                   f"max(streamer_spent_cpus{{{OF}}} / streamer_budget_cpus{{{OF}}})", "percentunit",
                   (None, "green"), (1.2, "orange"), (2, "red"))
        )
        .with_panel(
            number("Memory", "Resident, all parts.", f"sum(streamer_resident_memory_bytes{{{OF}}})", "bytes",
                   (None, "green"))
        )
        .with_panel(
            number("Decoded", "Of the window's trace bytes, the worst process.",
                   f"min(streamer_window_decoded_ratio{{{WINDOW}}})", "percentunit",
                   (None, "red"), (0.9, "orange"), (0.99, "green"))
        )
        .with_row(build.Row("How late"))
        .with_panel(delays)
        .with_panel(
            graph("Behind", "Age of the trace that each worker took up last; it sheds from half a second on.", "s",
                  (f"streamer_behind_seconds{{{OF}}}", "{{component}}"),
                  (f"histogram_quantile(0.99, sum by (le) (rate({DELAY})))", "99 % seen within"))
        )
        .with_row(build.Row("Queues"))
        .with_panel(
            graph("Waiting", "Trace in rings, and trace that waits for the code that it ran in.", "bytes",
                  (f"streamer_queue_bytes{{{OF}}}", "{{component}}: {{queue}}"), span=8)
        )
        .with_panel(
            graph("Messages", "In and out of each part.", "ops",
                  (f"rate(streamer_messages_total{{{OF}}}[$__rate_interval])", "{{component}} {{way}}"), span=8)
        )
        .with_panel(
            graph("Bytes of messages", "In and out of each part.", "Bps",
                  (f"rate(streamer_message_bytes_total{{{OF}}}[$__rate_interval])", "{{component}} {{way}}"), span=8)
        )
        .with_panel(
            graph("Messages dropped", "They could not be sent: their trace is a hole.", "ops",
                  (f"rate(streamer_dropped_messages_total{{{OF}}}[$__rate_interval])", "{{component}}"), span=8)
        )
        .with_panel(
            graph("Steps", "Steps of work.", "ops",
                  (f"rate(streamer_steps_total{{{OF}}}[$__rate_interval])", "{{component}}"), span=8)
        )
        .with_panel(
            graph("Late reports", "Came after their pane had closed.", "ops",
                  (f"sum(rate(streamer_late_reports_total{{{PROCESS}}}[$__rate_interval]))", "late"), span=8)
        )
        .with_row(build.Row("Tables"))
        .with_panel(
            graph("Followed by table", "Share of the followed trace that was walked a window at a time.", "percentunit",
                  (f'sum by (component) ({FOLLOWED}, by="window"}}[$__rate_interval]))'
                   f" / sum by (component) ({FOLLOWED}}}[$__rate_interval]))", "{{component}}"), span=8)
        )
        .with_panel(
            graph("Misses", "Times that flow met bytes for the first time.", "ops",
                  (f"rate(streamer_table_misses_total{{{OF}}}[$__rate_interval])", "{{component}}"), span=8)
        )
        .with_panel(
            graph("Entries", "Of each table: contexts, code versions, paths, …", "short",
                  (f"streamer_table_entries{{{OF}}}", "{{component}} {{table}}"), span=8)
        )
        .with_row(build.Row("Cost and deaths"))
        .with_panel(
            stacked(graph("Processor time", "Cores used by each part.", "none",
                          (f"rate(streamer_cpu_seconds_total{{{OF}}}[$__rate_interval])", "{{component}}"), span=8))
        )
        .with_panel(
            graph("Budget", "CPUs; and the part of the time that is traced for it.", "none",
                  (f"streamer_budget_cpus{{{OF}}}", "budget"), (f"streamer_spent_cpus{{{OF}}}", "spent"),
                  (f"streamer_duty_ratio{{{OF}}}", "part of the time"), span=8)
        )
        .with_panel(
            stacked(graph("Memory", "Resident.", "bytes",
                          (f"streamer_resident_memory_bytes{{{OF}}}", "{{component}}"), span=8))
        )
        .with_panel(
            graph("Up", "1: the part is running.", "none", (f"streamer_component_up{{{OF}}}", "{{component}}"))
        )
        .with_panel(
            graph("Restarts", "In the last hour.", "none",
                  (f"increase(streamer_restarts_total{{{OF}}}[1h])", "{{component}}"))
        )
        .build()
    )  # fmt: skip
