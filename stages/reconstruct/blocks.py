"""The tokens of the blocks of a generation: found once, as the dictionaries grow."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from jvm.arena import Arena
from jvm.bytecode.icfg import ByOpcode
from jvm.code.image import CodeImage
from jvm.kernels import kernel
from stages.messages.paths import BlockEnd
from stages.paths.dictionary import Dictionary
from stages.reconstruct import landmarks
from stages.reconstruct.compiled import Compiled
from stages.reconstruct.layout import Layout, OfBlocks
from stages.reconstruct.tokens import Token
from stages.reconstruct.window import Blocks

INDIRECT = int(BlockEnd.INDIRECT)
_IN_COMPILED = int(Token.COMPILED)
MOST_TOKENS = 8
"""Of a block; it has no more landmarks, unless its code is hostile."""
BLOCKS = 1 << 12
"""Looked at in a step."""


class TokensOfBlocks:
    """Of one process. Forgotten with the generation; found again when the interpreter's landmarks change."""

    def __init__(self, image: CodeImage) -> None:
        self._image, self.compiled = image, Compiled(image)
        self.forgotten = 0
        self._landmarks: landmarks.Landmarks | None = None
        self._executed, self._census = image.codelets.executed, image.census
        self.forget()

    def forget(self) -> None:
        self._columns = [Arena[np.int32](np.int32) for _ in range(3)]  # first, count, weight: by block
        self._token, self._argument = Arena[np.uint8](np.uint8), Arena[np.int32](np.int32)
        self._layout = Layout()
        self.compiled.forget()
        self.forgotten += 1

    def growing(self, d: Dictionary, index: ByOpcode, number: NDArray[np.int32]) -> Generator[None, None, Blocks]:
        """In steps, with all that the dictionary has now. `number`: methods of the graph by the agent's."""
        marks = self._look()
        yield
        while (begin := self._columns[0].used) < d.blocks.size:
            blocks = d.blocks.rows[begin : begin + BLOCKS]
            out = [np.zeros(len(blocks), np.int32) for _ in range(3)]
            tokens = np.zeros(MOST_TOKENS * len(blocks), np.uint8), np.zeros(MOST_TOKENS * len(blocks), np.int32)
            ends = np.array([(lo, hi, int(token)) for lo, hi, token in marks.ends], np.int64).reshape(-1, 3)
            compiled = self.compiled.rows(blocks, d.ranges.rows)
            n = _tokens(
                blocks, d.ranges.rows, d.lengths.rows, marks.address, marks.token, marks.argument, ends,
                compiled, np.array(marks.interpreter, np.uint64), self._token.used, *out, *tokens,
            )  # fmt: skip
            for column, rows in zip(self._columns, out, strict=True):
                column.append(rows)
            self._token.append(tokens[0][:n])
            self._argument.append(tokens[1][:n])
            yield
        first, count, weight = (column.view() for column in self._columns)
        of = OfBlocks(first, count, weight, self._token.view(), self._argument.view())
        places, scopes = self.compiled.view()
        path, passage = yield from self._layout.growing(d.paths.rows, d.links.rows, of, marks.templates, places.called)
        return Blocks(of, path, passage, marks.templates, index, places, scopes, number)

    def _look(self) -> landmarks.Landmarks:
        """Again when the interpreter's tables have changed, and until its stubs have been told."""
        image, known = self._image, self._landmarks
        if known is None:
            self._executed, self._census = image.codelets.executed, image.census
            known = self._landmarks = landmarks.find(image)
        if image.codelets.executed is not self._executed or (not known.complete and image.census != self._census):
            self._executed, self._census = image.codelets.executed, image.census
            known = self._landmarks = landmarks.find(image)
            self.forget()
        return known


@kernel
def _tokens(  # type: ignore[no-untyped-def]
    blocks, ranges, lengths, address, token, argument, ends, compiled, interpreter, base, first, count, weight,
    out_token, out_argument,
):  # fmt: skip
    """Fills the last five; how many tokens."""
    n = 0
    for k in range(len(blocks)):
        b = blocks[k]
        first[k] = base + n
        begin = n
        within = True
        if compiled[k] >= 0:
            out_token[n], out_argument[n] = _IN_COMPILED, compiled[k]
            n += 1
        at = b["length"]
        for r in range(b["range"], b["range"] + b["ranges"]):
            lo, hi = ranges[r]["lo"], ranges[r]["hi"]
            within = within and interpreter[0] <= lo and hi <= interpreter[1]
            m = np.searchsorted(address, lo)
            if m == len(address) or address[m] >= hi:
                at += ranges[r]["instructions"]
                continue
            here = lo
            for _ in range(ranges[r]["instructions"]):
                while m < len(address) and address[m] < here:  # inside of an instruction: none
                    m += 1
                while m < len(address) and address[m] == here:
                    if n - begin < MOST_TOKENS - 1:
                        out_token[n], out_argument[n] = token[m], argument[m]
                        n += 1
                    m += 1
                here += np.uint64(lengths[at])
                at += 1
        if b["ends"] == INDIRECT:
            for e in range(len(ends)):
                if ends[e, 0] <= np.int64(b["last"]) < ends[e, 1]:
                    out_token[n], out_argument[n] = ends[e, 2], 0
                    n += 1
        count[k] = n - begin
        weight[k] = b["instructions"] if within and b["instructions"] > 0 else -1
    return n
