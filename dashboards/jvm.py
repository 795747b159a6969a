"""One JVM: its methods, the calls between them, and what moved."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import table
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.panels import PROCESS, SOURCE, WINDOW, board, graph, query, stacked, variable

INVOKED = f'{PROCESS}, window="$window", method!="other"'
EDGE = f'{PROCESS}, weight="$edge_weight"'


def rows(title: str, why: str, expr: str, *, span: int = 12) -> table.Panel:
    """A table of the newest values."""
    return (
        table.Panel()
        .title(title)
        .description(why)
        .datasource(SOURCE)
        .with_target(query(expr, instant=True).format(PromQueryFormat.TABLE))
        .unit("percentunit")
        .height(12)
        .span(span)
    )


def dashboard() -> model.Dashboard:
    weights = build.CustomVariable("edge_weight").label("Calls by").values("instructions,time,bytecodes")
    return (
        board("JVM trace streamer: one JVM", "jvm-trace-streamer-jvm", "Methods of a JVM, calls, and what moved.")
        .with_variable(variable("window", "Window", "streamer_window_weight, window"))
        .with_variable(variable("weight", "Share of", "streamer_window_weight, weight"))
        .with_variable(weights)
        .with_row(build.Row("Methods"))
        .with_panel(
            stacked(
                graph(
                    "Methods",
                    "Share of the window's weight; `other` is what is not among the top.",
                    "percentunit",
                    (f"streamer_method_share_ratio{{{WINDOW}}}", "{{method}}"),
                    span=24,
                )
            ).max(1)
        )
        .with_panel(
            graph(
                "Invocations",
                "In the window, where the trace tells how many, the ten most.",
                "short",
                (f"topk(10, streamer_method_invocations{{{INVOKED}}})", "{{method}}"),
            )
        )
        .with_panel(
            graph(
                "How sure",
                "Half of the 95 % interval of each share, where a CPU budget leaves part of the time untraced.",
                "percentunit",
                (f"topk(10, streamer_method_share_halfwidth_ratio{{{WINDOW}}})", "{{method}}"),
            )
        )
        .with_row(build.Row("Calls"))
        .with_panel(
            stacked(
                graph(
                    "Call edges",
                    "What the callee itself spent when called from the caller, of the shortest window.",
                    "percentunit",
                    (f"streamer_call_edge_share_ratio{{{EDGE}}}", "{{caller}} → {{callee}}"),
                    span=24,
                )
            ).max(1)
        )
        .with_panel(
            rows("Hottest calls", "The same, now.", f"sort_desc(topk(25, streamer_call_edge_share_ratio{{{EDGE}}}))")
        )
        .with_panel(
            graph(
                "Calls",
                "The most frequent, in the shortest window.",
                "short",
                (f'topk(10, streamer_call_edge_invocations{{{PROCESS}, callee!="other"}})', "{{caller}} → {{callee}}"),
            ).height(12)
        )
        .with_row(build.Row("What moved"))
        .with_panel(
            graph(
                "Shift",
                "Distance: 0 the same mixture, 1 nothing in common.",
                "percentunit",
                (f"streamer_shift_distance_ratio{{{PROCESS}}}", "distance {{host}} {{pid}}"),
            ).height(12)
        )
        .with_panel(
            rows(
                "Movers",
                "Shares now and before, of the methods that moved unusually far.",
                f"streamer_shift_mover_share_ratio{{{PROCESS}}}",
            )
        )
        .build()
    )
