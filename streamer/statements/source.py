"""A recording as the bytecodes that it executed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from capture.perf.perf_data import PerfDataError
from capture.recording.replay import Replay
from stages.messages import Chunk
from stages.reconstruct.stage import Reconstruct
from stages.statements.statements import Statements
from streamer import config
from streamer.cli import Failure
from streamer.pipeline.topology import Place, feed_chain, flush_chain, make_chain, middle
from streamer.pipeline.warm import is_warm, needed
from streamer.statements.graphs import Methods
from streamer.trees.progress import Progress


class Recording:
    """A recording, followed and explained as far as `reconstruct`, with nothing left out to be fast."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = path, say
        overrides = {
            "flow.contexts": False, "flow.recover": False, "flow.interpreted": True, "flow.each_bytecode": True,
        }  # fmt: skip
        self._settings = config.load(None, fidelity="flow", **overrides)
        self._reconstruct: Reconstruct | None = None

    def methods(self, host: str, pid: int) -> Methods:
        assert self._reconstruct is not None, "nothing has been read"
        return Methods(self._reconstruct.classes(host, pid), self._reconstruct.images, host, pid)

    def messages(self) -> Iterator[object]:
        """At the end of the chain. Raises Failure where it cannot be read."""
        names = middle(self._settings)
        names = names[: names.index("reconstruct") + 1]
        try:
            with tempfile.TemporaryDirectory() as directory, Replay(self._path) as replay:
                if replay.incomplete:
                    self._say(f"{self._path} is incomplete: {replay.incomplete}")
                if not is_warm(needed(self._settings)):
                    self._say("on first use kernels are compiled: a minute or two")
                progress = Progress(self._path.name, replay.trace_bytes())
                chain = make_chain(names, Place(self._settings, Path(directory), 0))
                self._reconstruct = chain[-1]
                for message in replay.messages():
                    progress.passed(len(message.data) if isinstance(message, Chunk) else 0)
                    yield from (out for out in feed_chain(chain, message) if out is not None)
                yield from (out for out in flush_chain(chain) if out is not None)
                progress.ended(kept=True)
        except PerfDataError as error:
            raise Failure(" ".join(str(error).split())) from None
        except OSError as error:
            raise Failure(f"cannot read {error.filename or self._path}: {error.strerror}") from None

    def statements(self) -> Statements:
        """Of the whole recording."""
        found = Statements(self.methods)
        for message in self.messages():
            found.take(message)
        return found
