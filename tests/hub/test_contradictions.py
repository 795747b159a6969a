from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from stages.messages import Break, Contradiction
from streamer.commands.report import command
from streamer.config import WebConfig, WindowConfig
from streamer.hub.contradictions import OTHER, Contradictions
from streamer.hub.hub import Hub
from streamer.hub.text import CAUSE_TEXTS
from streamer.views import summary, web
from streamer.views.metrics import registry
from tests.hub.reports import HOST, PID, Time, report
from tests.hub.scene import CONTRADICTIONS, scene

SHORT = ("[stub] a", "[stub] b", "x.Y.z (C1 #1)", OTHER)
told = st.lists(
    st.builds(
        Contradiction, st.sampled_from(Break), st.sampled_from(SHORT), st.integers(0, 3), st.integers(0, 3),
        st.just(""), st.integers(1, 9), st.integers(0, 9),
    ),
    max_size=40,
)  # fmt: skip


async def run(*arguments: str) -> Result:
    return await trio.to_thread.run_sync(partial(CliRunner().invoke, command, list(arguments)))


def test_every_cause_is_in_words() -> None:
    assert list(CAUSE_TEXTS) == [b.name.lower() for b in Break]


@given(st.lists(told, max_size=5), st.integers(1, 10), st.integers(0, 50))
def test_sums_are_exact_and_places_bounded(reports: list[list[Contradiction]], limit: int, top: int) -> None:
    sums = Contradictions(limit)
    exact: Counter[Break] = Counter()
    for one in reports:
        sums.add(one)
        for c in one:
            exact[c.cause] += c.times
    view = sums.view("flow", 0, top)
    assert view.causes == {b.name.lower(): exact[b] for b in Break}
    assert view.total == exact.total() == view.other + sum(p.times for p in view.places)
    assert view.suspect == sum(c.suspect for one in reports for c in one)
    assert len(view.places) <= min(top, 2 * limit)
    assert [p.times for p in view.places] == sorted((p.times for p in view.places), reverse=True)
    assert OTHER not in {p.code for p in view.places}


def test_frequent_places_outlive_a_flood_of_rare_ones() -> None:
    sums = Contradictions(limit=10)
    for n in range(1000):
        rare = Contradiction(Break.STUCK, "rare", 1, n, "", 1)
        sums.add((rare, Contradiction(Break.STUCK, "frequent", 1, n % 3, "", 2)))
    view = sums.view("flow", 0, 5)
    assert [(p.code, p.offset, p.times) for p in view.places[:3]] == [
        ("frequent", 0, 668), ("frequent", 1, 666), ("frequent", 2, 666)
    ]  # fmt: skip
    assert view.total == 3000


@pytest.mark.parametrize("wrong", [{"times": 0}, {"times": -5}, {"suspect": -1}])
def test_what_cannot_be_is_refused_whole(wrong: dict[str, Any]) -> None:
    hub = Hub(WindowConfig(pane_seconds=1), fidelity="flow", now=Time())
    bad = Contradiction(Break.STUCK, "x", 1, 1, "", 1)._replace(**wrong)
    hub.feed(replace(report(1, {"a.B.c": 5}), contradictions=(CONTRADICTIONS[0], bad)))
    assert hub.refused_reports == 1
    assert hub.contradictions(10).total == 0
    assert hub.hot(whole_run=True).total == 0


def test_processes_are_told_apart_and_together() -> None:
    hub, _ = scene(fidelity="flow")
    hub.feed(replace(report(3, {"a.B.c": 9}, pid=8, column="instructions"), contradictions=CONTRADICTIONS[:1]))
    assert hub.contradictions(1).places[0].times == 60
    assert hub.contradictions(1, (HOST, 8)).total == 30
    assert hub.contradictions(1, (HOST, PID)).total == 50
    assert hub.contradictions(1, (HOST, 8)).instructions == 9
    assert hub.contradictions(9, (HOST, PID)).places[0].times == 30  # adding up changed nothing


