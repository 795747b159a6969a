from __future__ import annotations

from pathlib import Path

import pytest

from streamer import config
from streamer.topology import Place
from streamer.warm import warm


@pytest.mark.parametrize("fidelity", ["ip", "flow"])
def test_every_stage_of_the_chain_is_reached(fidelity: str, tmp_path: Path) -> None:
    place = Place(config.load(fidelity=fidelity), tmp_path, 0)
    last = {"ip": "attribute", "flow": "reconstruct"}[fidelity]
    assert warm(("decode",), place) > 0
    assert warm((last,), place) > 0


def test_stages_of_others_are_left_alone(tmp_path: Path) -> None:
    assert warm(("tests.supervisor.parts:count",), Place(config.load(), tmp_path, 0)) == 0
