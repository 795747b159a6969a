"""A member whose stage works long on one message, in steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from stages.messages import Tick
from streamer.config import TransportConfig
from streamer.pipeline import worker
from streamer.pipeline.spec import Spec
from streamer.pipeline.topology import feed_chain
from streamer.pipeline.worker import Member
from streamer.transport.control import Control, control_pair
from streamer.transport.link import Sender
from streamer.transport.transport import addresses, open_transport


class Long:
    """Works on each message in steps until it is told that it is over."""

    over = False

    def feed(self, message: Any) -> Iterable[Any]:
        return [out for out in self.steps(message) if out is not None]

    def steps(self, message: Any) -> Iterator[Any]:
        while not self.over:
            yield None
        yield message

    def flush(self) -> Iterable[Any]:
        return ()

    def statistics(self) -> dict[str, int]:
        return {"over": int(self.over)}


async def test_it_beats_and_its_steps_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "BEAT_SECONDS", 0.01)
    config = TransportConfig(mode="inproc")
    (address,) = addresses(config, tmp_path, ["work/0"]).values()
    spec = Spec(
        "work", 0, 1, 1, ("Long",), {}, str(tmp_path), {}, address, ("source/0",), (), (), (), ()
    )  # fmt: skip
    ours, theirs = control_pair()
    its = Control.of_descriptor(theirs.detach())
    stage = Long()

    async def beat() -> dict[str, Any]:
        while True:
            words = await ours.hear()
            assert words is not None
            if words["is"] == "beat":
                statistics: dict[str, Any] = words["statistics"]
                return statistics

    with trio.fail_after(60):
        async with open_transport(config) as transport, trio.open_nursery() as nursery:
            nursery.start_soon(Member(spec, transport, its, [stage]).run)
            sender = Sender(transport, address, "source/0#1")
            await sender.send(Tick("h", 1, 1))
            while not (first := await beat())["steps"]:
                pass
            while (then := await beat())["steps"] == first["steps"]:
                pass
            assert then["input"]["received"] == 1
            assert then["stages"]["over"] == 0
            stage.over = True
            assert await sender.finish("source/0", 30)
            sender.close()
    await ours.close()
    await its.close()


def test_a_pause_is_passed_on_and_fed_to_nobody() -> None:
    first, second = Long(), Long()
    second.over = True
    chain = feed_chain([first, second], "message")
    assert [next(chain) for _ in range(3)] == [None] * 3
    first.over = True
    assert list(chain) == ["message"]
