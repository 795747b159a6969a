"""Keys of the terminal, and the ways they lead."""

from __future__ import annotations

import pytest

from streamer.keyboard import keys
from streamer.navigation import Place, Row

VIEW = {"windows": ["10s", "1m"], "window": "10s", "weights": ["instructions", "time"], "weight": "instructions"}
SPENDINGS = ["instructions", "invocations"]
TABLE = [Row("", "A.a"), Row("", "B.b"), Row("", "C.c")]
AROUND = [Row("called by", "A.a"), Row("calls", "A.a")]


def after(place: Place, pressed: str, rows: list[Row] | None = None) -> Place:
    for key in pressed.split():
        place = place.after(key, TABLE if rows is None else rows, VIEW, SPENDINGS)
    return place


@pytest.mark.parametrize(
    ("text", "pressed"),
    [
        ("q", ["q"]), ("\x1b[A\x1b[B", ["up", "down"]), ("\x1bOA\x1bOD", ["up", "left"]), ("\r\n", ["enter", "enter"]),
        ("\x7f\x08", ["back", "back"]), ("\x1b", ["escape"]), ("\x1b[5~w", ["\x1b[5~", "w"]), ("", []),
        ("\x1b[1;5Cé", ["\x1b[1;5C", "é"]),
    ],
)  # fmt: skip
def test_keys(text: str, pressed: list[str]) -> None:
    assert keys(text) == pressed


@pytest.mark.parametrize(
    ("pressed", "chosen"),
    [("down", 0), ("down down", 1), ("down down down down", 2), ("j j k", 0), ("up", 0), ("down up up", 0)],
)
def test_a_row_is_chosen_and_the_ends_hold(pressed: str, chosen: int) -> None:
    assert after(Place(), pressed).chosen == TABLE[chosen]


def test_the_choice_stays_with_its_method_when_rows_change_places() -> None:
    place = after(Place(), "down down")
    assert after(place, "up", [TABLE[2], TABLE[1], TABLE[0]]).chosen == TABLE[2]
    assert after(place, "down", [TABLE[0]]).chosen == TABLE[0]  # it has gone
    assert after(place, "enter", [TABLE[0]]) == place
    assert after(Place(), "down", []) == Place()


def test_the_way_there_and_back() -> None:
    first = after(Place(), "down down enter")
    assert (first.way, first.chosen) == ((TABLE[1],), None)
    second = after(first, "down down right", AROUND)
    assert second.way == (TABLE[1], AROUND[1])  # of two rows with one name, the second
    assert after(second, "left", []) == Place(way=(TABLE[1],), chosen=AROUND[1])
    assert after(second, "back escape escape", []) == Place(chosen=TABLE[1])
    assert after(Place(), "enter left escape") == Place()


def test_windows_weights_and_orders() -> None:
    assert after(Place(), "w").window == "1m"
    assert after(Place(), "b").weight == "time"
    assert after(Place(), "s").sort == "shift"
    inside = after(Place(), "down enter")
    assert after(inside, "b").spent == "invocations"
    assert after(inside, "b s").weight is None
    assert after(inside, "s") == inside
    assert after(inside, "w").window == "1m"
    assert after(Place(), "x") == Place()


def test_a_choice_asks_for_nothing_new() -> None:
    assert Place().asks_as(after(Place(), "down"))
    assert not Place().asks_as(after(Place(), "w"))
    assert not Place().asks_as(after(Place(), "down enter"))
