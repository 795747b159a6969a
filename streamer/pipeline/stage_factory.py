"""Makes the stages that a topology names, from the configuration. Imports the modules that one process needs and no
more."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capture.perf.perf_data import PerfDataError
from streamer.pipeline.topology import InputError, Place, TopologyError, middle

LATENESS_SECONDS = {"ip": 0.25, "flow": 0.5}
"""By which code may be told late. More where every branch is followed: branches in code told too late are not."""

UNREAD = 1.5
"""From so many times `flow.most_behind_seconds` on trace is not even read."""


def _worker(place: Place) -> int:
    """Each incarnation is a worker of its own to the hub: it numbers methods anew."""
    return place.index + 256 * place.incarnation


def decode(place: Place) -> Any:
    from capture.live import tsc
    from stages.decode.stage import make
    from streamer.pipeline.warm import sheds

    live = sheds(place) and place.settings.fidelity == "flow"
    most = UNREAD * place.settings.flow.most_behind_seconds
    return make(first=place.incarnation == 1, now=tsc.now if live else None, most_behind_seconds=most)


def segment(place: Place) -> Any:
    from stages.segment.stage import make

    return make()


def _images(place: Place) -> Any:
    """Code is parsed and kept once a member."""
    from stages.images import Images

    if "images" not in place.shared:
        place.shared["images"] = Images(LATENESS_SECONDS[place.settings.fidelity])
    return place.shared["images"]


def ready(place: Place) -> Any:
    from stages.ready.stage import HOLD_SECONDS, PATIENCE_SECONDS, Ready
    from streamer.pipeline.warm import sheds

    patience = PATIENCE_SECONDS if sheds(place) else math.inf
    pane = place.settings.window.pane_seconds
    return Ready(_images(place), hold_seconds=HOLD_SECONDS, patience_seconds=patience, pane_seconds=pane)


def follow(place: Place) -> Any:
    from capture.live import tsc
    from stages.follow.stage import Follow
    from streamer.pipeline.warm import sheds

    live = sheds(place)
    return Follow(
        _images(place),
        now=tsc.now if live else None,
        most_behind_seconds=place.settings.flow.most_behind_seconds,
        followable=_compiling(place).done if live else None,
    )


def _compiling(place: Place) -> Any:
    """The kernels without which nothing can be followed; one a member."""
    from streamer.pipeline.warm import Compiling, needed

    if "compiling" not in place.shared:
        place.shared["compiling"] = Compiling(needed(place.settings))
    return place.shared["compiling"]


def _clock(place: Place, share: float) -> dict[str, Any]:
    """Of a stage that gives way at that share of `flow.most_behind_seconds`, before anything is shed."""
    from capture.live import tsc
    from streamer.pipeline.warm import Compiling, sheds

    if not sheds(place):
        return {}
    if "compiling later" not in place.shared:
        place.shared["compiling later"] = Compiling(middle(place.settings), _compiling(place))
    ready = place.shared["compiling later"].done
    return {"now": tsc.now, "most_behind_seconds": share * place.settings.flow.most_behind_seconds, "ready": ready}


def recover(place: Place) -> Any:
    from stages.recover.stage import Recover

    settings = place.settings
    flow, pane = settings.flow, settings.window.pane_seconds
    size = flow.recover_mib << 20
    return Recover(_images(place), window_bytes=size, pane_seconds=pane, guesses=flow.guess, **_clock(place, 1 / 4))


def reconstruct(place: Place) -> Any:
    from stages.reconstruct.stage import Reconstruct

    pane, flow = place.settings.window.pane_seconds, place.settings.flow
    stage = Reconstruct(
        _images(place), pane_seconds=pane, each_bytecode=flow.each_bytecode or flow.statements, **_clock(place, 1 / 2)
    )
    place.shared["reconstruct"] = stage
    return stage


def statements(place: Place) -> Any:
    from stages.statements.stage import StatementStage
    from streamer.statements.graphs import Methods

    if "reconstruct" not in place.shared:
        raise TopologyError("the stage statements reads the graph of reconstruct, and stands behind it in its process")
    images, reconstruct = _images(place), place.shared["reconstruct"]
    ready = {name: what for name, what in _clock(place, 1 / 2).items() if name == "ready"}
    return StatementStage(
        lambda host, pid: Methods(reconstruct.classes(host, pid), images, host, pid), _worker(place), images,
        pane_seconds=place.settings.window.pane_seconds, **ready,
    )  # fmt: skip


def cct(place: Place) -> Any:
    from stages.cct.stage import Cct
    from stages.cct.traced import Room

    settings, rows = place.settings, place.settings.flow.context_kirows << 10
    return Cct(
        _worker(place), _images(place), pane_seconds=settings.window.pane_seconds, room=Room(rows, rows, rows),
        presume=settings.flow.presume, costs=place.options.get("costs"),
    )  # fmt: skip


def attribute(place: Place) -> Any:
    from stages.attribute.stage import Attribute

    return Attribute(_images(place), pane_seconds=place.settings.window.pane_seconds)


def profile(place: Place) -> Any:
    from stages.profile.stage import Profile

    return Profile(_worker(place), _images(place), pane_seconds=place.settings.window.pane_seconds)


def capture(place: Place) -> Any:
    from streamer.pipeline.sources import CaptureSource
    from streamer.target.launch import hardware

    record = place.options.get("record")
    source = hardware(place.directory, place.settings) if place.options.get("hardware") else None
    name = "trace" if place.incarnation == 1 else f"trace-{place.incarnation}"
    with _input():
        return CaptureSource(
            place.directory,
            place.settings.capture,
            (Path(record), name) if record is not None else None,
            source,
            must_record=place.incarnation == 1,  # later the JVM runs, and is traced all the same
        )


def hub(place: Place) -> Any:
    from streamer.pipeline.hub_stage import HubStage

    first = place.incarnation == 1 and not place.options.get("resumed")
    options = place.options
    terminal = bool(options.get("terminal"))
    return HubStage(place.settings, place.directory, options["listener"], first=first, terminal=terminal)


def replay(place: Place) -> Any:
    from streamer.pipeline.sources import ReplaySource

    options = place.options
    with _input():
        return ReplaySource(Path(options["path"]), options.get("pace"), options.get("seconds"))


@contextmanager
def _input() -> Iterator[None]:
    """Files that cannot be opened will not be better the next time."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from error
    except PerfDataError as error:
        raise InputError(" ".join(str(error).split())) from error
