"""Calls that are bound as they are made: their code changes before it is told."""

from __future__ import annotations

from typing import Any

import numpy as np

from jvm.code.version import Kind, Version
from stages.messages.paths import DISABLED, BlockEnd
from tests.cct.made import METHODS, SPACING, UNKNOWN, Block, Dictionaries, Made, Range
from tests.cct.test_stage import found, stage, tree_of

RESOLVES = METHODS + 2
TID = 7


class Image(Made):
    """With the stub that binds static calls."""

    def __init__(self) -> None:
        super().__init__()
        start = SPACING * RESOLVES
        self.known.append(Version(RESOLVES, Kind.DYNAMIC, start, start + SPACING, "[stub] resolve_static_call", 0, 0))

    def versions_of(self, ips: Any, tscs: Any) -> Any:
        number = ips.astype(np.int64) // SPACING
        return np.where((number >= 1) & (number <= RESOLVES), number, 0)


def one(at: int, ends: BlockEnd, calls: bool = False) -> Block:
    return Block((Range(at, at + (5 if calls else 1), calls, ()),), ends)


CALL, BEHIND = SPACING + 16, SPACING + 21  # in m0
STUB = SPACING * RESOLVES


def counts(call: Block) -> dict[tuple[str, ...], int]:
    """Instructions by stack of m0, whose call is told as `call`, is bound, and leads to m2, which returns."""
    d, cct = Dictionaries(), stage()
    process: Any = cct._of("h", 42)
    process.process.image = process.contents._image = process.contents.functions._image = Image()
    order = [
        d.path([one(SPACING, BlockEnd.CONDITION), call]), DISABLED,
        d.path([one(STUB + 32, BlockEnd.INDIRECT), one(3 * SPACING, BlockEnd.CONDITION),
                one(3 * SPACING + 1, BlockEnd.RETURN), one(BEHIND, BlockEnd.INDIRECT)]),
    ]  # fmt: skip
    out = [*cct.feed(d.message(TID, order, (0, 9), False)), *cct.flush()]
    stacks = found(tree_of(out)).items()
    return {tuple(name for name, _ in stack): n for (stack, what), n in stacks if what == "instructions"}


def test_a_call_that_is_bound_has_its_callee() -> None:
    assert counts(one(CALL, BlockEnd.FILTER, calls=True)) == {
        (UNKNOWN, "m0"): 3, (UNKNOWN, "m0", "m2"): 2, (UNKNOWN, "m0", "[stub] resolve_static_call"): 1,
    }  # fmt: skip


def test_a_call_whose_code_was_not_told_has_its_callee() -> None:
    """The block is cut before it."""
    found = counts(Block((), BlockEnd.UNKNOWN, start=CALL))
    assert (found[UNKNOWN, "m0"], found[UNKNOWN, "m0", "m2"]) == (2, 2)


def test_a_call_that_is_told_as_bound_already_has_the_callee_to_which_it_was_bound() -> None:
    """It leads to the stub behind m0's own code, through which an interpreted method would be called."""
    through = Block((Range(CALL, CALL + 5, True, ()), Range(SPACING + 200, SPACING + 201, False, ())), BlockEnd.UNKNOWN)
    found = counts(through)
    assert found[UNKNOWN, "m0"] == 4
    assert found[UNKNOWN, "m0", "m2"] == 2
