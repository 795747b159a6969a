"""Has numba compile the kernels of a chain of stages before anything real arrives.

Kernels compile on first use (kept on disk after that, `jvm.kernels`), and while they do, nothing else in the process
runs. So each process that runs stages first feeds a copy of its chain with the beginning of the demo's recording: real
code, real packets, two threads. The flow kernel alone takes as long to compile as all others twice, so a process of its
own does it meanwhile (`streamer.pipeline.warm_flow`).

A stamp in the cache says that the kernels of a chain are there, for sources with the same content. Where it is
missing, a live source does not wait: the JVM starts, a worker at fidelity `flow` compiles what reading addresses needs,
and sheds until a process beside it (`python -m streamer.pipeline.warm STAGES…`, `Compiling`) has compiled the rest.
The kernels of `reconstruct`, `statements` and `recover` come last, by a second such process: until they are there
nothing is explained, and no hole is filled.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.resources import as_file, files
from pathlib import Path
from threading import Thread
from typing import Any

from capture.recording.replay import Replay
from jvm.cbuild import BuildError, cache_dir
from jvm.sources import digest
from stages.messages import Chunk
from streamer import config
from streamer.config import Settings
from streamer.pipeline import boot
from streamer.pipeline.topology import MIDDLE, Place, feed_chain, flush_chain, make_chain, middle

CHUNKS = 40
NICE = 10  # of the process that compiles beside a JVM
LATER = frozenset({"recover", "reconstruct", "statements"})  # stages that may be without their kernels for a time


@cache
def _stamp(chain: tuple[str, ...]) -> Path:
    stages = Path(__file__).resolve().parents[2] / "stages"
    content = "".join(f"{name}:{digest(stages / name / 'stage.py')}" for name in chain)
    return cache_dir() / f"warm-{sha256(content.encode()).hexdigest()[:32]}"


def is_warm(chain: Sequence[str]) -> bool:
    """Whether all kernels of a chain have been compiled before, from these sources."""
    with suppress(OSError, BuildError):  # a cache that cannot be used is an empty one
        return _stamp(tuple(chain)).exists()
    return False


def needed(settings: Settings) -> tuple[str, ...]:
    """The stages of a chain without which nothing can be followed."""
    return _without_later(middle(settings))


def _without_later(chain: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in chain if name not in LATER)


def sheds(place: Place) -> bool:
    """Whether a stage may count trace that comes too fast, or too soon, by its addresses alone. A recording waits,
    however old it is."""
    return place.settings.flow.most_behind_seconds > 0 and bool(place.options.get("live", False))


def concerns(stages: Sequence[str], place: Place) -> bool:
    """Whether they have kernels: stages of others than the project's own chain are left alone."""
    return stages[-1] in middle(place.settings)


def warm(stages: Sequence[str], place: Place) -> int:
    """Compiles the kernels that a member with these `stages` will use, as far as it has to be there before the member
    begins; how many messages came out."""
    if not concerns(stages, place):
        return 0
    names = middle(place.settings)
    here = replace(place, options={**place.options, "live": False})  # nothing of a recording is shed
    if sheds(place) and not is_warm(names) and stages[-1] not in LATER:
        names = needed(place.settings)  # the rest comes later: `Compiling`
        if "follow" in stages and not is_warm(names):
            return _feed(make_chain(MIDDLE["ip"], here))
    return _warm_all(names[: names.index(stages[-1]) + 1], here)  # the stages before it make its input


def freeze_heap() -> None:
    """All that has been imported, compiled and made so far stays as long as the process, so the collector of cycles
    need not look at it again: each of its full rounds went through some 150,000 such objects, a step of 100 ms."""
    gc.collect()
    gc.freeze()


def _warm_all(chain: Sequence[str], place: Place) -> int:
    if "follow" in chain:
        there = is_warm(middle(place.settings))
        with nullcontext() if there else subprocess.Popen(boot.command("streamer.pipeline.warm_flow")):
            _feed(make_chain(MIDDLE["ip"], place))  # that is how load is shed
            _compile_later(chain)
        from streamer.pipeline.warm_flow import compile_flow

        compile_flow()  # they are on disk now; else each is loaded where it is first used, in a step of up to 0.4 s
    count = _feed(make_chain(chain, place))
    if chain[-1] == MIDDLE[place.settings.fidelity][-1]:
        with suppress(OSError, BuildError):  # then it is compiled, or loaded, once more
            for names in (tuple(chain), _without_later(chain)):
                _stamp(names).touch()
    return count


class Compiling:
    """The kernels of a chain, compiled by a process of their own, if they are not there yet."""

    def __init__(self, chain: Sequence[str], behind: Compiling | None = None) -> None:
        """`behind`: which comes first."""
        self._chain, self._behind = chain, behind
        self._process: subprocess.Popen[bytes] | None = None
        self._loading: Thread | None = None
        self._done = is_warm(chain)
        if behind is None:
            self._begin()

    def _begin(self) -> None:
        if not self._done and self._process is None and self._loading is None:
            command = boot.command("streamer.pipeline.warm", *self._chain)
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def done(self) -> bool:
        """However it ended: missing kernels are compiled where they are used."""
        if self._done or (self._behind is not None and not self._behind.done()):
            return self._done
        self._begin()
        if self._process is not None and self._process.poll() is not None:
            self._process, self._done = None, LATER.isdisjoint(self._chain)
            if not self._done:  # from disk: else the first steps would take the longer
                self._loading = Thread(target=_compile_later, args=(self._chain,), daemon=True)
                self._loading.start()
        if self._loading is not None and not self._loading.is_alive():
            self._loading, self._done = None, True
        return self._done


def _compile_later(chain: Iterable[str]) -> None:
    """The kernels of those in LATER."""
    if "reconstruct" in chain:
        from streamer.pipeline.warm_reconstruct import compile_reconstruct

        compile_reconstruct()
    if "statements" in chain:
        from streamer.pipeline.warm_statements import compile_statements

        compile_statements()
    if "recover" in chain:
        from streamer.pipeline.warm_recover import compile_recover

        compile_recover()


def _feed(chain: Sequence[Any]) -> int:
    from streamer.pipeline.warm_code import compile_code

    compile_code()  # the beginning of the demo has none
    count = chunks = 0
    with as_file(files("streamer.demo")) as directory, Replay(directory / "shop.json") as replay:
        for message in replay.messages():
            count += _drop(feed_chain(chain, message))
            chunks += isinstance(message, Chunk)
            if chunks >= CHUNKS:
                break
        return count + _drop(flush_chain(chain))


def _drop(messages: Iterable[Any]) -> int:
    return sum(message is not None for message in messages)


def main() -> None:
    """Of the stages named, by default those of the settings."""
    os.nice(NICE)
    settings = config.load(fidelity="flow")
    _warm_all(tuple(sys.argv[1:]) or middle(settings), Place(settings, Path(), 0))


if __name__ == "__main__":
    main()
