"""One member of a group at work: receive → stages → send, until every sender has ended.

`Member` is that, wherever it runs; `python -m streamer.pipeline.worker FD NAME` is a process around it, whose whole
configuration comes over the control line on descriptor FD. The messages there, one JSON object each:

    supervisor → member
        {"do": "start", …}                  a `Spec`, first of all
        {"do": "down" | "gone", "worker": i}
        {"do": "up", "worker": i, "stranger": bool, "again": bool}    again: it knows nothing of the messages before
        {"do": "heard", "members": [status, …]}    each of `Keeper.status`
        {"do": "spent", "cpu_seconds": x}   by all members, to a source that has a budget
        {"do": "introduce"}                 introduce all workers to the past
        {"do": "contexts", "selection": {…}}    of which threads contexts are kept: `Selection.words`
        {"do": "ended", "source": member}   it will not come back
        {"do": "stop"}                      a source: stop; others: finish the input
    member → supervisor
        {"is": "ready"}                     bound; messages will be received
        {"is": "beat", "statistics": {…}}   now and then
        {"is": "ending"}                    all is sent; only the acknowledgement of the end is missing
        {"is": "ended", "complete": bool, "acknowledged": bool, "statistics": {…}}
        {"is": "failed", "why": "one line", "again": bool}    again: whether another try may help

SIGTERM ends this incarnation as "stop" does, and is no end of the member: the supervisor starts another. A member dies
with its supervisor (`streamer.pipeline.boot`); only a capture process that records ends in order then, with its
control line.
"""

from __future__ import annotations

import logging
import math
import resource
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import structlog
import trio

from stages.cct.selection import Selection
from stages.messages import EndOfStream
from streamer import logs
from streamer.config import Settings
from streamer.lossy import lost, never_fail
from streamer.pipeline.lifeline import live_on
from streamer.pipeline.spec import Spec
from streamer.pipeline.topology import InputError, Source, TopologyError, feed_chain, flush_chain, make_chain
from streamer.pipeline.warm import concerns, freeze_heap, warm
from streamer.session.session import hold
from streamer.transport.control import Control, Words
from streamer.transport.link import Receiver, Sender
from streamer.transport.output import Output
from streamer.transport.security import TransportError
from streamer.transport.transport import Address, Transport, open_transport

BEAT_SECONDS = 1.0  # the terminal shows a new table as often
QUIET_SECONDS = 0.05  # an input on which nothing came for so long is empty
FINISH_SECONDS = 600.0  # for the next group's acknowledgement of the end; only the supervisor hurries
STOP_SECONDS = 1.0  # from "stop" on input is taken no longer than this: the senders may go on for ever
ORPHAN_SECONDS = 3.0  # for an end in order after the supervisor's death
CHECKPOINT_EVERY = 16  # messages handled between two turns for the member's other tasks

log = structlog.get_logger()


@runtime_checkable
class Serving(Protocol):
    """A stage with a task of its own beside its input."""

    async def serve(self) -> None: ...


@runtime_checkable
class Hearing(Protocol):
    """A stage that wants to hear how the members are."""

    def hear(self, status: Mapping[str, Any], /) -> None: ...


@runtime_checkable
class Spending(Protocol):
    """A source that has a budget."""

    def spent(self, cpu_seconds: float, /) -> None: ...


@runtime_checkable
class Selecting(Protocol):
    """A stage that keeps contexts of some threads."""

    def select(self, selection: Selection, /) -> None: ...


@runtime_checkable
class Introducing(Protocol):
    """A stage that sends a receiver which has begun anew the messages that were sent once and are still needed."""

    def introduce(self) -> Iterable[Any]: ...


