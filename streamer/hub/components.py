"""The parts of a pipeline as their heartbeats tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def starting(status: Mapping[str, Any]) -> bool:
    """For the first time: that is no fault."""
    return status.get("state") == "starting" and not status.get("restarts") and not status.get("deaths_in_a_row")


def trouble(status: Mapping[str, Any]) -> str:
    """Of a part of the pipeline that is down, one line."""
    if starting(status):
        return f"{status['component']} is starting"
    deaths = int(status.get("deaths_in_a_row", 0))
    known = [str(status[key]) for key in ("state", "why") if status.get(key)]
    known += [f"{deaths} deaths in a row"] if deaths > 1 else []
    return f"{status['component']} is down" + (f" ({', '.join(known)})" if known else "")
