"""The stages in groups, and each group's processes. Inside a group messages pass by direct call, between groups over
sockets.

    [capture] → [decode, segment, ready, follow, recover, reconstruct, cct, attribute, profile] × N → [hub]

is the default (at fidelity `ip` without follow to cct; without `flow.recover`, `flow.interpreted`, `flow.contexts`
without recover, reconstruct, cct; with `flow.statements` statements stands behind reconstruct, in its processes);
`transport.split` names stages before which the middle group is cut, in the extreme each stage into processes of its
own. The first group is a source, the last one (a single member) is where everything ends.

A stage is made by the function of its name in `FACTORIES`, in the process where it runs, so that a process imports no
more than it needs. `Pipeline` runs a whole topology in one process without sockets.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jvm.faults import ExpectedError
from streamer.config import Settings
from streamer.transport.output import Output
from streamer.transport.routing import route


@dataclass(frozen=True)
class Place:
    """The argument of a factory: the member and the place in it for which a stage is made."""

    settings: Settings
    directory: Path  # of the session
    index: int  # member of its group: the shard
    incarnation: int = 1  # counts the restarts of the member
    options: Mapping[str, Any] = field(default_factory=dict)  # of the group; `live`: its source does not wait
    shared: dict[str, Any] = field(default_factory=dict)  # between the stages of one member


class Stage(Protocol):
    """Computation. A stage passes on the messages that it does not consume.

    A stage whose work may take long also has `steps(message)` and `flush_steps()`: iterators that give the messages of
    `feed` and `flush`, and None wherever its member may turn to something else, at least ten times a second.
    """

    def feed(self, message: Any, /) -> Iterable[Any]: ...

    def flush(self) -> Iterable[Any]: ...

    def statistics(self) -> Mapping[str, Any]: ...


@runtime_checkable
class Source(Protocol):
    """Where messages come from: the only stage of a first group. `run` sends until nothing more comes; it calls
    `output.heal` between two looks at its input. After `stop` it sends what is there already and returns."""

    async def run(self, output: Output) -> None: ...

    def stop(self) -> None: ...

    def statistics(self) -> Mapping[str, Any]: ...


class TopologyError(ExpectedError, ValueError):
    """A topology that cannot run: one clear line."""


class InputError(Exception):
    """A source's input is damaged or cannot be had, and starting the source again would not help: one clear line."""


FACTORIES = "streamer.pipeline.stage_factory"
"""The module whose functions, `Callable[[Place], Stage | Source]`, make the stages of their names."""


def _factories() -> dict[str, Callable[[Place], Any]]:
    """By name. Those that begin with an underscore are the module's own."""
    module = importlib.import_module(FACTORIES)
    functions = inspect.getmembers(module, inspect.isfunction)
    return {name: f for name, f in functions if f.__module__ == FACTORIES and not name.startswith("_")}


def make(name: str, place: Place) -> Any:
    """The stage or source of that name, or that the factory "module:function" makes. Raises `TopologyError`."""
    module, colon, attribute = name.partition(":")
    if not colon:
        known = _factories()
        if name not in known:
            raise TopologyError(f"no stage is called {name!r}; there are {', '.join(sorted(known))}")
        return known[name](place)
    try:
        factory: Callable[[Place], Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise TopologyError(f"stage {name!r} cannot be loaded: {error}") from error
    return factory(place)


def make_chain(names: Iterable[str], place: Place) -> list[Any]:
    """The stages of one member. Raises `TopologyError`."""
    place = replace(place, shared={})
    return [make(name, place) for name in names]


@dataclass(frozen=True)
class Group:
    """`workers` members, each with the same stages, with disjoint keys."""

    name: str
    stages: tuple[str, ...]
    workers: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)  # JSON; told to the factories

    @property
    def members(self) -> list[str]:
        return [f"{self.name}/{i}" for i in range(self.workers)]


