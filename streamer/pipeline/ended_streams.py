"""Streams of threads that have ended: closed in the ledger once the hub knows the fate of every byte; then their rings
go. (Bytes that a worker took with it when it died are not known before the end: such a ring stays.)

Part of the hub's state, and noted with it: a ring goes only after that was noted, so no successor opens it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from capture.live.source import EmulatedSource, SessionError
from stages.messages import StreamKey
from streamer.hub.hub import Hub
from streamer.hub.ledger import Balance

Heads = Mapping[StreamKey, int]


class EndedStreams:
    def __init__(self) -> None:
        self.gone: set[StreamKey] = set()
        """Those closed, as long as their source tells of them; of an emulated one, until their rings are removed."""
        self._closed: dict[tuple[str, int], Balance] = {}  # sums, by process

    def close(self, hub: Hub, source: EmulatedSource, heads: Heads, ended: Heads) -> list[StreamKey]:
        """`heads`, `ended`: of all streams and of those that have ended, as their source tells where no ring does.
        Returns the streams whose rings are to be removed when this has been noted."""
        self.gone &= heads.keys()
        over: dict[StreamKey, int] = {}
        with suppress(SessionError):  # capture says so
            over = source.read_out()
        over |= {key: head for key, head in ended.items() if key not in self.gone}
        removable = [key for key, head in over.items() if head == 0]
        for balance in hub.close_ended(over):
            self.gone.add(balance.stream)
            process = balance.stream[:2]
            known = self._closed.get(process)
            self._closed[process] = balance if known is None else known.with_(balance)
            removable.append(balance.stream)
        return removable

    def finish(self, hub: Hub, rings: Heads, told: Heads) -> list[Balance]:
        """The end of everything. `rings`: heads of the rings that are there; `told`: heads as the source tells them."""
        heads = {key: head for key, head in (rings or told).items() if key not in self.gone}
        return [*hub.finish(heads), *self._closed.values()]
