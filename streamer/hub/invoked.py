"""The methods that were invoked most often in a window: among the hottest by work they need not be."""

from __future__ import annotations

from dataclasses import dataclass

from streamer.hub.hub import Chosen, Hub, ProcessKey
from streamer.hub.profile import INVOCATIONS, OTHER, UNCOUNTED, UNTOLD
from streamer.hub.ranking import heaviest


@dataclass(frozen=True, slots=True)
class Invoked:
    method: str
    invocations: int
    at_least: bool
    """`invocations` is a lower bound (`HotMethod.at_least`)."""


def most_invoked(hub: Hub, key: ProcessKey, chosen: Chosen, top: int) -> list[Invoked]:
    """The `top` of a process in a window, and the sum of all others (OTHER), which is a lower bound where one of them
    is, or is not counted. A method whose invocations are not known is not listed."""
    names, rows = hub.processes[key].table.names, hub.rows(key, chosen)
    listed = heaviest(names, rows[:, INVOCATIONS], top)
    found = [
        Invoked(names[i], int(rows[i, INVOCATIONS]), bool(rows[i, UNTOLD])) for i in listed if not rows[i, UNCOUNTED]
    ]
    rest = rows.sum(axis=0) - rows[listed].sum(axis=0)
    if rest[INVOCATIONS]:
        found.append(Invoked(OTHER, int(rest[INVOCATIONS]), bool(rest[UNTOLD] or rest[UNCOUNTED])))
    return found