def test_metrics() -> None:
    own = registry(scene(fidelity="flow")[0])
    labels = {"host": HOST, "pid": str(PID)}
    samples = [s for f in own.collect() if f.name == "streamer_contradictions" for s in f.samples]
    assert {s.labels["cause"] for s in samples} == {b.name.lower() for b in Break}
    assert own.get_sample_value("streamer_contradictions_total", {**labels, "cause": "no_return"}) == 30
    assert own.get_sample_value("streamer_contradictions_total", {**labels, "cause": "stuck"}) == 2
    assert own.get_sample_value("streamer_suspect_instructions_total", labels) == 1000
    ip = registry(scene()[0])
    assert not [s for f in ip.collect() if f.name == "streamer_contradictions" for s in f.samples]


async def test_report_of_a_running_streamer() -> None:
    hub, _ = scene(fidelity="flow")
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        text = await run("--url", url, "--top", "2")
        data = await run("--url", url, "--json", "--pid", str(PID))
        other_pid = await run("--url", url, "--pid", "8")
        nursery.cancel_scope.cancel()
    assert text.exit_code == 0, text.output
    lines = [line.split() for line in text.output.splitlines()]
    assert "50 contradictions between trace and code in" in text.output
    assert [
        "60.0%",
        "30",
        "no_return",
        "a",
        "return",
        "to",
        "the",
        "caller,",
        "and",
        "no",
        "call",
        "was",
        "seen",
    ] in lines
    assert (
        shlex.split("60.0% 30 no_return org.apache.fop.area.LineArea.addInline '(C2' '#77)' 0x7f00 +0x2a a.B.c @ 7")
        in lines
    )
    assert shlex.split("20.0% 10 tnt_at_tip [stub] I2C/C2I adapters 0x8000 +0x5") in lines
    assert shlex.split("20.0% 10 at other places") in lines
    view = json.loads(data.output)
    assert (view["total"], view["suspect"], view["other"]) == (50, 1000, 2)
    assert view["places"][2]["start"] == 0
    assert other_pid.exit_code == 1
    assert "no process 8" in other_pid.output


async def test_report_from_a_summary_says_the_same(tmp_path: Path) -> None:
    hub, _ = scene(fidelity="flow")
    file = tmp_path / "summary.json"
    file.write_text(json.dumps(summary.figures(hub)))
    result = await run("--summary", str(file), "--json", "--top", "1")
    view = json.loads(result.output)
    assert view == hub.contradictions(1).json() | {"places": [hub.contradictions(1).json()["places"][0]]}
    assert "[stub] I2C/C2I adapters" in (await run("--summary", str(file))).output
    assert (await run("--summary", str(file), "--pid", "7")).exit_code == 1


async def test_without_a_contradiction_it_says_so(tmp_path: Path) -> None:
    hub = Hub(WindowConfig(pane_seconds=1), fidelity="flow", now=Time())
    hub.feed(report(1, {"a.B.c": 5}, column="instructions"))
    (tmp_path / "s").write_text(json.dumps(summary.figures(hub)))
    assert (await run("--summary", str(tmp_path / "s"))).output.split("\n")[0] == (
        "No contradiction between trace and code in 5 instructions."
    )


async def test_at_fidelity_ip_there_is_nothing_to_report(tmp_path: Path) -> None:
    (tmp_path / "s").write_text(json.dumps(summary.figures(scene()[0])))
    result = await run("--summary", str(tmp_path / "s"))
    assert result.exit_code == 1
    assert "at fidelity ip no code is followed" in result.output
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"contradictions": 5}', '{"contradictions": {"total": "x", "places": [1]}}', "[" * 10**5]
)
async def test_what_is_no_summary_is_one_clear_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    result = await run("--summary", str(tmp_path / "s"))
    assert result.exit_code == 1
    assert "is no summary of this version" in result.output
    assert (await run("--summary", str(tmp_path / "none"))).exit_code == 1


def test_the_summary_names_the_worst_place() -> None:
    line = (
        "contradictions: 50, most often (60%, no return) at org.apache.fop.area.LineArea.addInline (C2 #77) +0x2a, "
        "a.B.c @ 7"
    )
    assert line in " ".join(summary.render(scene(fidelity="flow")[0]).split())
    assert "contradictions" not in summary.render(scene()[0])
