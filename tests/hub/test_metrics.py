from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from stages.messages import PROFILE_DTYPE, CodeKind, Loss, PaneReport
from streamer.views.metrics import KEEP_SECONDS, registry
from tests.hub.reports import HOST, PID, account, report
from tests.hub.scene import called, scene
from tests.narrowed import present

LABELS = {"host": HOST, "pid": str(PID)}


def value(own: CollectorRegistry, name: str, **labels: str) -> float | None:
    return own.get_sample_value(name, labels)


def test_shares_of_each_window_add_up_to_one() -> None:
    hub, _ = scene()
    own = registry(hub)
    for family in own.collect():
        if family.name == "streamer_method_share_ratio":
            by_window: dict[str, float] = {}
            for sample in family.samples:
                window = sample.labels["window"]
                by_window[window] = by_window.get(window, 0) + sample.value
            assert by_window == pytest.approx({"10s": 1, "1m": 1, "5m": 1})
            assert len(family.samples) == 2 * (4 + 30 + 1) + (4 + 30 + 4 + 1)  # all: fewer than 50
            break
    else:
        pytest.fail("no shares")
    lookup = "org.apache.fop.fonts.GlyphTable.lookup"
    seen = {
        w: value(own, "streamer_method_share_ratio", **LABELS, window=w, weight="hits", method=lookup)
        for w in ("10s", "1m")
    }
    assert seen["10s"] == pytest.approx(120 / (820 + 90))
    assert seen["1m"] == pytest.approx((10 * 120 + 50 * 420) / (10 * 910 + 50 * 1040))


def test_bytes_and_losses_balance() -> None:
    hub, _ = scene()
    own = registry(hub)
    trace = value(own, "streamer_trace_bytes_total", **LABELS)
    decoded = present(value(own, "streamer_decoded_bytes_total", **LABELS))
    causes = [s for f in own.collect() if f.name == "streamer_lost_bytes" for s in f.samples]
    assert len(causes) == len(Loss)
    assert trace == 80_000_900 == decoded + sum(s.value for s in causes)
    assert value(own, "streamer_lost_bytes_total", **LABELS, cause="desync") == 4 * 12_000
    assert value(own, "streamer_holes_total", **LABELS, cause="desync") == 4
    assert value(own, "streamer_lost_bytes_total", **LABELS, cause="aux_full") == 0
    assert value(own, "streamer_window_decoded_ratio", **LABELS, window="10s") == pytest.approx(1 - 12_900 / 10_000_900)


def test_state_and_components() -> None:
    hub, clock = scene()
    own = registry(hub)
    assert value(own, "streamer_lag_seconds", **LABELS) == pytest.approx(0.1)
    assert value(own, "streamer_panes_total", **LABELS) == 80
    assert value(own, "streamer_late_reports_total", **LABELS) == 1
    assert present(value(own, "streamer_shift_distance_ratio", **LABELS)) > 0.4
    assert value(own, "streamer_component_up", component="capture") == 1
    assert value(own, "streamer_restarts_total", component="worker-0") == 1
    assert value(own, "streamer_turned_away_peers_total", component="worker-0") == 2
    lost = {"component": "capture", "output": "recording", "cause": "ENOSPC"}
    assert value(own, "streamer_lost_output_bytes_total", **lost) == 5_000_000
    assert value(own, "streamer_cpu_seconds_total", component="capture") == 1.5
    assert value(own, "streamer_resident_memory_bytes", component="worker-0") == 120_000_000
    assert value(own, "streamer_capture_faults_total", component="capture") == 3
    assert value(own, "streamer_ready") == 1
    clock.seconds += 30
    assert value(own, "streamer_lag_seconds", **LABELS) == pytest.approx(30.1)
    assert value(own, "streamer_window_weight", **LABELS, window="10s", weight="hits") is None
    assert present(value(own, "streamer_window_weight", **LABELS, window="1m", weight="hits")) > 0


