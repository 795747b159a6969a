"""The methods of a hot-method view (`HotView.json`) in another order, or only some of them."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from streamer.hub.text import View

SORTS: dict[str, Callable[[View], Any]] = {
    "share": lambda method: -method["share"],
    "shift": lambda method: -abs(method["now"] - method["before"]),
    "invocations": lambda method: -(method["invocations"] or 0),
    "bytecodes": lambda method: -(method["bytecodes"] or 0),
    "name": lambda method: method["method"],
}


def arranged(view: View, sort: str, pattern: str, count: int) -> dict[str, Any]:
    """The first `count` methods in that order whose names match; `pattern`: with `*`, or a part of the name. What is
    left out is in `other`, so that all shares add up as before."""
    wanted = pattern if "*" in pattern else f"*{pattern}*"
    methods = sorted((m for m in view["methods"] if fnmatchcase(m["method"], wanted)), key=SORTS[sort])[:count]
    whole = view["other"] + sum(m["share"] for m in view["methods"])
    return {**view, "methods": methods, "other": max(0.0, whole - sum(m["share"] for m in methods))}
