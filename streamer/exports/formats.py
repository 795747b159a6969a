"""The formats in which a tree leaves: of each its suffix, its media type, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamer.trees.weights import weights

if TYPE_CHECKING:
    from stages.cct.tree import Tree
    from stages.cct.views import View
    from streamer.trees.file import Saved

MOST_FRAMES = 1 << 24
"""Of all stacks together: these formats write each stack out."""


class TooLargeError(ValueError):
    """The stacks have too many frames; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Export:
    """What is exported. `weight`: of formats that have room for one. `share`: contexts with less of all instructions
    are put together."""

    saved: Saved
    view: View
    weight: str = "instructions"
    observed: bool = False
    share: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.saved.host}-{self.saved.pid}" if self.saved.host else "jvm"

    def tree(self) -> Tree:
        """As it is looked at. Raises TooLargeError."""
        from stages.cct.merging import inclusive  # with numba, which the names of the formats do without
        from streamer.trees.levels import depths, pruned

        tree = self.view.of(self.saved.tree)
        if self.share:
            total = inclusive(tree, weights(tree, "instructions", self.observed))
            tree = pruned(tree, total, self.share, len(total))
        frames = int(depths(tree.nodes["parent"].astype(np.int64)).sum())
        if frames > MOST_FRAMES:
            raise TooLargeError(
                f"the stacks have {frames:,} frames, and {MOST_FRAMES:,} are the most: leave out narrow contexts "
                "(min_share, --share) or fold recursion (--fold-recursion)"
            )
        return tree


@dataclass(frozen=True, slots=True)
class Format:
    suffix: str
    media_type: str
    write: Callable[[Export], bytes]
    experimental: bool = False
    """May change, or go; only for those who ask for such a one."""


def _pprof(export: Export) -> bytes:
    from streamer.exports import pprof  # with protobuf, which the hub needs for nothing else

    return pprof.profile(export.tree(), export.observed, export.saved.hz)


def _otlp(export: Export) -> bytes:
    from streamer.exports import otlp

    saved = export.saved
    return otlp.profile(export.tree(), export.observed, saved.hz, saved.host, saved.pid)


def _speedscope(export: Export) -> bytes:
    from streamer.exports import speedscope

    return speedscope.profile(export.tree(), export.observed, export.saved.hz, export.name)


def _collapsed(export: Export) -> bytes:
    from streamer.trees.text import collapsed

    return "".join(f"{line}\n" for line in collapsed(export.tree(), export.weight, export.observed)).encode(
        errors="replace"
    )


def _cct(export: Export) -> bytes:
    """The whole tree: a reader of the file has the same views."""
    from streamer.trees.file import packed

    return packed(export.saved)


FORMATS = {
    "pprof": Format(".pb.gz", "application/octet-stream", _pprof),
    "collapsed": Format(".collapsed", "text/plain; charset=utf-8", _collapsed),
    "speedscope": Format(".speedscope.json", "application/json", _speedscope),
    "otlp": Format(".otlp.pb", "application/x-protobuf", _otlp, experimental=True),
    "cct": Format(".cct", "application/octet-stream", _cct),
}
