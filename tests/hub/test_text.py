from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamer.hub.hub import Hub
from streamer.hub.text import (
    bar,
    bytes_text,
    fate_bar,
    headline,
    kinds_text,
    loss_line,
    percent_down,
    plain,
    share_text,
    shift_text,
    short,
    spark,
)
from streamer.views import summary
from tests.hub.reports import stream
from tests.hub.scene import scene


@given(st.integers(1, 10**15).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_all_is_said_of_all_only(part_whole: tuple[int, int]) -> None:
    part, whole = part_whole
    text = percent_down(part, whole)
    assert (text == "100.0 %") == (part == whole)
    assert abs(float(text.removesuffix(" %")) - 100 * part / whole) <= 0.1 + 1e-9


def test_loss_line() -> None:
    def line(size: int, decoded: int, shed: int, **lost: int) -> str:
        return loss_line({"bytes": size, "decoded": decoded, "shed": shed, "lost": lost})

    assert line(0, 0, 0) == "no trace bytes"
    assert line(2000, 2000, 0) == "100.0 % of 2.0 kB of trace decoded; nothing lost"
    assert (
        line(10**7, 9_820_000, 0, code_missing=60_000, desync=120_000)
        == "98.2 % of 10.0 MB of trace decoded; lost: 120.0 kB desync, 60.0 kB code missing"
    )
    assert (
        line(10**7, 10**7, 6_009_000)
        == "100.0 % of 10.0 MB of trace decoded, 60.0 % of that by its addresses only (shed); nothing lost"
    )


@given(st.floats(0, 1), st.floats(0.01, 1))
def test_bars_are_proportional_to_an_eighth_of_a_character(share: float, largest: float) -> None:
    drawn = bar(min(share, largest), largest)
    eighths = sum(" ▏▎▍▌▋▊▉█".index(c) for c in drawn)
    assert eighths == pytest.approx(8 * 12 * min(share, largest) / largest, abs=0.5)
    assert len(drawn) <= 12


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, "org.apache.fop.area.LineArea.addInline"),
        (37, "o.apache.fop.area.LineArea.addInline"),
        (33, "o.a.fop.area.LineArea.addInline"),
        (28, "o.a.f.a.LineArea.addInline"),
        (25, "LineArea.addInline"),
        (16, "Li…rea.addInline"),
        (12, "LineA…Inline"),
        (3, "L…e"),
        (1, "…"),
    ],
)
def test_a_name_is_made_short_by_its_packages_first(width: int, shown: str) -> None:
    assert short("org.apache.fop.area.LineArea.addInline", width) == shown
    assert len(shown) <= width


@given(st.text(max_size=60), st.integers(1, 60))
def test_any_name_fits(name: str, width: int) -> None:
    assert len(short(name, width)) <= width
    assert short(name, max(1, len(name))) == name


def test_what_is_no_method_loses_its_middle() -> None:
    assert short("[interpreter] invokevirtual", 16) == "[interp…evirtual"
    assert short("Shop$Recommender.distance", 20) == "Shop$…ender.distance"


def test_a_sparkline_is_as_high_as_its_highest_and_the_newest_is_at_the_right() -> None:
    assert spark([0.0, 0.125, 0.5, 1.0], 4) == " ▁▄█"
    assert spark([0.2, 0.1], 4) == "  █▄"
    assert spark([0.0, 0.0, 0.0, 1.0, 1.0], 3) == "  █"
    assert spark([1e-9, 1.0], 2) == "▁█"  # a little is not nothing
    assert spark([], 3) == spark([0.0], 3) == "   "


@given(st.lists(st.floats(0, 1), max_size=400), st.integers(1, 40))
def test_a_sparkline_has_its_width(values: list[float], width: int) -> None:
    assert len(spark(values, width)) == width


def test_the_bar_of_fates_shows_each_that_there_is() -> None:
    def drawn(size: int, decoded: int, shed: int, duty: float) -> str:
        return fate_bar({"coverage": {"bytes": size, "decoded": decoded, "shed": shed}, "duty": duty}, 10).plain

    assert drawn(1000, 1000, 0, 1.0) == "██████████  █ observed 100.0 %"
    assert (
        drawn(1000, 999, 200, 0.5) == "████▒×····  █ observed 40.0 %  ▒ shed 10.0 %  × lost < 0.1 %  · off duty 50.0 %"
    )
    assert drawn(0, 0, 0, 1.0) == "no trace"
    assert drawn(0, 0, 0, 0.2).endswith("off duty 80.0 %")


def test_an_interval_that_says_nothing_is_told_to_be_too_early() -> None:
    assert share_text({"share": 0.123, "sure": 0.004}) == "12.3 ± 0.4 %"
    assert share_text({"share": 0.123, "sure": 0.45}) == "12 ± 45 %?"
    assert share_text({"share": 0.0, "sure": 0.0}) == "0.0%"


