"""A group's way out: one sender for each worker of the next group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import trio

from streamer.transport.link import Sender
from streamer.transport.routing import FOR_ALL, route


class Output:
    """`lane` of `lanes`: which member of the sending group this is. `introduces`: it is a source's, which introduces
    restarted workers to the messages they missed (`heal`); a worker that is down or not introduced gets nothing
    else."""

    def __init__(self, senders: Sequence[Sender], lane: int = 0, lanes: int = 1, *, introduces: bool = False) -> None:
        self.senders = list(senders)
        self._lane, self._lanes, self._introduces = lane, lanes, introduces
        self._strangers: set[int] = set()  # restarted workers that have not been introduced
        self._all_strange = False

    def try_send(self, message: Any) -> bool:
        """Without waiting, to all that `message` goes to or to none. False: no room, or its worker is down or not
        yet introduced. A message to all leaves out those, since the introduction will tell them."""
        targets = self._targets(message)
        if not isinstance(message, FOR_ALL):
            return targets[0] not in self._strangers and self.senders[targets[0]].try_send(message)
        senders = [self.senders[i] for i in targets if self.senders[i].is_up and i not in self._strangers]
        if all(s.has_room for s in senders):
            for sender in senders:
                sender.try_send(message)
            return True
        for sender in senders:
            sender.refused += 1
        return False

    def try_send_together(self, messages: Sequence[Any]) -> bool | None:
        """All of them as one, without waiting, or none (False). None, and nothing is sent, where that cannot be: they
        go to several workers, or to one that is down or not yet introduced."""
        if len(self.senders) > 1 or self._strangers or not self.senders[0].is_up:
            return None
        return self.senders[0].try_send(*messages)

    async def wait_room(self) -> None:
        """Until each worker has had room, or its fate has changed: a refused message may fit then."""
        await trio.lowlevel.checkpoint()
        for sender in self.senders:
            await sender.wait_room()

    async def send(self, message: Any) -> bool:
        """Waits for room. False if its worker is gone for good; a source's output also if it is down or not yet
        introduced, where others wait (a message to all leaves those out, as above). Cancelled, it may have sent to
        some of several workers."""
        sent = True
        for i in self._targets(message):
            if i in self._strangers or not await self.senders[i].send(message, while_up=self._introduces):
                sent = False
        return sent or (self._introduces and isinstance(message, FOR_ALL))

    async def deliver(self, message: Any, introduction: Callable[[], Iterable[Any]]) -> bool:
        """For a source that can wait, like a recording: waits through a worker's restart too, introduces it and sends
        then. False if the worker is gone for good."""
        while not await self.send(message):
            for i in self._targets(message):
                if not await self.senders[i].wait_up():
                    return False
            await self.heal(introduction)
        return True

    def _targets(self, message: Any) -> tuple[int, ...]:
        return route(message, self._lane, self._lanes, len(self.senders))

    async def heal(self, introduction: Callable[[], Iterable[Any]]) -> None:
        """Introduces restarted workers to the messages they missed. To be called by the source between two looks at its
        input, in the task that sends: then nothing can come between an introduction and the messages that follow it."""
        await trio.lowlevel.checkpoint_if_cancelled()
        for i in sorted(self._strangers):
            sender = self.senders[i]
            opened = sender.reopened
            for message in introduction():
                if not await sender.send(message, while_up=True):
                    break  # died again: another introduction will be due
            else:
                if sender.is_up and sender.reopened == opened:
                    self._strangers.discard(i)
        if self._all_strange:  # a member further down was restarted: the groups between pass it on
            self._all_strange = False
            for message in introduction():
                await self.send(message)

    # ---- news from the supervisor

    def down(self, worker: int) -> None:
        self.senders[worker].down()

    def up(self, worker: int, *, stranger: bool) -> None:
        """A new incarnation is there. `stranger`: it gets nothing from `try_send` before `heal` has introduced it."""
        if stranger:
            self._strangers.add(worker)
        self.senders[worker].up()

    def gone(self, worker: int) -> None:
        self._strangers.discard(worker)
        self.senders[worker].gone()

    def introduce_all(self) -> None:
        self._all_strange = True

    # ---- the end

    async def finish(self, source: str, seconds: float) -> bool:
        """End every link, acknowledged; False if some worker did not answer in time."""
        answers: list[bool] = []

        async def finish_one(sender: Sender) -> None:
            answers.append(await sender.finish(source, seconds))

        async with trio.open_nursery() as nursery:
            for sender in self.senders:
                nursery.start_soon(finish_one, sender)
        return all(answers)

    def close(self) -> None:
        for sender in self.senders:
            sender.close()

    def statistics(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for sender in self.senders:
            for name, value in sender.statistics().items():
                total[name] = total.get(name, 0) + value
        return total
