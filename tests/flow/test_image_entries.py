"""The columns of nmethods' entries against a plain reading of all versions, as they come, end and go."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from jvm.code.version import FOREVER, Kind, Version
from stages.follow.repair.candidates import LAST
from stages.follow.repair.image_entries import ImageEntries
from stages.follow.repair.known import Known
from tests.flow.test_choice import patches

HIGH = (1 << 64) - 0x1000  # addresses are unsigned


@dataclass
class Image:
    """As much of a code image as is read."""

    kept: list[Version] = field(default_factory=list)

    def versions(self) -> list[Version]:
        return self.kept


def plain(image: Image) -> dict[str, list[int]]:
    entry: dict[int, int] = {}
    entry_point: dict[int, tuple[int, int]] = {}
    for v in sorted((v for v in image.kept if v.kind == Kind.NMETHOD), key=lambda v: v.since):
        closes = min(v.not_entrant, v.until, int(LAST))
        if v.verified_entry:
            entry[v.verified_entry] = closes
        for address in (v.entry, v.verified_entry):
            entry_point[address] = v.loaded if v.since else 0, closes
    bodies = [v for v in image.kept if v.kind == Kind.NMETHOD and v.until == FOREVER and v.method]
    return {
        "body": [v.start for v in bodies],
        "body_end": [v.end for v in bodies],
        "body_method": [v.method for v in bodies],
        "entry": sorted(entry),
        "refused": [entry[at] for at in sorted(entry)],
        "entry_point": sorted(entry_point),
        "opens": [entry_point[at][0] for at in sorted(entry_point)],
        "closes": [entry_point[at][1] for at in sorted(entry_point)],
    }


places = st.sampled_from([0, 16, 32, 48, HIGH, HIGH + 16])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("load"), places, places, st.integers(0, 9)),
        st.tuples(st.sampled_from(["end", "shut", "forget", "look"]), st.integers(0, 30)),
    ),
    max_size=30,
)


@example([("load", 16, 16, 1), ("look", 0), ("end", 0), ("look", 0)])
@given(steps)
def test_against_a_plain_reading(history: list[tuple[object, ...]]) -> None:
    image, ids = Image(), 0
    entries = ImageEntries(image)  # type: ignore[arg-type]
    nothing = patches((0x1000, b"\x90", b"\x91", 1, 2))
    for time, (what, *numbers) in enumerate([*history, ("look", 0)], 1):
        chosen = image.kept[int(str(numbers[0])) % len(image.kept)] if image.kept else None
        match what:
            case "load":
                ids += 1
                entry, verified, since = (int(str(n)) for n in numbers)
                kind = Kind.BLOB if entry == verified == 48 else Kind.NMETHOD
                image.kept.append(
                    Version(
                        ids, kind, 8 * ids, 8 * ids + 8, "x", time, since, method=entry // 16, entry=entry,
                        verified_entry=verified,
                    )
                )  # fmt: skip
            case "end" if chosen is not None and chosen.until == FOREVER:
                chosen.until = time
            case "shut" if chosen is not None:
                chosen.not_entrant = min(chosen.not_entrant, time)
            case "forget" if chosen is not None:
                image.kept.remove(chosen)
            case "look":
                check(entries.add(nothing), plain(image))


def check(known: Known, expected: dict[str, list[int]]) -> None:
    for name, column in expected.items():
        found = getattr(known, name)
        assert found.dtype == np.int64
        assert found.view(np.uint64).tolist() == column, name