def test_the_cost_is_told_by_part_and_against_the_budget() -> None:
    cost = summary.Cost({"decode": 9.0, "capture": 1.5, "supervisor": 1.5}, 60.0, 0.25)
    assert cost.line() == (
        "CPU of the pipeline: 12.0 s (20.0% of a core): decode 9.0 s (15.0%), capture 1.5 s (2.5%), "
        "supervisor 1.5 s (2.5%); the budget is 25.0% of a core, from when kernels are ready"
    )
    assert summary.Cost().line() is None
    hub, _ = scene()
    assert "CPU of the pipeline: 12.0 s (20.0%" in summary.render(hub, cost=cost)


def test_small_words() -> None:
    assert plain("a\x1b[31m\nb\u202e") == "a?[31m?b?"
    assert [bytes_text(n) for n in (0, 999, 1000, 1_500_000, 2 * 10**9)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.5 MB",
        "2.0 GB",
    ]
    assert kinds_text({"c1": 0.25, "c2": 0.745, "stub": 0.005}) == "C2 74%, C1 25%"
    moved = {"now": 0.3, "before": 0.1, "moved": "up"}
    assert (shift_text(moved).plain, shift_text(moved).style) == ("▲ +20.0", "red bold")
    assert shift_text({"now": 0.1, "before": 0.3, "moved": None}).plain == "▼ −20.0"
    assert shift_text({"now": 0.1, "before": 0.102, "moved": None}).plain == ""
    assert [summary.duration(s) for s in (1.23, 200, 7500)] == ["1.2 s", "3 min 20 s", "2 h 5 min"]


def test_headline_names_trouble() -> None:
    hub, _ = scene()
    assert headline(hub.hot().json()).endswith("1 process · lag 0.1 s · shift 63% (unusual) · 1 restart")
    hub.heartbeat({"component": "worker-0", "up": False, "restarts": 2})
    assert headline(hub.hot().json()).endswith("2 restarts · worker-0 is down")
    hub.heartbeat({"component": "worker-1", "up": False, "state": "starting", "deaths_in_a_row": 0})
    assert headline(hub.hot().json()).endswith("2 restarts · worker-0 is down")  # the other one only begins
    assert any("worker-1 is starting" in reason for reason in hub.ready())
    hub, _ = scene(fidelity="flow", shed=400_000)
    assert headline(hub.hot().json()).endswith("shift 63% (unusual) · 40% of the trace shed · 1 restart")


def test_a_stretch_is_told_by_the_clock() -> None:
    hub, _ = scene()
    begin = headline(hub.hot("940.000..950.500").json()).split(" · ")[0]
    assert re.fullmatch(r"\d\d:\d\d:40 – \d\d:\d\d:50", begin)


def test_summary_of_a_run() -> None:
    hub, clock = scene()
    clock.seconds += 80
    text = summary.render(hub, hub.finish({stream(): 80_001_000}), top=3)
    assert text.startswith("Run: 1 min 20 s, 1 process, 80 panes, 81,900 hits (fidelity ip)\n")
    assert ["37.4%", "█" * 12, "org.apache.fop.fonts.GlyphTable.lookup", "C2"] in [x.split() for x in text.splitlines()]
    assert "99.9 % of 80.0 MB of trace decoded; lost: 48.0 kB desync, 900 B code missing, 100 B worker down\n" in text
    assert "holes since the start: 12 × overflow, 1 × worker down, 1 × code missing, 4 × desync\n" in text
    assert "written 80,001,000 B = decoded 79,952,000 B + in holes 49,000 B, on 1 stream\n" in text
    assert "restarts: worker-0 × 1\n" in text
    assert "late reports: 1" in text
    assert "\x1b" not in text
    assert "\x1b" in summary.render(hub, color=True)


def test_summary_says_what_was_shed() -> None:
    hub, _ = scene(fidelity="flow", shed=400_000)
    balances = hub.finish({stream(): 80_000_900})
    assert "99.9 % of 80.0 MB of trace decoded, 40.0 % of that by its addresses only (shed)" in summary.render(hub)
    (figures,) = summary.figures(hub, balances)["streams"]
    assert figures["shed"] == 80 * 400_000
    assert summary.figures(hub, balances)["run"]["run"]["shed"] == 80 * 400_000


def test_summary_says_so_when_the_books_do_not_balance() -> None:
    hub, _ = scene()
    text = summary.render(hub, hub.finish({stream(): 80_000_000}))
    assert "THE BOOKS DO NOT BALANCE on 1 stream, by 900 B (+900 B): written 80,000,000 B" in text


def test_summary_of_nothing() -> None:
    text = summary.render(Hub(now=lambda: 0.0))
    assert text == "Run: 0.0 s, 0 processes, 0 panes\nNo method was seen.\nno trace bytes\nrestarts: none\n"


def test_the_summary_says_what_could_not_be_written() -> None:
    hub, _ = scene()
    assert "output lost: 5.0 MB of recording (ENOSPC), 700 B of stderr (EPIPE)\n" in summary.render(hub)
    assert summary.figures(hub)["lost_output"] == {"recording/ENOSPC": 5_000_000, "stderr/EPIPE": 700}
