"""Parts of the dashboards: queries, panels and variables in one style."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
PROCESS = 'host=~"$host", pid=~"$pid"'
WINDOW = f'{PROCESS}, window="$window", weight="$weight"'

TAGS = ["jvm-trace-streamer", "jvm", "profiling", "intel-pt"]


def query(expr: str, legend: str = "", *, instant: bool = False) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(expr).legend_format(legend).format(PromQueryFormat.TIME_SERIES)
    return made.instant() if instant else made.range()


def thresholds(*steps: tuple[float | None, str]) -> build.ThresholdsConfig:
    """Colours from each value on; the first value is None, for everything below."""
    return (
        build.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=color) for value, color in steps])
    )


def number(title: str, why: str, expr: str, unit: str, *steps: tuple[float | None, str]) -> stat.Panel:
    return (
        stat.Panel()
        .title(title)
        .description(why)
        .datasource(SOURCE)
        .with_target(query(expr, instant=True))
        .unit(unit)
        .thresholds(thresholds(*steps))
        .color_mode(kinds.BigValueColorMode.VALUE)
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("–")
        .height(4)
        .span(4)
    )


def graph(title: str, why: str, unit: str, *queries: tuple[str, str], span: int = 12) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(title)
        .description(why)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .line_width(1)
        .show_points(kinds.VisibilityMode.NEVER)
        .tooltip(common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI).sort(kinds.SortOrder.DESCENDING))
        .legend(common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.LIST).show_legend(True))
        .height(8)
        .span(span)
    )
    for expr, legend in queries:
        panel = panel.with_target(query(expr, legend))
    return panel


def stacked(panel: timeseries.Panel) -> timeseries.Panel:
    return panel.fill_opacity(60).stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL).group("A"))


def variable(name: str, label: str, values: str) -> build.QueryVariable:
    return (
        build.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(f"label_values({values})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )


def everything() -> model.VariableOption:
    return model.VariableOption(text="All", value="$__all", selected=True)


def board(title: str, uid: str, description: str) -> build.Dashboard:
    """With the variables that all have, and links to the others."""
    others = (
        build.DashboardLink("JVM trace streamer")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags(TAGS[:1])
        .include_vars(True)
        .keep_time(True)
    )
    page = (
        build.DashboardLink("The page")
        .type(model.DashboardLinkType.LINK)
        .url("http://${instance}/")
        .tooltip("Flame graph and hot methods of the streamer, live")
        .target_blank(True)
    )
    return (
        build.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(TAGS)
        .time("now-30m", "now")
        .refresh("10s")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .editable()
        .link(others)
        .link(page)
        .with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(variable("instance", "Streamer", "streamer_build_info, instance"))
        .with_variable(
            variable("host", "Host", "streamer_trace_bytes_total, host").multi(True).include_all(True)
            .current(everything())
        )
        .with_variable(
            variable("pid", "Process", 'streamer_trace_bytes_total{host=~"$host"}, pid').multi(True).include_all(True)
            .current(everything())
        )
    )  # fmt: skip
