"""The order of paths: repetitions, packing."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from stages.follow.walk import path_sequence as orders

_runs = some.lists(some.tuples(some.integers(0, 40), some.integers(0, 300)), max_size=60)


def _order(runs: list[tuple[int, int]]) -> list[int]:
    return [x for path, more in runs for x in ([path, -more] if more % 3 == 0 and more else [path])]


@settings(deadline=None)
@given(_runs)
def test_repetitions_are_written_out(runs: list[tuple[int, int]]) -> None:
    order = _order(runs)
    plain: list[int] = []
    for x in order:
        plain += [x] if x >= 0 else [plain[-1]] * -x
    assert orders.paths(np.array(order, np.int32)).tolist() == plain


@settings(deadline=None)
@given(_runs)
def test_what_is_packed_can_be_unpacked(runs: list[tuple[int, int]]) -> None:
    order = np.array(_order(runs), np.int32)
    assert orders.unpack(orders.pack(order), len(order), 41).tolist() == order.tolist()


@settings(deadline=None)
@given(some.binary(max_size=60), some.integers(0, 50))
def test_hostile_bytes(data: bytes, length: int) -> None:
    try:
        order = orders.unpack(np.frombuffer(data, np.uint8), length, 10)
    except ValueError:
        return
    assert len(order) == length
    assert (order < 11).all()


def test_what_repeats_costs_nothing() -> None:
    pattern = [Random(1).randrange(5, 1000) for _ in range(50)]
    assert len(orders.pack(np.array(list(dict.fromkeys(pattern)) * 1000, np.int32))) < 300
    with pytest.raises(ValueError, match="no packed order"):
        orders.unpack(np.zeros(3, np.uint8), 5, 10)
