"""How many series a program makes that makes classes all the time."""

from __future__ import annotations

from jvm.names import display
from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from streamer.views.metrics import registry
from tests.hub.reports import Time, report

PANES, CLASSES = 100, 1000


def lambdas(pane: int) -> list[str]:
    """Classes of JDK 17 and of 21 on, each of them new."""
    numbers = range(pane * CLASSES, (pane + 1) * CLASSES)
    return [
        display(f"LShop$$Lambda$14{n}.0x{n:016x};" if n % 2 else f"LShop$$Lambda.0x{n:016x};", "run") for n in numbers
    ]


def test_a_hundred_thousand_lambda_classes_are_one_method() -> None:
    time = Time()
    hub = Hub(WindowConfig(pane_seconds=1), now=time, wall_ns=time.ns)
    exposed = registry(hub)
    seen = []
    for pane in range(PANES):
        names = dict.fromkeys(lambdas(pane), 1)
        hub.feed(report(pane, {"Shop.serve": 50} | names))
        time.seconds += 1
        if pane >= PANES // 2:
            seen.append(sum(len(family.samples) for family in exposed.collect()))
    assert len(set(seen)) == 1
    methods = {s.labels["method"] for f in exposed.collect() for s in f.samples if "method" in s.labels}
    assert methods - {"other"} == {"Shop.serve", "Shop$$Lambda.run"}
    assert len(hub.processes["h", 7].table) <= 3
