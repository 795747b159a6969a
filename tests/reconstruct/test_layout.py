"""The layout of paths against a plain reading of them."""

from __future__ import annotations

from itertools import takewhile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.messages.paths import FIRST_PATH, LINK_DTYPE, PATH_DTYPE, PathKind
from stages.reconstruct.layout import COMPILED_CODE, JUMPS, MORE, NOTHING, QUIET, RUNS_COMPILED, Layout, OfBlocks
from stages.reconstruct.state import NO_OP
from stages.reconstruct.tokens import Token
from tests.reconstruct.programs import whole

TEMPLATES = np.array([(7, NO_OP), (8, 9)], np.uint8)
KINDS: dict[str, tuple[list[tuple[int, int]], int, int]] = {  # tokens, weight, what a passage says
    "foreign": ([], -1, NOTHING),
    "inside": ([], 3, NOTHING),
    "bytecode": ([(Token.OP, 0)], 2, 7),
    "two": ([(Token.OP, 1)], 2, MORE),
    "branch": ([(Token.TAKEN, 0)], 2, JUMPS),
    "entry": ([(Token.ENTER, 0), (Token.CLEAR, 0)], 4, MORE),
    "compiled": ([(Token.COMPILED, 0)], -1, COMPILED_CODE),
    "calling": ([(Token.COMPILED, 1)], -1, COMPILED_CODE),
    "out": ([(Token.COMPILED, 0), (Token.OP, 0)], -1, MORE),
}
Path = tuple[bool, list[int]]
"""Of paths; its blocks, or places of paths before it that are of blocks."""


@st.composite
def generations(draw: st.DrawFn) -> tuple[list[str], list[Path]]:
    blocks = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=12))
    paths: list[Path] = []
    for _ in range(draw(st.integers(1, 10))):
        plain = [k for k, (of_paths, _) in enumerate(paths) if not of_paths]
        of_paths = bool(plain) and draw(st.booleans())
        source = st.sampled_from(plain) if of_paths else st.integers(0, len(blocks) - 1)
        paths.append((of_paths, draw(st.lists(source, max_size=6))))
    return blocks, paths


def _run(kinds: list[str], blocks: list[int]) -> list[int]:
    """Places of the compiled code with which the blocks begin."""
    own = {"compiled": 0, "calling": 1}
    return [own[kinds[b]] for b in takewhile(lambda b: kinds[b] in {"foreign", *own}, blocks) if kinds[b] in own]


@settings(max_examples=200, deadline=None)
@given(generations(), st.integers(0, 10))
def test_paths_pass_the_blocks_that_matter(generation: tuple[list[str], list[Path]], first: int) -> None:
    kinds, paths = generation
    rows, links = np.zeros(FIRST_PATH + len(paths), PATH_DTYPE), list[int]()
    for row, (of_paths, parts) in zip(rows[FIRST_PATH:], paths, strict=True):
        row["link"], row["links"] = len(links), len(parts)
        row["kind"] = PathKind.OF_PATHS if of_paths else PathKind.OF_BLOCKS
        links += [part + FIRST_PATH * of_paths for part in parts]
    link = np.zeros(len(links), LINK_DTYPE)
    link["number"] = links
    tokens = [token for kind in kinds for token in KINDS[kind][0]]
    counts = np.array([len(KINDS[kind][0]) for kind in kinds], np.int32)
    of = OfBlocks(
        np.cumsum(counts, dtype=np.int32) - counts, counts, np.array([KINDS[kind][1] for kind in kinds], np.int32),
        np.array([token for token, _ in tokens], np.uint8), np.array([argument for _, argument in tokens], np.int32),
    )  # fmt: skip
    layout = Layout()
    calls = np.array([0, 1], np.uint8)
    whole(layout.growing(rows[: FIRST_PATH + min(first, len(paths))], link, of, TEMPLATES, calls))
    path, passage = whole(layout.growing(rows, link, of, TEMPLATES, calls))
    for x, (of_paths, parts) in enumerate(paths, FIRST_PATH):
        blocks = [b for part in parts for b in (paths[part][1] if of_paths else [part])]
        expected = list[tuple[int, int, int]]()
        for nth, b in enumerate(blocks):
            says = KINDS[kinds[b]][2]
            again = says == COMPILED_CODE and expected and expected[-1][2] == COMPILED_CODE
            if kinds[b] != "foreign" and not again:
                expected.append((b, nth, says))
        a, n = int(path.first[x]), int(path.passages[x])
        found = list(zip(*(column[a : a + n].tolist() for column in passage), strict=True))
        assert [tuple(row[:3]) for row in found] == expected
        for (_, nth, says), (*_, called, here) in zip(expected, found, strict=True):
            run = _run(kinds, blocks[nth:]) if says == COMPILED_CODE else []
            assert here == (run[-1] if run else -1)
            assert called == (1 if 1 in run else -1)
            if path.quiet[x]:
                assert (path.called[x], path.here[x]) == (called, here)
        assert path.length[x] == len(blocks)
        quiet = {kinds[b] for b in blocks} <= {"foreign", "compiled", "calling"}
        compiled = RUNS_COMPILED if any(kinds[b] in ("compiled", "calling") for b in blocks) else 0
        assert path.quiet[x] == (QUIET | compiled if quiet else 0)
