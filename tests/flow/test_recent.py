"""Rows by address, the last added first, against lists."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.follow.repair.recent import Recent

EACH, MOST = 3, 12


EDGES = st.integers(0, 3) | st.integers((1 << 63) - 2, (1 << 63) + 1)  # of both halves of the address space


@given(st.lists(st.tuples(EDGES, st.integers(0, 4)), max_size=60))
def test_the_last_of_each_address_are_kept(added: list[tuple[int, int]]) -> None:
    recent = Recent(2, np.int64, EACH, most=1000)
    known: dict[int, list[int]] = {}
    for address, value in added:
        recent.add(address, np.array([value, 7]))
        known[address] = [value, *(other for other in known.get(address, []) if other != value)][:EACH]
    assert recent.address.tolist() == [address for address in sorted(known) for _ in known[address]]
    assert recent.value.tolist() == [[value, 7] for address in sorted(known) for value in known[address]]


def test_the_oldest_go() -> None:
    recent = Recent(1, np.uint8, EACH, MOST)
    for address in range(40, 0, -1):
        recent.add(address, np.array([address], np.uint8))
        assert len(recent.address) <= MOST
        assert recent.address[0] == address
        assert np.all(np.diff(recent.address) == 1)
    recent.add(1, np.array([9], np.uint8))
    assert recent.value[:2].tolist() == [[9], [1]]


def test_what_is_added_again_is_new() -> None:
    recent = Recent(1, np.uint8, EACH, MOST)
    for address in range(MOST):
        recent.add(address, np.array([7], np.uint8))
    for address in range(MOST):
        recent.add(address, np.array([7], np.uint8))
    recent.add(MOST, np.array([7], np.uint8))
    assert recent.address.tolist() == list(range(MOST // 2 + 1, MOST + 1))


def test_what_was_handed_out_stays() -> None:
    recent = Recent(1, np.uint8, EACH, MOST)
    recent.add(5, np.array([1], np.uint8))
    address, value = recent.address, recent.value
    recent.add(5, np.array([2], np.uint8))
    assert (address.tolist(), value.tolist()) == ([5], [[1]])
