"""Makes the stages that a topology names, from the configuration. Imports what one process needs and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamer.topology import Place


def decode(place: Place) -> Any:
    from stages.decode import make

    return make()


def segment(place: Place) -> Any:
    from stages.segment import make

    return make()


def attribute(place: Place) -> Any:
    from stages.attribute import make

    # each incarnation is a worker of its own to the hub: it numbers methods anew
    worker = place.index + 256 * place.incarnation
    return make(worker, pane_seconds=place.settings.window.pane_seconds)


def capture(place: Place) -> Any:
    from streamer.sources import CaptureSource

    record = place.options.get("record")
    name = "trace" if place.incarnation == 1 else f"trace-{place.incarnation}"
    return CaptureSource(place.directory, place.settings.capture, (Path(record), name) if record is not None else None)


def replay(place: Place) -> Any:
    from streamer.sources import ReplaySource

    options = place.options
    return ReplaySource(Path(options["path"]), options.get("pace"), options.get("seconds"))
