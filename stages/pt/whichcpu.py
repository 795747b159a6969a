"""Was a trace that breaks the rules of the book made by a processor with an erratum?

Nothing in a raw trace says which processor made it. But where decoding by the book fails, the piece before can be
decoded again as each kind of processor would have written it (`errata`): a kind that explains the place is worth a
hint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stages.messages import U8
from stages.pt import dump as packet_dump
from stages.pt.errata import representatives
from stages.pt.events import event as events
from stages.pt.exact.decoder import FlowDecoder, Options
from stages.pt.exact.instructions import Instructions
from stages.pt.packets import Records

PSB = b"\x02\x82" * 8
BEFORE, BEHIND = 1 << 16, 1 << 12  # bytes around the place that are decoded
MOST = 8  # places that are tried

Faults = Callable[[U8, int, int], list[int]]  # data, family, model → where it fails


class Places:
    """The first `MOST` places of a trace at which decoding failed, as offsets."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def add(self, offset: int) -> None:
        if len(self.offsets) < MOST:
            self.offsets.append(offset)


def hint(data: U8, failed: Places, faults: Faults, base: int = 0) -> str:
    """One line on the first place in `data` that the errata of some processor explain where decoding by the book
    failed; "" if there is none. `base`: offset of `data` in the trace.

    It costs at most `MOST` pieces, each decoded once for every set of errata."""
    for place in failed.offsets:
        begin = max(0, place - BEFORE)
        first = data[begin : place + len(PSB)].tobytes().find(PSB)
        if first < 0:
            continue
        piece = data[begin + first : place + BEHIND]
        at = place - begin - first
        by_the_book = _until(at, faults(piece, 0, 0))
        if at not in by_the_book:
            continue  # it was the trace before the piece
        found = " or ".join(
            f"{family}/{model}"
            for family, model in representatives()
            if _until(at, faults(piece, family, model)) <= by_the_book - {at}
        )
        if found:
            return (
                f"the trace breaks the rules at byte {base + place:#x} in the way of a processor with the errata of "
                f"{found}: name the one that made it with --cpu FAMILY/MODEL"
            )
    return ""


def _until(last: int, places: list[int]) -> set[int]:
    return {place for place in places if place <= last}


def packet_faults(data: U8, family: int, model: int) -> list[int]:
    """`Faults` of a dump: where bytes are no packet."""
    bad: list[int] = []
    for _ in packet_dump.dump(data, packet_dump.DumpOptions(family=family, model=model), bad=bad.append):
        pass
    return bad


def flow_faults(code: Instructions, options: Options) -> Faults:
    """`Faults` of a flow through `code`."""

    def faults(data: U8, family: int, model: int) -> list[int]:
        decoder = FlowDecoder(data, code, replace(options, family=family, model=model), capacity=1 << 12)
        return [place for batch in decoder for place in errors_in(batch.events)]

    return faults


def errors_in(evs: Records) -> list[int]:
    """Where in the trace the errors among EVENT_DTYPE `evs` are."""
    chosen = evs[(evs["kind"] == events.ERROR) & (evs["status"] == 0)]
    return [int(at) for at in chosen["a"]]
