"""Where a process's trace contradicted its code, summed over the run: the places met most often, and how often in all.

At least the `limit` most frequent places are kept apart. When there are twice as many, the rarest half becomes
`other`, by cause: sums stay exact, and a place that is met often stays, unless it came after many others and late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stages.messages import Break, Contradiction

CAUSES = {cause: cause.name.lower() for cause in Break}
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Place:
    """`start` is the blob's address, 0 where no code is known; then `offset` is the address itself."""

    cause: str
    code: str
    start: int
    offset: int
    site: str
    """Innermost method and bytecode index, empty where unknown."""
    times: int
    suspect: int
    """Instructions in doubt: passed since the trace had last confirmed the walk."""
    share: float
    """Of all contradictions, 0…1."""


@dataclass(frozen=True, slots=True)
class ContradictionsView:
    fidelity: str
    total: int
    causes: dict[str, int]
    """Every cause, those never met too."""
    suspect: int
    instructions: int
    """Observed; those in doubt are not among them."""
    places: tuple[Place, ...]
    other: int
    """Contradictions at places that are not listed."""

    def json(self) -> dict[str, Any]:
        return asdict(self)


Key = tuple[Break, str, int, int, str]


class Contradictions:
    def __init__(self, limit: int = 1000) -> None:
        self.causes: Counter[Break] = Counter()
        self.suspect = 0
        self._limit = limit
        self._places: dict[Key, tuple[int, int]] = {}  # times, suspect

    def add(self, told: Sequence[Contradiction]) -> None:
        """Raises ValueError, and adds nothing, if one of them cannot be."""
        if any(c.times <= 0 or c.suspect < 0 for c in told):
            raise ValueError("a contradiction that never happened")
        for c in told:
            self.causes[c.cause] += c.times
            self.suspect += c.suspect
            if c.code != OTHER:
                self._put((c.cause, c.code, c.start, c.offset, c.site), c.times, c.suspect)
        if len(self._places) > 2 * self._limit:
            self._places = dict(self.heaviest(self._limit))

    def merge(self, others: Iterable[Contradictions]) -> Contradictions:
        """The sum with those of other processes."""
        for other in others:
            self.causes.update(other.causes)
            self.suspect += other.suspect
            for key, (times, suspect) in other._places.items():
                self._put(key, times, suspect)
        return self

    def heaviest(self, count: int) -> list[tuple[Key, tuple[int, int]]]:
        return sorted(self._places.items(), key=lambda item: (-item[1][0], item[0]))[:count]

    def view(self, fidelity: str, instructions: int, top: int) -> ContradictionsView:
        total = sum(self.causes.values())
        places = tuple(
            Place(CAUSES[cause], code, start, offset, site, times, suspect, times / total)
            for (cause, code, start, offset, site), (times, suspect) in self.heaviest(top)
        )
        listed = sum(p.times for p in places)
        causes = {name: self.causes[cause] for cause, name in CAUSES.items()}
        return ContradictionsView(fidelity, total, causes, self.suspect, instructions, places, total - listed)

    def _put(self, key: Key, times: int, suspect: int) -> None:
        before = self._places.get(key, (0, 0))
        self._places[key] = before[0] + times, before[1] + suspect
