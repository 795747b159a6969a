"""The hub's views: the same figures for the page, `streamer top`, the summary and the JSON interface."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stages.messages import CodeKind, Loss

LATELY_SECONDS = 60.0
"""That a sparkline shows."""
CAUSES = {cause: cause.name.lower() for cause in Loss}
KIND_NAMES = {kind: kind.name.lower() for kind in CodeKind}


def window_label(seconds: float) -> str:
    """10 → `10s`, 60 → `1m`, 90 → `90s`, 3600 → `1h`."""
    for unit, name in ((3600, "h"), (60, "m")):
        if seconds % unit == 0:
            return f"{int(seconds // unit)}{name}"
    return f"{seconds:g}s"


@dataclass(frozen=True, slots=True)
class HotMethod:
    method: str
    share: float
    """Of the window's weight as observed, 0…1."""
    sure: float
    """Half of the 95 % interval of `share` where only a part of the time was traced (streamer.hub.estimate), else 0."""
    weight: int
    invocations: int | None
    """None: not known, because code ran in which it is inlined and cannot be counted."""
    at_least: bool
    """`invocations` is a lower bound: some were made in a cycle that leaves no packet."""
    bytecodes: int | None
    """None: it ran in compiled code alone, and how many that stands for is not known."""
    bytecodes_about: bool
    """`bytecodes` has those in it that compiled code stands for (stages.inlining.executed)."""
    kinds: dict[str, float]
    """Of this method's primary weight, by the kind of code it ran in, 0…1."""
    before: float
    """Its share in the reference of the shift; both 0 as long as there is no verdict."""
    now: float
    """Its share in the shortest window."""
    moved: str | None
    """`up` or `down` if the shift detector calls it a mover."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The fate of the trace bytes of a window or of the run."""

    bytes: int
    decoded: int
    shed: int
    """Of the decoded bytes, those that were not followed: only the addresses in them were read."""
    lost: dict[str, int]
    """Bytes in holes by cause, causes without any left out."""

    @property
    def ratio(self) -> float | None:
        return self.decoded / self.bytes if self.bytes else None

    @property
    def shed_ratio(self) -> float | None:
        return self.shed / self.decoded if self.decoded else None


@dataclass(frozen=True, slots=True)
class ProcessView:
    host: str
    pid: int
    live: bool
    panes: int
    late: int
    lag_seconds: float | None
    shift_distance: float | None
    shift_score: float | None
    duty: float
    """In the shortest window."""


@dataclass(frozen=True, slots=True)
class HotView:
    window: str
    seconds: float
    weight: str
    fidelity: str
    total: int
    recovered: int
    """The same weight of what holes were filled with: not in `total`, nor in any method's."""
    guessed: int
    """The same of holes that nothing filled, and through which a way was guessed: in neither."""
    duty: float
    """The part of the window's time that was traced, 0…1: weights and invocations stand for 1/duty of their values."""
    methods: tuple[HotMethod, ...]
    other: float
    """Share of all methods that are not listed."""
    coverage: Coverage
    run: Coverage
    holes: dict[str, int]
    """How many holes of each cause since the start."""
    unwritten: dict[str, int]
    """Bytes known to be lost before they entered a stream, since the start."""
    processes: tuple[ProcessView, ...]
    restarts: int
    down: tuple[str, ...]
    """Components that are not up, though they have been, or that do not come up."""
    ready: bool
    windows: tuple[str, ...]
    weights: tuple[str, ...]
    time: float
    """Seconds since the epoch."""

    def json(self) -> dict[str, Any]:
        fields = asdict(self)
        for name in ("coverage", "run"):
            fields[name]["ratio"] = getattr(self, name).ratio
        return fields
