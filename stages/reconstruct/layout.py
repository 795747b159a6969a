"""Which blocks matter on each path, laid out one behind the other for the walk.

Most paths are of compiled code alone, and most blocks on the others are not the interpreter's. A block that has neither
tokens nor a weight is left out, and of compiled ones that follow each other all but the first. A passage says in one
number all that the common blocks have to say.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from jvm.kernels import kernel
from stages.messages.paths import PathKind
from stages.reconstruct.state import NO_OP
from stages.reconstruct.tokens import Token

PATHS = 1 << 13
"""Laid out in a step."""
QUIET, RUNS_COMPILED = 1, 2
MORE, JUMPS, NOTHING, COMPILED_CODE = -1, 256, 257, 258
"""What a passage says, if it is no opcode: look at the block's tokens; TAKEN; it has none; COMPILED."""
_OP, _TAKEN, _COMPILED = int(Token.OP), int(Token.TAKEN), int(Token.COMPILED)
_OF_PATHS = int(PathKind.OF_PATHS)


class OfPaths(NamedTuple):
    """By path: QUIET, if nothing of the interpreter is on it, and RUNS_COMPILED; its passages; how many blocks."""

    quiet: NDArray[np.uint8]
    first: NDArray[np.int64]
    passages: NDArray[np.int32]
    length: NDArray[np.int32]
    called: NDArray[np.int32]  # the last call that compiled code made on it (`stages.reconstruct.compiled`), −1
    here: NDArray[np.int32]  # and where that code was last, −1


class Passages(NamedTuple):
    """The block; the how-manieth it is on its path; the opcode of the only bytecode that it dispatches, or as above."""

    block: NDArray[np.int32]
    nth: NDArray[np.int32]
    says: NDArray[np.int16]
    called: NDArray[np.int32]  # of compiled code, as on a path
    here: NDArray[np.int32]


class OfBlocks(NamedTuple):
    first: NDArray[np.int32]  # its tokens
    tokens: NDArray[np.int32]
    weight: NDArray[np.int32]  # its instructions, if all are the interpreter's; else −1
    token: NDArray[np.uint8]
    argument: NDArray[np.int32]


T = TypeVar("T", OfPaths, Passages)


class Layout:
    """Of one generation."""

    def __init__(self) -> None:
        self._paths = 0
        self._used = 0
        self._of = OfPaths(np.zeros(0, np.uint8), np.zeros(0, np.int64), *(np.zeros(0, np.int32) for _ in range(4)))
        block, nth, called, here = (np.zeros(1024, np.int32) for _ in range(4))
        self._passages = Passages(block, nth, np.zeros(1024, np.int16), called, here)

    def growing(
        self, paths: NDArray[np.void], links: NDArray[np.void], blocks: OfBlocks, templates: NDArray[np.uint8],
        calls: NDArray[np.uint8],
    ) -> Generator[None, None, tuple[OfPaths, Passages]]:  # fmt: skip
        """In steps, with all of `paths` (PATH_DTYPE) and `links` (LINK_DTYPE), of which those before are known.
        `calls`: `Places.called`."""
        if len(paths) > len(self._of.quiet):
            self._of = _enlarged(self._of, len(paths))
        while self._paths < len(paths):
            columns = *blocks, templates.reshape(-1), calls, *self._of, *self._passages
            some = paths[: self._paths + PATHS]
            self._paths, self._used = map(int, _lay_out(self._paths, self._used, some, links, *columns))
            if self._paths < len(some):
                self._passages = _enlarged(self._passages, 0)
            yield
        return self._of, self._passages


def _enlarged(columns: T, size: int) -> T:
    """To twice the length, or `size` if that is more."""
    made = []
    for column in columns:
        made.append(np.zeros(max(size, 2 * len(column)), column.dtype))
        made[-1][: len(column)] = column
    return type(columns)(*made)


@kernel
def _lay_out(  # type: ignore[no-untyped-def]
    x, n, paths, links, of_block, tokens, weight, token, argument, templates, calls, quiet, first, passages, length,
    path_called, path_here, block, nth, says, called, here,
):  # fmt: skip
    """Fills the last eleven from path x and passage n on, until there is no room: where it got to."""
    while x < len(paths):
        begin, end = paths[x]["link"], paths[x]["link"] + paths[x]["links"]
        need = end - begin
        if paths[x]["kind"] == _OF_PATHS:
            need = 0
            for q in range(begin, end):
                need += passages[links[q]["number"]]
        if n + need > len(block):
            break
        first[x], path_called[x], path_here[x] = n, -1, -1
        found, blocks = QUIET, 0
        before = NOTHING
        for q in range(begin, end):
            part = np.int64(links[q]["number"])
            if paths[x]["kind"] == _OF_PATHS:
                found = found | quiet[part] & RUNS_COMPILED if quiet[part] and found else 0
                for p in range(first[part], first[part] + passages[part]):
                    if says[p] != COMPILED_CODE or before != COMPILED_CODE:
                        block[n], nth[n], says[n] = block[p], blocks + nth[p], says[p]
                        called[n], here[n] = -1, -1
                        n += 1
                    before = says[p]
                    called[n - 1] = called[p] if called[p] >= 0 else called[n - 1]
                    here[n - 1] = here[p]
                blocks += length[part]
                continue
            at = of_block[part]
            tells = MORE
            if tokens[part] == 0:
                tells = NOTHING
            elif tokens[part] == 1:
                if token[at] == _TAKEN:
                    tells = JUMPS
                elif token[at] == _COMPILED and weight[part] < 0:
                    tells = COMPILED_CODE
                elif token[at] == _OP and templates[2 * argument[at] + 1] == NO_OP:
                    tells = templates[2 * argument[at]]
            if tells == COMPILED_CODE:
                found |= RUNS_COMPILED if found else 0
            elif tells != NOTHING or weight[part] >= 0:
                found = 0
            if tells != NOTHING or weight[part] > 0:
                if tells != COMPILED_CODE or before != COMPILED_CODE:
                    block[n], nth[n], says[n], called[n], here[n] = part, blocks, tells, -1, -1
                    n += 1
                before = tells
                if tells == COMPILED_CODE:
                    here[n - 1] = argument[at]
                    called[n - 1] = argument[at] if calls[argument[at]] else called[n - 1]
            blocks += 1
        quiet[x], passages[x], length[x] = found, n - first[x], blocks
        if found & RUNS_COMPILED:  # of a quiet path: one passage
            path_called[x], path_here[x] = called[n - 1], here[n - 1]
        x += 1
    return x, n
