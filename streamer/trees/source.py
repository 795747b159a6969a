"""Trees from files: a recording, or a tree that was kept."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from capture.live.drain import Message
from capture.perf import perf_data
from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from jvm.inputfile import read_input
from stages.cct.merging import merged
from stages.cct.tree import Tree
from stages.messages import Chunk, StreamOpen, TreeReport
from streamer import config
from streamer.cli import Failure
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from streamer.pipeline.warm import is_warm, needed
from streamer.trees.file import MAGIC, MOST_PACKED, CctFileError, Saved, unpacked
from streamer.trees.progress import Progress

T = TypeVar("T")
_ALL = 1e9
"""Seconds of a pane: the whole recording is one."""


def load(source: str, say: Callable[[str], None], *, kept: bool = False) -> Saved:
    """`kept`: the user keeps the tree, and needs no advice to. Raises Failure."""
    return read(
        source, lambda path: of_recording(path, say, kept=kept), lambda path: unpacked(read_input(path, MOST_PACKED))
    )


def read(source: str, recording: Callable[[Path], T], kept: Callable[[Path], T] | None = None) -> T:
    """What one of these makes of a file: of a recording, or of a tree that was kept (None: it cannot be had of one).
    Raises Failure."""
    path = Path(source)
    try:
        if stat.S_ISFIFO(path.stat().st_mode):  # its writer may never come
            raise Failure(f"{path} is no file")
        with path.open("rb") as file:
            begin = file.read(len(MAGIC))
        if begin == MAGIC:
            if kept is None:
                raise Failure(f"{path} is a kept tree: only a recording tells which bytecodes were executed")
            return kept(path)
        if begin != perf_data.MAGIC and path.suffix not in (".json", ".zst"):
            raise Failure(
                f"{path} is neither a recording (NAME.json, NAME.perf.data) nor a tree kept by streamer cct --save"
            )
        return recording(path)
    except CctFileError as error:
        raise Failure(f"{path}: {error}") from None
    except PerfDataError as error:
        raise Failure(" ".join(str(error).split())) from None
    except OSError as error:
        raise Failure(f"cannot read {error.filename or path}: {error.strerror}") from None


def of_recording(
    path: Path, say: Callable[[str], None], *, kept: bool = True,
    through: Callable[[Iterable[Message]], Iterable[Message]] = iter,
    last: str = "cct", told: Callable[[object], object] = id, options: Mapping[str, Any] | None = None,
    pane_seconds: float = _ALL, **overrides: Any,
) -> Saved:  # fmt: skip
    """All of its processes together, all panes as one. `kept`: the user keeps the tree. `through`: its messages as they
    are to be seen; `last`: of the stages; `told`: is given all that comes out of it; `options`: of the stages'
    factories; `overrides`: settings by their names. Raises OSError, PerfDataError."""
    settings = config.load(None, fidelity="flow", **{"flow.contexts": True, "flow.recover": False, **overrides})
    settings = settings.model_copy(update={"window": settings.window.model_copy(update={"pane_seconds": pane_seconds})})
    names = middle(settings)
    hz, host, pid = 0.0, "", 0
    trees: list[Tree] = []
    with tempfile.TemporaryDirectory() as directory, Replay(path) as replay:
        if replay.incomplete:
            say(f"{path} is incomplete: {replay.incomplete}")
        if not is_warm(needed(settings)):
            say("on first use kernels are compiled: a minute or two")
        progress = Progress(path.name, replay.trace_bytes())
        chain = make_chain(names[: names.index(last) + 1], Place(settings, Path(directory), 0, options=options or {}))
        for message in through(replay.messages()):
            if isinstance(message, StreamOpen) and not hz:
                hz, host, pid = message.clock.hz, message.stream.host, message.stream.pid
            progress.passed(len(message.data) if isinstance(message, Chunk) else 0)
            trees += _trees(feed_chain(chain, message), told)
        trees += _trees(flush_chain(chain), told)
        progress.ended(kept=kept)
    return Saved(merged(trees), hz or 1e9, host, pid)


def _trees(messages: Iterable[object], told: Callable[[object], object]) -> Iterator[Tree]:
    for message in messages:
        told(message)
        if isinstance(message, TreeReport):
            yield Tree(message.nodes, message.names)
