"""The size of control flow in a trace: by hand, and against the bytes that a trace really has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import streamer.demo
from benchmarks.recovery.control_flow import FOLLOW
from capture.recording.replay import Replay
from jvm.kernels import kernel
from stages.messages import Chunk
from stages.messages.paths import BlockEnd, Way
from stages.recover import append
from stages.recover.stage import Recover
from stages.recover.trace_size import BYTE, EC, ENCODED_DTYPE, encode
from stages.recover.window import WAYS
from streamer import config
from streamer.pipeline.topology import Place, feed_chain, make_chain
from tests.recover.made import write_at_once

NEAR, SAME_4G, FAR = 0x7F12_3456_0100, 0x7F12_0000_0000, 0x5555_0000_0000


@kernel
def encoded(blocks, steps):  # type: ignore[no-untyped-def]
    e = np.zeros(EC, np.int64)
    for step in steps:
        encode(e, blocks, step)
    return e[0]


def size(*path: tuple[int, int, BlockEnd, Way]) -> int:
    """Of blocks: address, calls that return behind it, end and way."""
    blocks = np.array([(at, calls, end) for at, calls, end, _ in path], ENCODED_DTYPE)
    steps = np.array([WAYS * k + way for k, (_, _, _, way) in enumerate(path)], np.int32)
    return int(encoded(blocks, steps))


def test_a_branch_is_a_bit_and_a_tip_as_long_as_its_address_differs() -> None:
    bit = (NEAR, 0, BlockEnd.CONDITION, Way.TAKEN)
    assert size(bit) == 1
    assert size(*[bit] * 12) == 12
    jump, end = BlockEnd.INDIRECT, BlockEnd.UNKNOWN
    first = size((NEAR, 0, jump, Way.UNKNOWN), (NEAR, 0, end, Way.UNKNOWN))
    assert first == 7 * BYTE
    for to, more in ((NEAR + 4, 3), (SAME_4G, 5), (FAR, 7)):
        path = [(NEAR, 0, jump, Way.UNKNOWN), (NEAR, 0, jump, Way.UNKNOWN), (to, 0, end, Way.UNKNOWN)]
        assert size(*path) == first + more * BYTE
    assert size(bit, (NEAR, 0, jump, Way.UNKNOWN), (NEAR, 0, end, Way.UNKNOWN)) == BYTE + first


def test_a_return_is_a_bit_if_the_trace_has_its_call() -> None:
    back, end = BlockEnd.RETURN, BlockEnd.UNKNOWN
    assert size((NEAR, 1, back, Way.UNKNOWN), (NEAR, 0, end, Way.UNKNOWN)) == 1
    assert size((NEAR, 0, back, Way.UNKNOWN), (NEAR, 0, end, Way.UNKNOWN)) == 7 * BYTE
    path = [(NEAR, 100, back, Way.UNKNOWN), *[(NEAR, 0, back, Way.UNKNOWN)] * 64, (NEAR, 0, end, Way.UNKNOWN)]
    assert size(*path) == 64 + (-64) % BYTE + 7 * BYTE  # no more than 64 are remembered


def test_it_is_that_of_a_real_trace_but_for_a_share_that_does_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time packets and PSB+ are 4 to 9 % of the demo's trace, while its steps a byte differ by a factor of 1.5."""
    sizes, steps = [], []

    def rows(p: object, message: object, found: np.ndarray, lost: object, first: int, end: int) -> None:
        m = message.rows[first:end]  # type: ignore[attr-defined]
        large = m["end"] - m["offset"] > 2000
        length = (m["end"] - m["offset"])[large]
        sizes.extend((found[first:end][large][:, append.F_SIZE] / BYTE / length).tolist())
        steps.extend((found[first:end][large][:, append.F_STEPS] / length).tolist())

    write_at_once(monkeypatch)
    monkeypatch.setattr(Recover, "_wait", staticmethod(rows))
    monkeypatch.setattr("stages.ready.stage.HOLD_SECONDS", 0.1)  # pieces short enough to differ
    chain = [*make_chain(FOLLOW, Place(config.load(fidelity="flow"), tmp_path, 0)), Recover(window_bytes=8 << 20)]
    seen = 0
    with Replay(Path(streamer.demo.__file__).parent / "shop.json") as replay:
        for message in replay.messages():
            for _ in feed_chain(chain, message):
                pass
            seen += len(message.data) if isinstance(message, Chunk) else 0
            if seen > 16_000_000:
                break
    low, middle, high = np.quantile(sizes, (0.25, 0.5, 0.75))
    assert 0.85 < middle < 1
    assert high / low < 1.1
    assert np.quantile(steps, 0.9) / np.quantile(steps, 0.1) > 1.4
