"""Threads, streams, classes, methods and code that come and go by the thousand leave nothing behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from stages import images
from stages.cct import stage as cct
from stages.follow import flow
from stages.follow.repair import call_targets as callees
from stages.messages import (
    Account,
    Chunk,
    Clock,
    JitBatch,
    PaneReport,
    PtConfig,
    SideKind,
    StreamEnd,
    StreamKey,
    StreamOpen,
    Tick,
    TreeReport,
)
from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from streamer.pipeline.topology import feed_chain
from tests.growth import grown, sizes
from tests.jvm.exportwriter import Writer
from tests.stages import chains
from tests.stages.ptbytes import pgd, pge, psb_plus, tip, tsc
from tests.stages.test_segment import sideband

SECOND = 1 << 20  # ticks
LOW, HIGH = 0x100000, 0x200000
CPU = StreamKey("h", 42, 0, -1)
CLOCK = Clock(1_000_000_000, 20, 0, 0)  # ns = ticks · 10⁹ / 2²⁰
CONFIG = PtConfig(filter_lo=LOW, filter_hi=HIGH)
SECONDS = 800
EACH = 4  # of everything in a second


class World:
    """A JVM in which everything lives for a second."""

    def __init__(self) -> None:
        self.now, self._jit, self._side, self._offset, self._chunks = SECOND, 0, 0, 0, 0
        self.heads: dict[StreamKey, int] = {}  # of streams that have ended

    def batch(self, writer: Writer) -> JitBatch:
        self._jit += 1
        return JitBatch("h", 42, self._jit - 1, np.frombuffer(writer.bytes(), np.uint8), 0, self.now)

    def begin(self) -> Iterator[object]:
        yield StreamOpen(CPU, CONFIG, CLOCK)
        writer = Writer(self.now, step=0).code_cache(LOW, HIGH).codelet(LOW, LOW + 64, 21, "iload")
        yield self.batch(writer.thread_start(1, "main", flags=1))

    def second(self, number: int) -> Iterator[object]:
        writer = Writer(self.now, step=0)
        records, trace, streams = [], psb_plus(self.now), []
        for k in range(EACH):
            id_, address = EACH * number + k + 1, LOW + 0x1000 + 256 * k
            writer.class_def(id_, f"C{id_}", bytes(50)).class_(id_, f"LC{id_};", definition=id_)
            writer.method(id_, f"LC{id_};", "run", class_id=id_)
            code = b"\xb8" + id_.to_bytes(4, "little") + b"\xff\xe0" + bytes(57)  # mov eax, id; jmp rax
            writer.nmethod_load(address, code, id_, compile_id=id_, verified_entry=address, blob=9)
            at, tid = self.now + (2 * k + 1) * SECOND // 16, 100 + id_
            records += [(at, SideKind.SWITCH_IN, tid), (at + SECOND // 32, SideKind.EXIT, tid)]
            records.append((at + SECOND // 32, SideKind.SWITCH_OUT, tid))
            trace += tsc(at) + pge(address) + tip(address) + tip(address) + pgd() + tsc(at + SECOND // 32)
            streams.append((StreamKey("h", 42, -1, 30 + id_ % 8, id_), address, at))
        yield self.batch(writer)
        yield sideband(*records, seq=self._side)
        self._side += 1
        self.now += SECOND
        yield Chunk(CPU, self._chunks, self._offset, np.frombuffer(trace, np.uint8), (), self.now)
        self._chunks += 1
        self._offset += len(trace)
        for key, address, at in streams:
            own = psb_plus(at, address) + tip(address) + tip(address) + tsc(at + 1000)
            yield StreamOpen(key, CONFIG, CLOCK)
            yield sideband((at + 1000, SideKind.EXIT, key.tid), key=key)
            yield Chunk(key, 0, 0, np.frombuffer(own, np.uint8), (), self.now)
            self.heads[key] = len(own)
            yield StreamEnd(key, self.now)
        writer = Writer(self.now, step=0)
        for k in range(EACH):
            id_ = EACH * number + k + 1
            writer.nmethod_unload(LOW + 0x1000 + 256 * k, id_).class_unload(id_)
        yield self.batch(writer)
        yield Tick("h", 42, self.now)


@pytest.mark.parametrize("fidelity", ["ip", "flow"])
def test_nothing_grows(fidelity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callees, "SPARE", 64)
    monkeypatch.setattr(images, "SPARE_SITES", 64)
    monkeypatch.setattr(flow, "MOST_DEAD", 64)
    monkeypatch.setattr(cct, "SPARE_FUNCTIONS", 64)
    now = 0.0
    hub = Hub(WindowConfig(pane_seconds=1), now=lambda: now, fidelity=fidelity, max_methods=1024)
    stages = chains.flow() if fidelity == "flow" else chains.ip()
    world, names = World(), set[str]()

    def run(messages: Iterator[object]) -> None:
        for message in messages:
            for out in feed_chain(stages, message):
                match out:
                    case PaneReport():
                        hub.feed(out)
                        names.update(name for _, name in out.names)
                    case Account():
                        hub.account(out)
                    case TreeReport():
                        hub.trees.feed(out)
                    case StreamOpen():
                        hub.introduce("h", 42, out.clock)

    run(world.begin())
    first, second = Counter[str](), Counter[str]()  # the largest of each half
    closed = 0
    for number in range(SECONDS):
        now += 1
        run(world.second(number))
        hub.poll()
        for balance in hub.close_ended(world.heads):
            assert balance.error == 0
            assert not balance.holes
            del world.heads[balance.stream]
            closed += 1
        if number % 40 == 0 and number > SECONDS // 4:
            half = second if 2 * number > SECONDS else first
            half |= sizes(*stages, hub)
    assert not grown(first, second, slack=64)
    assert closed > EACH * (SECONDS - 20)
    assert len(names) > EACH * (SECONDS - 20)  # all were told by their names, and counted
    assert hub.totals(("h", 42)).decoded > 0
    counted = {name: n for stage in stages for name, n in stage.statistics().items()}
    assert counted["code_sites"] < 500
    if fidelity == "flow":
        assert counted["flow_generations"] > 4
        assert counted["cct_rebuilt"] > 2
        assert len(hub.trees.window(10).nodes)
        assert counted["flow_died"] > SECONDS
        assert counted["flow_threads"] <= 12 * EACH
    assert counted["code_versions"] < 200
    assert counted["code_methods"] < 200
