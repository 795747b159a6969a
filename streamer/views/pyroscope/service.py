"""The calls of QuerierService, over the trees of the newest panes. A series is a process, with labels `service_name`
(host/pid), `host` and `pid`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stages.cct.merging import merged
from stages.cct.tree import EMPTY, Tree
from streamer.hub.hub import Hub, ProcessKey
from streamer.trees.flame import Wanted
from streamer.trees.weights import WEIGHTS, weights
from streamer.views.pyroscope import connect
from streamer.views.pyroscope.flamegraph import flamegraph
from streamer.views.pyroscope.schema import MESSAGES
from streamer.views.pyroscope.selector import Selector, every

UNITS = {"instructions": "count", "time": "nanoseconds", "invocations": "count", "bytecodes": "count"}
NODES, MOST_NODES = 8192, 100_000
MOST_POINTS = 20_000
MOST_LABELS = 64


def type_id(weight: str) -> str:
    return f"jvm:{weight}:{UNITS[weight]}:trace:nanoseconds"


TYPES = {type_id(weight): weight for weight in WEIGHTS}


class Querier:
    def __init__(self, hub: Hub, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._hub, self._in_thread = hub, in_thread

        self.calls: dict[str, connect.Call] = {
            "ProfileTypes": self.profile_types, "LabelNames": self.label_names, "LabelValues": self.label_values,
            "Series": self.series, "SelectMergeStacktraces": self.stacktraces, "SelectSeries": self.select_series,
        }  # fmt: skip

    async def answer(self, request: Request) -> Response:
        method = request.path_params["method"]
        if method not in self.calls:
            return connect.refused(404, "unimplemented", f"no call {method[:50]!r}; there are {', '.join(self.calls)}")
        return await connect.answer(request, method, self.calls[method])

    async def profile_types(self, asked: Any) -> Any:
        out = MESSAGES["ProfileTypesResponse"]()
        for name, weight in TYPES.items():
            out.profile_types.add(
                ID=name, name="jvm", sample_type=weight, sample_unit=UNITS[weight], period_type="trace",
                period_unit="nanoseconds",
            )  # fmt: skip
        return out

    async def label_names(self, asked: Any) -> Any:
        names = {name for labels in self._matching(every(asked.matchers)).values() for name in labels}
        return MESSAGES["LabelNamesResponse"](names=sorted(names))

    async def label_values(self, asked: Any) -> Any:
        every_ = self._matching(every(asked.matchers)).values()
        return MESSAGES["LabelValuesResponse"](
            names=sorted({labels[asked.name] for labels in every_ if asked.name in labels})
        )

    async def series(self, asked: Any) -> Any:
        wanted = set(asked.label_names)
        found = (
            tuple((name, value) for name, value in sorted(labels.items()) if not wanted or name in wanted)
            for labels in self._matching(every(asked.matchers)).values()
        )
        out = MESSAGES["SeriesResponse"]()
        for pairs in dict.fromkeys(found):
            out.labels_set.add(labels=_pairs(pairs))
        return out

    async def stacktraces(self, asked: Any) -> Any:
        weight, parts, hz = _weight(asked), [], 1e9
        for key in self._matching([Selector(asked.label_selector)]):
            clock = self._hub.processes[key].clock
            hz = clock.hz if clock is not None else hz
            parts += [tree for _, tree in self._within(key, asked)]
        most = asked.max_nodes if asked.HasField("max_nodes") and asked.max_nodes > 0 else NODES
        wanted = Wanted(weight, most=min(most, MOST_NODES))

        def made() -> Any:
            return flamegraph(merged(parts) if parts else EMPTY, wanted, hz)

        return MESSAGES["SelectMergeStacktracesResponse"](flamegraph=await self._in_thread(made))

    async def select_series(self, asked: Any) -> Any:
        """Sums by step. What old panes were put together for is spread over them evenly."""
        weight, step = _weight(asked), asked.step
        if not 1e-3 <= step < 1e9:
            raise ValueError("step must be a number of seconds, 0.001 or more")
        if len(asked.group_by) > MOST_LABELS:
            raise ValueError(f"at most {MOST_LABELS} labels")
        sums: dict[tuple[tuple[str, str], ...], dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for key, labels in self._matching([Selector(asked.label_selector)]).items():
            group = tuple((name, labels.get(name, "")) for name in asked.group_by)
            clock = self._hub.processes[key].clock
            scale = 1e9 / clock.hz if weight == "time" and clock is not None else 1.0
            for panes, tree in self._within(key, asked):
                each = scale * float(weights(tree, weight, False).sum()) / len(panes)
                for seconds in panes:
                    sums[group][int(seconds / step)] += each
        out = MESSAGES["SelectSeriesResponse"]()
        order = sorted(sums, key=lambda group: -sum(sums[group].values()))
        limit = asked.limit if asked.HasField("limit") and asked.limit > 0 else len(order)
        for group in order[:limit]:
            points = sorted(sums[group].items())[-MOST_POINTS:]
            out.series.add(
                labels=_pairs(group), points=[_point(value, round(1000 * at * step)) for at, value in points]
            )
        return out

    def _matching(self, selectors: Iterable[Selector]) -> dict[ProcessKey, dict[str, str]]:
        """Processes of which there are trees, and their labels."""
        selectors = list(selectors)
        out = {}
        for host, pid in self._hub.processes:
            labels = {"service_name": f"{host}/{pid}", "host": host, "pid": str(pid)}
            if self._hub.trees.stretches((host, pid)) and all(selector(labels) for selector in selectors):
                out[host, pid] = labels
        return out

    def _within(self, key: ProcessKey, asked: Any) -> list[tuple[list[float], Tree]]:
        """Trees of which a pane ended between start and end, with when those panes ended."""
        out = []
        begin, end = asked.start / 1000, asked.end / 1000 or float("inf")
        for numbers, tree in self._hub.trees.stretches(key):
            panes = [self._hub.pane_end(key, pane) for pane in numbers]
            if any(begin <= at <= end for at in panes):
                out.append((panes, tree))
        return out


def _weight(asked: Any) -> str:
    weight = TYPES.get(asked.profile_typeID)
    if weight is None:
        raise ValueError(f"no profile type {asked.profile_typeID[:100]!r}; there are {', '.join(TYPES)}")
    return weight


def _pairs(labels: Iterable[tuple[str, str]]) -> list[Any]:
    return [MESSAGES["LabelPair"](name=name, value=value) for name, value in labels]


def _point(value: float, timestamp: int) -> Any:
    return MESSAGES["Point"](value=value, timestamp=timestamp)