class Member:
    """The life of one member. `stages` are given if they live in the supervisor's process, else made by name."""

    def __init__(self, spec: Spec, transport: Transport, control: Control, stages: Sequence[Any] | None = None) -> None:
        self.spec = spec
        self._transport = transport
        self._control = control
        self._given = stages
        self._stages: Sequence[Any] = ()
        self._ended = set(spec.ended)
        self._stopping = self._told_to_stop = self._orphaned = False
        self._stop_at = math.inf
        self._waiting: trio.CancelScope | None = None  # while the input is empty
        self._complete = True
        self._receiver: Receiver | None = None
        self._output: Output | None = None
        self._handled = 0
        self._steps = 0  # of work, done
        self._introduces = False  # a receiver has begun anew

    async def run(self) -> None:
        """To the end. Raises a stage's errors, `TransportError` and `TopologyError`."""
        spec = self.spec
        if self._given is not None:
            self._stages = self._given
        else:
            place = spec.place()
            if concerns(spec.stages, place):  # in a thread: the other tasks of this process go on
                await trio.to_thread.run_sync(warm, spec.stages, place, abandon_on_cancel=True)
            self._stages = make_chain(spec.stages, place)
            freeze_heap()
        try:
            if spec.address is not None:
                self._receiver = self._bound(spec.address)
            if spec.downstream:
                senders = [Sender(self._transport, a, spec.name) for a in spec.downstream]
                self._output = Output(senders, spec.index, spec.workers, introduces=spec.address is None)
                for i in spec.down:
                    self._output.down(i)
                for i in spec.gone:
                    self._output.gone(i)
            await self._work()
        finally:
            for end in (self._receiver, self._output):
                if end is not None:
                    end.close()

    def _bound(self, address: Address) -> Receiver:
        try:
            return Receiver(self._transport, address)
        except TransportError as error:
            if self.spec.incarnation > 1:
                raise
            raise InputError(str(error)) from error  # an address that cannot be had from the beginning

    async def _work(self) -> None:
        failure: BaseException | None = None
        acknowledged = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, nursery.cancel_scope)
            nursery.start_soon(self._beat)
            if self._receiver is not None:
                nursery.start_soon(self._receiver.serve)
            for stage in self._stages:
                if isinstance(stage, Serving):
                    nursery.start_soon(stage.serve)
            await self._control.say(**{"is": "ready"})
            try:
                if self._receiver is not None:
                    await self._pump(self._receiver)
                else:
                    await self._produce()
                if self._output is not None:
                    if self._complete:
                        await self._control.say(**{"is": "ending"})
                    # Not complete: only this incarnation ends, the next one sends on.
                    source = self.spec.member if self._complete else self.spec.name
                    acknowledged = await self._output.finish(source, FINISH_SECONDS)
                if self._receiver is not None:
                    await self._receiver.settle()
            except Exception as error:  # out of the nursery as itself, not as a group
                failure = error
            nursery.cancel_scope.cancel()
        if self._orphaned:
            raise TransportError("the supervisor is gone, and nobody takes what is left")
        if failure is not None:
            raise failure
        end = {"is": "ended", "complete": self._complete, "acknowledged": acknowledged}
        await self._control.say(**end, statistics=self.statistics())

    # ---- the work itself

    async def _produce(self) -> None:
        (source,) = self._stages
        if not isinstance(source, Source) or self._output is None:
            raise TypeError(f"{self.spec.stages[0]} is no source")
        if self._stopping:
            source.stop()
        await source.run(self._output)
        self._complete = self._told_to_stop or not self._stopping

    async def _pump(self, receiver: Receiver) -> None:
        ending = False  # a sender ended outside the stream: look for the messages it left behind
        while trio.current_time() < self._stop_at:
            if self._introduces:
                self._introduces = False
                for stage in self._stages:
                    if isinstance(stage, Introducing):
                        await self._emit(stage.introduce())
            envelope = receiver.try_receive()
            if envelope is not None:
                ending = False
                if isinstance(envelope.message, EndOfStream):
                    self._ended.add(envelope.message.source)
                    receiver.acknowledge(envelope.sender)
                else:
                    await self._emit(feed_chain(self._stages, envelope.message))
                self._handled += 1
                if self._handled % CHECKPOINT_EVERY == 0:
                    await trio.lowlevel.checkpoint()
                continue
            over = self._stopping or self._ended.issuperset(self.spec.upstream)
            if over and ending:
                break
            with trio.CancelScope(deadline=trio.current_time() + QUIET_SECONDS if over else float("inf")) as scope:
                self._waiting = scope
                await receiver.wait()
            self._waiting = None
            ending = over
        self._complete = self._ended.issuperset(self.spec.upstream)
        await self._emit(flush_chain(self._stages))

    async def _emit(self, messages: Iterable[Any]) -> None:
        """`messages` of `feed_chain` or `flush_chain`: between the steps of long work other tasks have their turn."""
        for message in messages:
            self._steps += 1
            if message is None:
                await trio.lowlevel.checkpoint()
            elif self._output is not None:
                await self._output.send(message)

    # ---- the supervisor

    async def _listen(self, everything: trio.CancelScope) -> None:
        while (words := await self._control.hear()) is not None:
            self._obey(words)
        self.stop()
        await trio.sleep(ORPHAN_SECONDS)
        self._orphaned = True
        everything.cancel()

    def _obey(self, words: Words) -> None:
        match words:
            case {"do": "stop"}:
                self._told_to_stop = True
                self.stop()
            case {"do": "ended", "source": str(source)}:
                self._ended.add(source)
                self._wake()
            case {"do": "introduce"} if self._output is not None:
                self._output.introduce_all()
            case {"do": "down", "worker": int(worker)} if self._output is not None:
                self._output.down(worker)
            case {"do": "gone", "worker": int(worker)} if self._output is not None:
                self._output.gone(worker)
            case {"do": "up", "worker": int(worker), "stranger": bool(stranger), "again": bool(again)} if self._output:
                self._output.up(worker, stranger=stranger)
                self._introduces |= again
                self._wake()
            case {"do": "spent", "cpu_seconds": float(seconds)}:
                for stage in self._stages:
                    if isinstance(stage, Spending):
                        stage.spent(seconds)
            case {"do": "contexts", "selection": dict(selection)}:
                self._select(selection)
            case {"do": "heard", "members": list(statuses)}:
                for stage in self._stages:
                    for status in statuses if isinstance(stage, Hearing) else ():
                        stage.hear(status)
            case _:
                log.warning("not understood", words=words)

    def _select(self, words: dict[str, Any]) -> None:
        for stage in self._stages:
            if isinstance(stage, Selecting):
                try:
                    stage.select(Selection.of(words))
                except ValueError as error:
                    log.warning("not understood", why=str(error))

    def stop(self) -> None:
        """Finish: a source stops, others work off their input."""
        self._stopping = True
        self._stop_at = min(self._stop_at, trio.current_time() + STOP_SECONDS)
        if self._receiver is None:
            for source in self._stages:
                source.stop()
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    async def _beat(self) -> None:
        while True:
            await trio.sleep(BEAT_SECONDS)
            await self._control.say(**{"is": "beat", "statistics": self.statistics()})

    def statistics(self) -> dict[str, Any]:
        """`steps` of work done, `stages` (all that they say), `input`, `output`, `cpu_seconds`, `memory_bytes`, and
        `lost_output` of the whole process (`streamer.lossy`)."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "steps": self._steps,
            "stages": {k: v for stage in self._stages for k, v in stage.statistics().items()},
            "input": self._receiver.statistics() if self._receiver else {},
            "output": self._output.statistics() if self._output else {},
            "lost_output": dict(lost),
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "memory_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize(),
        }


async def _main(descriptor: int) -> int:
    control = Control.of_descriptor(descriptor)
    words = await control.hear()
    if words is None:
        return 1
    spec = Spec.of(words)
    if "record" in spec.options and spec.address is None:  # a recording is brought to its end first
        live_on()
    hold(Path(spec.directory))
    settings = Settings(**spec.settings)
    logs.configure(settings, process=spec.member)
    failure: Failed | None = None
    try:
        async with open_transport(settings.transport) as transport:
            failure = await _run(Member(spec, transport, control))
    except TransportError as error:
        failure = Failed(str(error))
    if failure is not None:
        log.log(logging.ERROR if failure.again else logging.INFO, "failed", why=failure.why)
        await control.say(**failure.words())
    return 0 if failure is None else 1


@dataclass(frozen=True)
class Failed:
    why: str
    again: bool = True  # another try may help

    @classmethod
    def by(cls, error: Exception) -> Failed:
        """A fault that is known to be possible, in one line; of any other there is a traceback in the log."""
        match error:
            case InputError() | TopologyError():
                return cls(str(error), again=False)
            case TransportError():
                return cls(str(error))
            case _:
                log.error("a stage failed", exc_info=error)
                return cls(f"{type(error).__name__}: {error}")

    def words(self) -> Words:
        return {"is": "failed", "why": self.why, "again": self.again}


async def _run(member: Member) -> Failed | None:
    """Why it failed, or None."""
    failure = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_sigterm, member)
        try:
            await member.run()
        except Exception as error:
            failure = Failed.by(error)
        nursery.cancel_scope.cancel()
    return failure


async def _stop_on_sigterm(member: Member) -> None:
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            member.stop()


if __name__ == "__main__":
    never_fail("stdout", "stderr")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches the whole terminal; the supervisor answers for all
    sys.exit(trio.run(_main, int(sys.argv[1])))
