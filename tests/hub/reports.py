"""Reports as a worker would send them, from plain Python values."""

from __future__ import annotations

import numpy as np

from stages.messages import PROFILE_DTYPE, Account, CodeKind, Loss, PaneReport, StreamKey

HOST, PID = "h", 7


def profile(counts: dict[int, int], *, tid: int = 1, kind: CodeKind = CodeKind.C2, column: str = "hits") -> np.ndarray:
    rows = np.zeros(len(counts), PROFILE_DTYPE)
    rows["method"] = list(counts)
    rows["tid"] = tid
    rows["kind"] = kind
    rows[column] = list(counts.values())
    return rows


def report(
    pane: int,
    hits: dict[str, int],
    *,
    worker: int = 0,
    closed: bool = True,
    pid: int = PID,
    accounts: tuple[Account, ...] = (),
    kind: CodeKind = CodeKind.C2,
    column: str = "hits",
) -> PaneReport:
    """Method ids are the positions in `hits`: names are sent with every report, as a restarted worker's would be."""
    names = tuple(enumerate(hits))
    counts = {i: hits[name] for i, name in names}
    return PaneReport(HOST, pid, worker, pane, profile(counts, kind=kind, column=column), names, accounts, closed)


def stream(cpu: int = 0, pid: int = PID) -> StreamKey:
    return StreamKey(HOST, pid, cpu, -1)


def account(start: int, end: int, *, cpu: int = 0, pid: int = PID, shed: int = 0, **holes: int) -> Account:
    """All decoded, `shed` of it by addresses only, but for the holes, given by cause in lower case."""
    lost = tuple((Loss[cause.upper()], size) for cause, size in holes.items())
    decoded = end - start - sum(holes.values())
    events = tuple((cause, 1) for cause, _ in lost)
    return Account(stream(cpu, pid), start, end, decoded, lost, (), events, shed)


class Time:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def ns(self) -> int:
        return int(self.seconds * 1e9)
