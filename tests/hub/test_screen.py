"""The live table in terminals of any width."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from streamer.hub.hub import Hub
from streamer.hub.screen import DROPPED, LEAST_METHOD, MethodsTable, screen
from streamer.hub.timeline import lately, timeline
from tests.hub.scene import scene

HEADS = {"bytecodes": "bytecodes", "invocations": "invocations", "ran as": "ran as", "shift": "shift"}


def lines(width: int, *, invocations: bool = True, bytecodes: bool = True) -> list[str]:
    view = scene()[0].hot().json()
    for m in view["methods"]:
        m["invocations"] = 1_234_567 if invocations else 0
        m["bytecodes"], m["bytecodes_about"] = (7_654_321, True) if bytecodes else (None, False)
        m["kinds"] = {"c2": 0.78, "c1": 0.22}
    out = io.StringIO()
    Console(file=out, width=width).print(MethodsTable(view))
    return out.getvalue().splitlines()


def shown(table: list[str]) -> set[str]:
    text = "\n".join(table)
    return {name for name, head in HEADS.items() if head in table[1]} | ({"bar"} if "█" in text else set())


@pytest.mark.parametrize(
    "width", [width if width % 3 == 2 else pytest.param(width, marks=pytest.mark.nightly) for width in range(20, 141)]
)
def test_the_method_stays_and_what_is_shown_is_whole(width: int) -> None:
    table = lines(width)
    assert all(cell_len(line) <= width for line in table)
    assert "share" in table[1]
    assert "method" in table[1]
    columns = shown(table)
    order = [name for name in DROPPED if name != "lately"]  # of which nothing is told here
    assert columns == set(order[len(order) - len(columns) :])  # the first of them went first
    whole = {
        "bytecodes": "≈ 7,654,321", "invocations": "1,234,567", "ran as": "C2 78%, C1 22%", "shift": "▲ +54.9",
        "bar": "█" * 12,
    }  # fmt: skip
    for name in columns:
        assert whole[name] in "\n".join(table)
    assert width < 50 or all("script" in line for line in table if "…" in line)  # that one is no method's name
    head = table[1]
    begin = head.index("method")
    ends = [head.index(n) for n in ("ran as", "invocations", "bytecodes") if n in head and n in columns]
    room = (min(ends) if ends else width) - begin
    assert room >= min(LEAST_METHOD, width - begin)


def test_at_80_columns_a_method_has_room() -> None:
    table = lines(80)
    assert shown(table) == {"ran as", "shift", "invocations"}
    assert any("PDFStream.deflate" in line for line in table)


def test_a_wide_terminal_shows_everything() -> None:
    assert shown(lines(140)) == {"bar", "bytecodes", "invocations", "ran as", "shift"}
    assert shown(lines(120, bytecodes=False)) == {"bar", "invocations", "ran as", "shift"}
    assert shown(lines(120, invocations=False, bytecodes=False)) == {"bar", "ran as", "shift"}


def test_invocations_that_are_not_known_or_a_lower_bound() -> None:
    view = scene()[0].hot().json()
    method = view["methods"][0]
    known = {"m0": (12, False), "m1": (1_234, True), "m2": (None, False), "m3": (None, True), "m4": (0, False)}
    shown = {"m0": "12", "m1": "≥ 1,234", "m2": "–", "m3": "–", "m4": "0"}

    def cells(names: list[str]) -> dict[str, str]:
        view["methods"] = [
            {**method, "method": m, "invocations": known[m][0], "at_least": known[m][1], "kinds": {"c1": 1.0}}
            for m in names
        ]
        out = io.StringIO()
        Console(file=out, width=120).print(MethodsTable(view))
        rows = [line.split(" C1 ") for line in out.getvalue().splitlines() if " C1 " in line]
        return {row[0].split()[-1]: row[1].strip() for row in rows}

    assert cells(list(known)) == shown
    assert cells(["m2"]) == {"m2": "–"}  # not known is not none


METHODS = {  # each as it may be written: whole, or with its packages shortened; Class.method is never cut
    "org.apache.fop.pdf.PDFStream.deflate": "PDFStream.deflate",
    "java.util.HashMap.getNode": "HashMap.getNode",
    "org.apache.fop.fonts.GlyphTable.lookup": "GlyphTable.lookup",
    "org.apache.fop.util.Helper.m17": "Helper.m17",
}


def of_top(hub: Hub) -> dict[str, Any]:
    return timeline(hub, window="10s", most_bands=20).json()


@pytest.mark.parametrize("lanes", [of_top, lately])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_whole_screen_of_top_and_of_a_run(width: int, lanes: Callable[[Hub], dict[str, Any]]) -> None:
    hub, _ = scene(fidelity="flow", shed=400_000)
    view = hub.hot().json() | {"timeline": lanes(hub)}
    out = io.StringIO()
    console = Console(file=out, width=width)
    for part in screen(view):
        console.print(part)
    text = out.getvalue()
    assert all(cell_len(line) <= width for line in text.splitlines())
    for whole, least in METHODS.items():
        (line,) = (line for line in text.splitlines() if least in line)
        name = next(word for word in line.split() if word.endswith(least))
        assert whole.split(".")[-2:] == name.split(".")[-2:]
        assert all(w.startswith(p) for w, p in zip(whole.split("."), name.split("."), strict=True))
        assert name == whole or width < 120
    assert all("script" in line for line in text.splitlines() if "…" in line)
    (hottest,) = (line for line in text.splitlines() if "PDFStream.deflate" in line)
    # sixty seconds, the last ten of them behind the shift: a sixth of the sparkline
    assert ("lately" in text) == (" " * 10 + "██" in hottest) == (width >= 80)
    assert ("C2" in hottest) == (width >= 80)
    assert ("█" * 12 in hottest) == (width >= 120)
    (bar,) = (line for line in text.splitlines() if "observed" in line)
    assert "█ observed 59.9 %  ▒ shed 40.0 %  × lost 0.1 %" in bar


def test_an_early_interval_has_its_legend() -> None:
    view = scene()[0].hot(top=3).json()
    for sure, told in ((0.0, False), (0.9, True)):
        view["methods"][0]["sure"] = sure
        out = io.StringIO()
        Console(file=out, width=80).print(MethodsTable(view))
        assert ("too early to say" in out.getvalue()) is told
        assert ("55 ± 90 %?" in out.getvalue()) is told
