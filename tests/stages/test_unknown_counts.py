"""Invocations of which the trace does not tell how many there were."""

from __future__ import annotations

from collections import Counter

import pytest

from stages.follow.stage import Follow
from stages.images import Images
from stages.inlining.inlining import NOTHING, Inlining, Measures
from stages.profile.stage import Profile
from stages.ready.stage import Held, _pieces
from tests.flow.helpers import THREAD, segment
from tests.flow.test_choice import call
from tests.jvm.exportwriter import Writer
from tests.pt import ptwriter as w
from tests.pt.machine import BASE

COLUMNS = ("invocations", "untold", "uncounted")
OWN, OTHER, LAST = BASE, BASE + 0x100, BASE + 0x200


def image_of(**code: bytes) -> Images:
    """Methods a.Own.f, a.Other.f, a.Last.f, as far as there is `code` of them."""
    images = Images(lateness_ticks=0)
    image = images.of(THREAD.host, THREAD.pid).image
    for k, (name, at) in enumerate((("Own", OWN), ("Other", OTHER), ("Last", LAST)), 1):
        if name in code:
            written = Writer(tsc=10).method(k, f"La/{name};", "f", "()V")
            body = code[name].ljust(32, b"\x90")
            image.feed(written.nmethod_load(at, body, k, entry=at, verified_entry=at, level=1).bytes())
    return images


def counted(images: Images, trace: bytes) -> dict[str, dict[str, int]]:
    """By method: the counts other than 0."""
    process = images.of(THREAD.host, THREAD.pid)
    follow, profile = Follow(images), Profile(images=images)
    start = w.psb() + w.mode_exec(64) + w.fup(OWN) + w.psbend()
    for out in follow.feed(_pieces(Held(process), [segment(start + trace, tsc=(100, 200))], False)):
        profile.feed(out)
    sums: dict[str, Counter[str]] = {name: Counter() for name in COLUMNS}
    for pane in profile._processes[process.key].panes.values():
        for row in pane.sum():
            for name, of in sums.items():
                of[images.sites.label(int(row["site"]))] += int(row[name])
    return {name: dict(+of) for name, of in sums.items()}


@pytest.mark.parametrize(
    ("at", "untold", "calls"),
    [
        (OTHER + 1, ["a.Last.f", "a.Other.f"], {"a.Own.f": 1, "a.Other.f": 1}),  # in the cycle
        (LAST + 1, ["a.Last.f", "a.Other.f"], {"a.Own.f": 1, "a.Other.f": 1, "a.Last.f": 1}),
        (OWN + 5, [], {"a.Own.f": 1}),  # before it: nothing is unknown
    ],
)
def test_a_cycle_without_a_packet(at: int, untold: list[str], calls: dict[str, int]) -> None:
    """a.Own.f calls a.Other.f, which calls a.Last.f, which calls a.Other.f, for ever; an event ends it."""
    image = image_of(
        Own=b"\x90" * 5 + call(OWN + 5, OTHER),
        Other=b"\x90\x90" + call(OTHER + 2, LAST),
        Last=b"\x90\x90" + call(LAST + 2, OTHER),
    )
    found = counted(image, w.fup(at) + w.tip_pgd())
    assert sorted(found["untold"]) == untold
    assert found["invocations"] == calls
    assert not found["uncounted"]


def test_recursion_that_leaves_packets_is_told() -> None:
    image = image_of(Own=b"\x74\x05" + call(OWN + 2, OWN) + b"\xc3")
    found = counted(image, w.tnt8("...!") + w.fup(OWN + 7) + w.tip_pgd())
    assert found == {"invocations": {"a.Own.f": 4}, "untold": {}, "uncounted": {}}


def test_what_is_inlined_and_cannot_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as code runs in which it is: not in that of others."""
    lost = NOTHING._replace(unmeasured=("a.Lost.f", None))
    of = Inlining.of

    def measured(self: Inlining, v: object, dead_ends: object) -> Measures:
        return lost if v.start == OTHER else of(self, v, dead_ends)  # type: ignore[attr-defined, arg-type]

    monkeypatch.setattr(Inlining, "of", measured)
    image = image_of(Own=b"\x74\x05" + call(OWN + 2, OTHER), Other=b"\x90\xc3")
    assert counted(image, w.tnt8(".") + w.fup(OTHER + 1) + w.tip_pgd())["uncounted"] == {"a.Lost.f": 1}
    assert not counted(image, w.tnt8("!") + w.fup(OWN + 7) + w.tip_pgd())["uncounted"]
