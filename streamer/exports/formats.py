"""The formats in which a tree leaves: of each its suffix, its media type, and how it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stages.cct.views import View
from streamer.exports import speedscope
from streamer.trees.file import Saved, packed
from streamer.trees.text import collapsed


@dataclass(frozen=True, slots=True)
class Export:
    """What is exported: `weight` is of formats that have room for one."""

    saved: Saved
    view: View
    weight: str = "instructions"
    observed: bool = False

    @property
    def name(self) -> str:
        return f"{self.saved.host}-{self.saved.pid}" if self.saved.host else "jvm"


@dataclass(frozen=True, slots=True)
class Format:
    suffix: str
    media_type: str
    write: Callable[[Export], bytes]


def _pprof(export: Export) -> bytes:
    from streamer.exports import pprof  # with protobuf, which the hub needs for nothing else

    return pprof.profile(export.view.of(export.saved.tree), export.observed, export.saved.hz)


def _speedscope(export: Export) -> bytes:
    return speedscope.profile(export.view.of(export.saved.tree), export.observed, export.saved.hz, export.name)


def _collapsed(export: Export) -> bytes:
    tree = export.view.of(export.saved.tree)
    return "".join(f"{line}\n" for line in collapsed(tree, export.weight, export.observed)).encode(errors="replace")


def _cct(export: Export) -> bytes:
    """The whole tree: a reader of the file has the same views."""
    return packed(export.saved)


FORMATS = {
    "pprof": Format(".pb.gz", "application/octet-stream", _pprof),
    "collapsed": Format(".collapsed", "text/plain; charset=utf-8", _collapsed),
    "speedscope": Format(".speedscope.json", "application/json", _speedscope),
    "cct": Format(".cct", "application/octet-stream", _cct),
}
