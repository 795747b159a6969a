"""Has numba compile the kernels of a chain of stages before anything real arrives.

Kernels compile on first use (cached on disk after that), and while they do, nothing else in the process runs. In the
middle of a live trace that would be a hole. So each process that runs stages first feeds a copy of its chain with the
beginning of the demo's recording: real code, real packets, two threads. The flow kernel alone takes as long to compile
as all others twice, so a process of its own does it meanwhile (`streamer.warmflow`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from typing import Any

from capture.replay import Replay
from stages.messages import Chunk
from streamer.topology import MIDDLE, Place, feed_chain, flush_chain, make

CHUNKS = 40


def warm(stages: Sequence[str], place: Place) -> int:
    """Compiles what a member with these `stages` will use; how many messages came out. Stages of others than the
    project's own chain are left alone."""
    names = MIDDLE[place.settings.fidelity]
    if stages[-1] not in names:
        return 0
    chain = names[: names.index(stages[-1]) + 1]  # what comes before it makes its input
    place = replace(place, options={**place.options, "live": False})  # nothing of a recording is shed
    if "reconstruct" in stages:
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "streamer.warmflow"]
        ):  # -P: nothing from the working directory
            _feed([make(name, place) for name in MIDDLE["ip"]])  # that is how load is shed
    return _feed([make(name, place) for name in chain])


def _feed(chain: Sequence[Any]) -> int:
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