def test_the_pipelines_own_parts() -> None:
    hub, _ = scene()
    own = registry(hub)
    assert value(own, "streamer_queue_bytes", component="capture", queue="rings") == 4096
    assert value(own, "streamer_queue_bytes", component="worker-0", queue="code") == 100
    assert value(own, "streamer_behind_seconds", component="worker-0") == 0.3
    assert value(own, "streamer_messages_total", component="capture", way="out") == 90
    assert value(own, "streamer_messages_total", component="worker-0", way="in") == 85
    assert value(own, "streamer_messages_total", component="capture", way="in") is None
    assert value(own, "streamer_message_bytes_total", component="worker-0", way="out") == 300
    assert value(own, "streamer_dropped_messages_total", component="capture") == 3
    assert value(own, "streamer_steps_total", component="worker-0") == 34
    assert value(own, "streamer_followed_bytes_total", component="worker-0", by="window") == 750
    assert value(own, "streamer_followed_bytes_total", component="worker-0", by="branch") == 250
    assert value(own, "streamer_table_misses_total", component="worker-0") == 8
    assert value(own, "streamer_table_entries", component="worker-0", table="contexts") == 141
    assert value(own, "streamer_table_entries", component="hub", table="trees") == hub.trees.statistics()["tree_nodes"]
    assert value(own, "streamer_budget_cpus", component="capture") == 0.25
    assert value(own, "streamer_spent_cpus", component="capture") == 0.2
    assert value(own, "streamer_duty_ratio", component="capture") == 0.125
    assert value(own, "streamer_pushes_total", outcome="sent") == 5
    assert value(own, "streamer_pushes_total", outcome="failed") == 1
    assert value(own, "streamer_pushes_total", outcome="retried") == 4


def test_how_finely_code_is_described() -> None:
    hub, _ = scene()
    name = "streamer_code_detail_ratio"
    assert value(registry(hub), name, **LABELS) == 0.5
    hub.feed(replace(report(80, {"a.B.c": 1}, worker=513), gauges=(("code_detail", 0.75),)))
    hub.feed(replace(report(80, {"a.B.c": 1}, worker=257), gauges=(("code_detail", 0.25),)))  # late words of a dead one
    assert value(registry(hub), name, **LABELS) == 0.75


def test_methods_that_left_the_window_leave_no_series() -> None:
    hub, _ = scene()
    own = registry(hub)
    generate_latest(own)
    for pane in range(80, 90):
        hub.feed(report(pane, {"New.only": 1}, accounts=(account(pane * 10**6 + 900, (pane + 1) * 10**6 + 900),)))
    methods = {
        s.labels["method"]
        for f in own.collect()
        if f.name == "streamer_method_share_ratio"
        for s in f.samples
        if s.labels["window"] == "10s"
    }
    assert methods == {"New.only", "other"}


def test_a_process_long_silent_is_not_exported() -> None:
    hub, clock = scene()
    clock.seconds += KEEP_SECONDS + 10
    assert value(registry(hub), "streamer_trace_bytes_total", **LABELS) is None


def test_flow_exports_its_weights_and_invocations() -> None:
    hub = called(scene(fidelity="flow")[0], 79)
    own = registry(hub)
    weights = {s.labels["weight"] for f in own.collect() if f.name == "streamer_window_weight" for s in f.samples}
    assert weights == {"instructions", "time", "bytecodes"}
    labels = {**LABELS, "window": "10s"}
    assert value(own, "streamer_method_invocations", **labels, method="a.All.of") == 9
    assert value(own, "streamer_method_invocations_at_least", **labels, method="a.Some.of") == 3


def test_invocations_are_exact_or_a_lower_bound_or_absent() -> None:
    """A method's known calls: all, some, none. A lower bound in one pane makes the window's sum one."""
    hub, _ = scene(fidelity="flow", seconds=3)
    names = {1: "a.All.of", 2: "a.Some.of", 3: "a.None.of"}
    for pane, some, none in ((3, 0, 1), (4, 2, 0)):
        rows = np.zeros(3, PROFILE_DTYPE)
        rows["method"], rows["kind"], rows["instructions"] = list(names), CodeKind.C2, 1 << 40
        rows["invocations"] = 100
        rows["untold"], rows["uncounted"] = (0, some, 0), (0, 0, none)
        hub.feed(PaneReport(HOST, PID, 0, pane, rows, tuple(names.items()), (), True))
    own = registry(hub)
    for family, known in (("", {"a.All.of": 200}), ("_at_least", {"a.Some.of": 200})):
        for name in names.values():
            labels = {**LABELS, "window": "10s", "method": name}
            assert value(own, f"streamer_method_invocations{family}", **labels) == known.get(name)
    shown = {m.method: (m.invocations, m.at_least) for m in hub.hot("10s").methods if m.method in names.values()}
    assert shown == {"a.All.of": (200, False), "a.Some.of": (200, True), "a.None.of": (None, False)}


