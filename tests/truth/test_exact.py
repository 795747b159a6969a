"""The part of a recording over which decoders are raced."""

from __future__ import annotations

from pathlib import Path

import streamer.demo
from benchmarks import exact
from jvm.code.snapshot import CodeView
from stages.decode.stage import Decode
from stages.follow.flow import Flow
from stages.messages import Chunk, Decoded, StreamOpen, ThreadKey
from tests.flow.helpers import breaks, segment

SHOP = Path(streamer.demo.__file__).parent / "shop.json"


def test_one_state_of_the_code_explains_it() -> None:
    part = exact.longest(SHOP, 1 << 19)
    assert part is not None
    assert bytes(part.data[:16]) == b"\x02\x82" * 8
    assert 1 << 16 < len(part.data) <= 1 << 19
    decode = Decode()
    decode.feed(StreamOpen(part.stream, part.config, None))  # type: ignore[arg-type]
    flow = Flow(part.config)
    flow.set_code(part.code)
    instructions, thread = 0.0, ThreadKey(part.stream.host, part.stream.pid, 1)
    for k, message in enumerate(decode.feed(Chunk(part.stream, 0, 0, part.data))):
        if isinstance(message, Decoded):
            outputs = flow.feed(
                segment(message.data, offset=message.offset, last_ip=message.last_ip, continues=k > 0, thread=thread)
            )
            assert not breaks(outputs)
            instructions = flow.statistics()["instructions"]
    assert instructions > 1e6


def test_a_piece_in_which_a_call_was_put_right_is_no_part_of_it() -> None:
    flow = Flow()
    flow.set_code(CodeView.of([(0x1000, b"\x90" * 64)]))
    search = exact._Search(8000)
    for begin in range(0, 4000, 1000):
        if begin == 1000:
            flow.patch(0x1000, b"\xcc")
        search.walked(flow, segment(bytes(1000), offset=begin, continues=begin > 0), [])
    assert search.best is not None
    assert search.best[1:] == (2000, 4000)


def test_a_recording_that_is_too_short_has_none() -> None:
    assert exact.longest(SHOP, 1 << 40) is None