@dataclass(frozen=True)
class Topology:
    """Groups in order. Raises `TopologyError` when made wrongly."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        names = [g.name for g in self.groups]
        if len(self.groups) < 2:
            raise TopologyError("a topology needs a source and at least one group behind it")
        if len(set(names)) != len(names):
            raise TopologyError(f"two groups have one name: {', '.join(names)}")
        for group in self.groups:
            if not group.name or not group.name.replace("-", "").replace("_", "").isalnum():
                raise TopologyError(f"{group.name!r} is no name for a group")
            if not group.stages:
                raise TopologyError(f"group {group.name} has no stages")
            if not 1 <= group.workers <= 256:
                raise TopologyError(f"group {group.name}: {group.workers} workers; 1 to 256 are possible")
        if len(self.groups[0].stages) != 1:
            raise TopologyError(f"group {names[0]}: a source stands alone in its group")
        if self.groups[-1].workers != 1:
            raise TopologyError(f"group {names[-1]}: the last group has one member")

    @property
    def members(self) -> list[str]:
        return [m for g in self.groups for m in g.members]


MIDDLE = {
    "ip": ("decode", "segment", "ready", "attribute", "profile"),
    "flow": ("decode", "segment", "ready", "follow", "recover", "reconstruct", "cct", "attribute", "profile"),
}


def middle(settings: Settings) -> tuple[str, ...]:
    """The stages between source and hub: those of the fidelity, without those that are not asked for."""
    flow, split = settings.flow, settings.transport.split
    explained = flow.interpreted or flow.statements
    asked = {"recover": flow.recover, "reconstruct": explained, "cct": flow.contexts}
    names = [name for name in MIDDLE[settings.fidelity] if asked.get(name, True) or name in split]
    if flow.statements and "reconstruct" in names:
        names.insert(names.index("reconstruct") + 1, "statements")
    return tuple(names)


def topology(
    settings: Settings,
    source: str = "capture",
    stages: Sequence[str] | None = None,
    sink: str = "hub",
    **options: Any,
) -> Topology:
    """The default topology of the fidelity, cut where `transport.split` says. `options` go to the factories of every
    group. Raises `TopologyError`."""
    stages = stages or middle(settings)
    unknown = [s for s in settings.transport.split if s not in stages]
    if unknown:
        raise TopologyError(f"transport.split: no stage is called {', '.join(unknown)}; there are {', '.join(stages)}")
    if "statements" in settings.transport.split:
        raise TopologyError("transport.split: statements reads the graph of reconstruct, and stands in its processes")
    cuts = sorted({0, *(list(stages).index(s) for s in settings.transport.split), len(stages)})
    parts = [tuple(stages[a:b]) for a, b in pairwise(cuts)]
    workers = settings.transport.workers
    between = [Group(_name(p[0]), p, workers, options) for p in parts]
    return Topology((Group(_name(source), (source,), 1, options), *between, Group(_name(sink), (sink,), 1, options)))


def _name(stage: str) -> str:
    return stage.rpartition(":")[2]


def feed_chain(stages: Sequence[Stage], message: Any) -> Iterator[Any]:
    """The messages at the end of `stages` when `message` goes in; None between two steps of a stage that takes long
    (see `Stage`)."""
    if not stages or message is None:
        yield message
        return
    for out in getattr(stages[0], "steps", stages[0].feed)(message):
        yield from feed_chain(stages[1:], out)


def flush_chain(stages: Sequence[Stage]) -> Iterator[Any]:
    """The end: each stage is flushed after all that the one before it still had has gone through. None as above."""
    for i, stage in enumerate(stages):
        for out in getattr(stage, "flush_steps", stage.flush)():
            yield from feed_chain(stages[i + 1 :], out)


class Pipeline:
    """All groups behind the source in this process, by direct calls: for tests, and for replay at full speed.
    The same stage objects, the same sharding, nothing encoded."""

    def __init__(
        self, plan: Topology, settings: Settings, directory: Path, here: Mapping[str, Sequence[Stage]] | None = None
    ) -> None:
        """`here`: stage objects to use for a group of one member instead of making them."""
        self._groups = [
            [list((here or {})[group.name])]
            if group.name in (here or {})
            else [
                make_chain(group.stages, Place(settings, directory, i, 1, group.options)) for i in range(group.workers)
            ]
            for group in plan.groups[1:]
        ]
        self._names = [g.name for g in plan.groups[1:]]

    def feed(self, message: Any) -> None:
        """Let `message` run through to the last group."""
        self._pass(0, 0, 1, message)

    def flush(self) -> None:
        """The end of everything, group after group."""
        for number, group in enumerate(self._groups):
            for lane, stages in enumerate(group):
                for out in flush_chain(stages):
                    self._pass(number + 1, lane, len(group), out)

    def _pass(self, number: int, lane: int, lanes: int, message: Any) -> None:
        if number == len(self._groups) or message is None:
            return
        group = self._groups[number]
        for i in route(message, lane, lanes, len(group)):
            for out in feed_chain(group[i], message):
                self._pass(number + 1, i, len(group), out)

    def statistics(self) -> dict[str, dict[str, Any]]:
        """By member."""
        return {
            f"{name}/{i}": {k: v for stage in stages for k, v in stage.statistics().items()}
            for name, group in zip(self._names, self._groups, strict=True)
            for i, stages in enumerate(group)
        }