def test_the_most_invoked_have_a_series_also_where_they_do_little() -> None:
    hub, _ = scene(fidelity="flow", seconds=3)
    count = 2 * hub.config.exported
    names = tuple((k + 1, f"a.M{k}.of") for k in range(count))
    rows = np.zeros(count, PROFILE_DTYPE)
    rows["method"], rows["kind"] = [number for number, _ in names], CodeKind.C2
    rows["instructions"] = 10**9 + np.arange(count)[::-1] * 1000  # the more of them, the fewer invocations
    rows["invocations"] = 10_000 + np.arange(count)
    rows["untold"][0] = 1  # among the others, so that their sum is a lower bound
    hub.feed(PaneReport(HOST, PID, 0, 3, rows, names, (), True))
    own = registry(hub)
    told = {s.labels["method"]: s.value for f in own.collect() if f.name.startswith("streamer_method_invocations")
            for s in f.samples if s.labels["window"] == "10s"}  # fmt: skip
    most = range(count - hub.config.exported, count)
    assert {name: n for name, n in told.items() if name != "other"} == {f"a.M{k}.of": 10_000 + k for k in most}
    labels = {**LABELS, "window": "10s", "method": "other"}
    assert value(own, "streamer_method_invocations_at_least", **labels) == sum(10_000 + k for k in range(most[0]))
    shown = {s.labels["method"] for f in own.collect() if f.name == "streamer_method_share_ratio" for s in f.samples
             if s.labels["window"] == "10s" and s.labels["weight"] == "instructions"}  # fmt: skip
    assert shown == {f"a.M{k}.of" for k in range(hub.config.exported)} | {"other"}


def test_bytecodes_are_exact_or_about_or_not_known() -> None:
    """Of methods that the interpreter ran alone, that compiled code ran too, that it ran alone; the heaviest `top` have
    a series."""
    hub, _ = scene(fidelity="flow", seconds=3)
    ran = {"a.All.of": (100, 0), "a.Some.of": (300, 1), "a.None.of": (0, 1)}
    ran |= {f"a.M{k}.of": (1, 0) for k in range(30)}
    names = tuple(enumerate(ran, 1))
    for kind, column in ((CodeKind.INTERPRETED, 0), (CodeKind.C1, 1)):
        rows = np.zeros(len(ran), PROFILE_DTYPE)
        rows["method"], rows["kind"] = [number for number, _ in names], kind
        rows["instructions"] = [2**40 * of[column] for of in ran.values()]
        rows["bytecodes"] = [of[0] * (column == 0) for of in ran.values()]
        hub.feed(PaneReport(HOST, PID, 0, 3, rows, names, (), bool(column)))
    told = {m.method: (m.bytecodes, m.bytecodes_about) for m in hub.hot("10s", top=500).methods}
    assert {name: told[name] for name in list(ran)[:3]} == {
        "a.All.of": (100, False), "a.Some.of": (300, True), "a.None.of": (None, False)
    }  # fmt: skip
    own = registry(hub)
    labels = {**LABELS, "window": "10s", "weight": "bytecodes"}
    assert value(own, "streamer_window_weight", **labels) == 430
    shares = {
        s.labels["method"]: s.value
        for f in own.collect() if f.name == "streamer_method_share_ratio"
        for s in f.samples if s.labels["weight"] == "bytecodes" and s.labels["window"] == "10s"
    }  # fmt: skip
    assert shares["a.Some.of"] == pytest.approx(300 / 430)
    assert len(shares) == min(len(ran) - 1, hub.config.exported) + 1
    assert sum(shares.values()) == pytest.approx(1)


def test_what_was_shed_is_of_the_decoded_bytes() -> None:
    own = registry(scene(fidelity="flow", shed=400_000)[0])
    assert value(own, "streamer_shed_bytes_total", **LABELS) == 80 * 400_000
    last = 10 * 400_000 / (10_000_900 - 12_900)
    assert value(own, "streamer_window_shed_ratio", **LABELS, window="10s") == pytest.approx(last)
    assert value(own, "streamer_window_decoded_ratio", **LABELS, window="10s") == pytest.approx(1 - 12_900 / 10_000_900)
    assert value(registry(scene(fidelity="flow")[0]), "streamer_window_shed_ratio", **LABELS, window="10s") == 0
    assert value(registry(scene()[0]), "streamer_window_shed_ratio", **LABELS, window="10s") is None


def test_hostile_names_stay_inside_their_label() -> None:
    hub, _ = scene()
    families = list(text_string_to_metric_families(generate_openmetrics(registry(hub)).decode()))
    methods = {s.labels["method"] for f in families if f.name == "streamer_method_share_ratio" for s in f.samples}
    assert "<script>alert(1)</script>[bold]?.run" in methods
    assert not any("0x" in m for m in methods)


@pytest.mark.peer
@pytest.mark.parametrize("fidelity", ["ip", "flow"])
def test_promtool_finds_nothing_to_mend(fidelity: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing (Debian package prometheus)")
    hub, _ = scene(fidelity=fidelity)
    result = subprocess.run(
        [promtool, "check", "metrics", "--extended"],
        input=generate_latest(registry(hub)),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr.decode()) == (0, "")
    assert b"streamer_method_share_ratio" in result.stdout
