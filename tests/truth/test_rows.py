"""Follow's messages about pieces, as their readers need them: rows in order, each with its own bytes, loops told as
loops."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.flow_truth.reader import Reader
from jvm.code.image import CodeImage
from jvm.code.snapshot import CodeView
from stages.follow import coalescing
from stages.follow.batch import Batch
from stages.follow.flow import Capacity, Flow
from stages.follow.stage import rest_of
from stages.images import Images
from stages.messages import PIECE_DTYPE, Paths, Pieces, Segment, StreamKey, ThreadKey
from stages.messages.paths import BlockEnd
from stages.ready.stage import MOST_BYTES, Ready
from tests.flow.helpers import segment
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, Processor, program


def told(flow: Flow, piece: Segment) -> list[Paths]:
    """As the stage tells it."""
    batch, out, rest = Batch(("here", 1), CodeImage()), list[Paths](), piece
    for output in flow.feed(piece):
        if batch.other_generation(output):
            out.append(batch.take())
        batch.add(rest, output, 0, ())
        rest = rest_of(rest, output.end)
    return [*out, batch.take()]


def test_a_piece_in_several_generations_is_told_in_rows_that_join() -> None:
    rng = Random(5)
    code, instructions = program(rng, 4000)
    processor = Processor(rng, instructions)
    processor.run(60000)
    flow = Flow(capacity=Capacity(blocks=1 << 16, paths=4096, tnt_cache=4096, pool=1 << 17, nodes=64, contexts=1 << 14))
    flow.set_code(CodeView.of([(BASE, code)]))
    piece = segment(processor.trace, offset=1000, tsc=(7, 9))
    messages = told(flow, piece)
    assert len(messages) == 1 + flow.statistics()["generations"] > 1
    rows = np.concatenate([message.rows for message in messages])
    assert rows["offset"].tolist() == [1000, *rows["end"][:-1].tolist()]
    assert rows["end"][-1] == 1000 + len(piece.data)
    assert rows["continues"].tolist() == [0] + [1] * (len(rows) - 1)
    assert rows["goes_on"].tolist() == [1] * (len(rows) - 1) + [0]
    assert (rows["tsc"][0], rows["tsc_end"][-1]) == (7, 9)
    assert rows["tsc"][1:].tolist() == rows["tsc_end"][:-1].tolist()
    reader, ran = Reader(), list[int]()
    for message in messages:
        for _, taken in reader.rows(message):
            at, _ = reader.dictionary.addresses(taken.blocks[taken.blocks >= 0])
            ran += at.tolist()
    assert ran == processor.executed


def test_a_loop_without_a_packet_is_told_as_one() -> None:
    """It is left by an interrupt: of how often it had gone round the trace says nothing."""
    flow = Flow()
    flow.set_code(CodeView.of([(BASE, b"\x90\xeb\xfd")]))  # nop; jmp back
    trace = w.psb() + w.mode_exec(64) + w.psbend() + w.tip_pge(BASE) + w.fup(BASE + 1) + w.tip_pgd()
    (message,) = told(flow, segment(trace))
    assert message.blocks["ends"].tolist() == [BlockEnd.LOOP]
    straight = Flow()
    straight.set_code(CodeView.of([(BASE, b"\x90\x90\xff\xe0")]))
    (message,) = told(straight, segment(trace))
    assert message.blocks["ends"].tolist() == [BlockEnd.EVENT]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=12))
def test_rows_of_a_stream_come_in_the_order_of_its_bytes(pieces: list[tuple[int, int, int]]) -> None:
    """Also where several begin at one time: of a thread, a stream, so long later."""
    rows = np.zeros(len(pieces), PIECE_DTYPE)
    now, offset = 0, [0, 0]
    for row, (tid, stream, later) in zip(rows, pieces, strict=True):
        now += later
        row["tid"], row["stream"], row["tsc"], row["tsc_end"], row["offset"] = tid, stream, now, now, offset[stream]
        row["begin"], row["end"] = offset[stream], offset[stream] + 1
        offset[stream] += 1
    rows = rows[np.lexsort((rows["tsc"], rows["tid"]))]
    first, _ = coalescing.runs(rows, 1)
    ran = rows[first]
    assert (np.diff(ran["tsc"].astype(np.int64)) >= 0).all()
    for stream in range(2):
        assert (np.diff(ran["offset"][ran["stream"] == stream].astype(np.int64)) > 0).all()


def test_a_release_that_is_cut_goes_on_in_order_of_time() -> None:
    """A thread's pieces of another CPU may be told of later, though they come first."""
    none = segment(b"").marks
    large = np.zeros(MOST_BYTES, np.uint8)

    def piece(cpu: int, tsc: int) -> Segment:
        key = StreamKey("h", 1, cpu, -1)
        return Segment(ThreadKey("h", 1, 5), key, 0, 0, large, none, 0, tsc, tsc + 1, False)

    ready = Ready(Images())
    held = ready._of("h", 1)
    held.now = 1  # so they wait
    for each in (piece(1, 30), piece(0, 10), piece(2, 20)):
        assert not ready.feed(each)
    told = [message for message in ready.flush() if isinstance(message, Pieces)]
    assert [message.rows["tsc"].tolist() for message in told] == [[10], [20], [30]]
