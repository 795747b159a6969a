"""Threads, paths and stacks that come and go: what the stage keeps stays within its bounds, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from stages.cct.traced import Room
from stages.messages import ThreadEnd, ThreadKey, TreeReport, Watermark
from tests.cct.made import METHODS, SITES, SPACING, STREAM, Call, Dictionaries, run
from tests.cct.test_stage import stage

ROOM = Room(1 << 9, 1 << 9, 1 << 9, holes=8)
PANE, ROUND, ROUNDS, GENERATION = 100, 10, 400, 20
COUNTS = ("instructions", "invocations", "ticks")


def chain(number: int) -> Call:
    """Up to eight methods that call each other at sites of all kinds; a few hundred of them differ."""
    call, k = Call(number % METHODS, ()), number % 512
    for _ in range(1 + number % 7):
        k = (5 * k + 3) % 512
        call = Call(k % METHODS, ((k // METHODS % SITES, bool(k & 16), call),))
    return call


def spent(messages: Iterable[object]) -> Counter[str]:
    out = Counter[str]()
    for message in messages:
        if isinstance(message, TreeReport):
            out.update({name: int(message.nodes[f"observed_{name}"].sum()) for name in COUNTS})
    return out


def test_nothing_grows_and_nothing_is_lost() -> None:
    """Four hundred threads with names of their own, a round each, with ids that come again; a generation of paths every
    twenty of them; some end in the middle of a call; tables for 512 rows are made anew again and again."""
    cct, d = stage(ROOM, pane_ticks=PANE), Dictionaries()
    names = cct.images.of("h", 42).image.threads
    written, told, most = Counter[str](), Counter[str](), Counter[str]()
    for k in range(ROUNDS):
        tid, now = 7 + k % 5, ROUND * k
        if k % GENERATION == 0:
            d = Dictionaries()
        blocks = run(chain(k))
        blocks = blocks[: len(blocks) - k % 3]
        names.start(tid, f"wave {k}", now)
        order = [d.path([block]) for block in blocks]
        message = replace(d.message(tid, order, (now, now + ROUND - 1), False), generation=k // GENERATION)
        names.end(tid, now + ROUND)
        for input_ in (message, ThreadEnd(ThreadKey("h", 42, tid), STREAM, now), Watermark("h", 42, now)):
            told.update(spent(cct.feed(input_)))
        names.forget_before(now)
        entered = sum(r.lo % SPACING == 0 for block in blocks for r in block.ranges)
        written.update(instructions=sum(len(block.ranges) for block in blocks), invocations=entered, ticks=ROUND - 1)
        most.update({name: max(0, int(n) - most[name]) for name, n in cct.statistics().items()})
    told.update(spent(cct.flush()))
    assert told == written
    assert most["cct_nodes"] <= 2 * ROOM.nodes
    assert most["cct_activations"] <= ROOM.activations
    assert most["cct_steps"] <= ROOM.steps
    assert most["cct_threads"] == 0
    assert most["cct_panes"] <= 3
    assert most["cct_rebuilt"] > 3
    assert len(names._told) <= 5
