"""Which contexts gained and which lost: floors, hysteresis, and as /api/shift tells it."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import numpy as np
import pytest
import trio
from numpy.typing import NDArray

from stages.cct.measures import paired
from stages.cct.tree import Tree
from stages.messages import TREE_DTYPE, TreeReport
from streamer.config import WebConfig
from streamer.hub.context_shift import ContextShift, Path, compared
from streamer.views import web
from tests.hub.scene import scene

NAMES = ("[thread]", "A.main", "B.old", "C.new")
MILLION = 1_000_000


def rows(main: int, old: int, new: int) -> NDArray[np.void]:
    out = np.zeros(4, TREE_DTYPE)
    out["parent"], out["method"], out["bci"] = (-1, 0, 1, 1), (0, 1, 2, 3), (7, -1, 4, 9)
    out["observed_instructions"] = (0, main, old, new)
    return out


def shift(before: tuple[int, int, int], now: tuple[int, int, int], listed: frozenset[Path] = frozenset(),
          panes: tuple[int, int] = (60, 10)) -> ContextShift:  # fmt: skip
    sides = [Tree(rows(*of), NAMES) for of in (before, now)]
    weights = [(side, side.nodes["observed_instructions"]) for side in sides]
    return compared(paired(*weights), panes, listed)


def test_gains_and_losses() -> None:
    found = shift((60 * MILLION, 540 * MILLION, 0), (10 * MILLION, 40 * MILLION, 50 * MILLION))
    assert [(c.path, round(c.gain, 9), round(c.total_now, 9)) for c in found.contexts] == [
        (("A.main", "B.old"), -0.5, 0.4),
        (("A.main", "C.new"), 0.5, 0.5),
    ]
    assert (found.why, round(found.distance, 9), round(found.overlap, 9)) == ("", 0.5, 0.5)
    assert found.hot_edge_coverage == 1.0  # main and old, which were hot, still are


@pytest.mark.parametrize(("now", "why"), [((MILLION, 0, 0), True), ((11 * MILLION, 0, 0), True),
                                          ((50 * MILLION, 0, 0), False)])  # fmt: skip
def test_a_window_that_holds_too_little(now: tuple[int, int, int], why: bool) -> None:
    """Less than the least; a fiftieth a pane of the time before; a tenth."""
    found = shift((3000 * MILLION, 0, 0), now)
    assert bool(found.why) == why


def test_one_at_the_threshold_does_not_come_and_go() -> None:
    before = (900 * MILLION, 100 * MILLION, 0)

    def listed(permille: int, last: frozenset[Path]) -> frozenset[Path]:
        return shift(before, (1000 * MILLION - (100 + permille) * MILLION, (100 + permille) * MILLION, 0), last).paths

    none: frozenset[Path] = frozenset()
    both = frozenset({("A.main",), ("A.main", "B.old")})
    assert listed(19, none) == none
    assert listed(21, none) == both
    assert listed(11, both) == both
    assert listed(9, both) == none
    assert listed(11, none) == none


async def test_as_json() -> None:
    hub, _ = scene()
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))

        async def asked() -> dict[str, Any]:
            def get() -> bytes:
                with urllib.request.urlopen(f"{url}/api/shift?top=1") as answer:
                    return bytes(answer.read())

            found: dict[str, Any] = json.loads(await trio.to_thread.run_sync(get))
            return found

        young = await asked()
        for pane in range(40):
            of = (MILLION, 9 * MILLION, 0) if pane < 30 else (MILLION, 4 * MILLION, 5 * MILLION)
            hub.trees.feed(TreeReport("h", 42, 0, pane, rows(*of), NAMES))
        old = await asked()
        nursery.cancel_scope.cancel()
    assert "younger" in young["why"]
    assert (old["why"], old["weight"], round(old["distance"], 9)) == ("", "instructions", 0.5)
    (context,) = old["contexts"]
    assert context["path"] == ["A.main", "B.old"]
    assert round(context["gain"], 9) == -0.5
