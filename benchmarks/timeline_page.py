"""How fast the page draws the timeline with all that is kept, in a headless Chromium without a GPU: `python -m
benchmarks.timeline_page`; and how long the hub takes to sum it up."""

from __future__ import annotations

import argparse
import time

import trio

from benchmarks.in_page import measured
from stages.messages import Clock
from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from streamer.hub.timeline import timeline
from tests.hub.reports import HOST, PID, Time
from tests.hub.scene import BEFORE, NOW, second

MEASURE = """(async () => {
  const {Bins} = await import('/timeline/bins.js'), {Lanes} = await import('/timeline/paint.js');
  const text = await (await fetch('api/timeline')).text();
  document.getElementById('timeline').classList.remove('empty');
  const lanes = new Lanes(...['timeline-box', 'timeline-canvas'].map((id) => document.getElementById(id)));
  const drawn = [];
  for (let k = 0; k < 100; k++) {
    const from = performance.now();
    lanes.take(new Bins(JSON.parse(text)));
    lanes.paint();
    lanes.pen.getImageData(0, 0, 1, 1);  // waits until it is drawn
    drawn.push(performance.now() - from);
  }
  return {bytes: text.length, bins: lanes.bins.count, drawn};
})()"""


async def measure(panes: int) -> None:
    clock = Time()
    hub = Hub(WindowConfig(windows_seconds=(10, panes)), fidelity="flow", now=clock, wall_ns=clock.ns)
    hub.introduce(HOST, PID, Clock(mult=1, shift=0, zero=0, wall_zero=clock.ns() - panes * 10**9))
    for pane in range(panes):
        second(hub, pane, NOW if pane % 60 < 20 else BEFORE, {"desync": 500, "overflow": 0}, "instructions", 1000)
    began = time.perf_counter()
    timeline(hub)
    summed = time.perf_counter() - began
    told = await measured(hub, MEASURE)
    times = sorted(told["drawn"])
    print(f"{panes} panes in {told['bins']} bars, {told['bytes'] / 1e3:.0f} kB; summed up in {1000 * summed:.1f} ms")
    print(f"parsed and drawn: median {times[len(times) // 2]:.1f} ms, most {times[-1]:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--panes", type=int, default=399)
    trio.run(measure, parser.parse_args().panes)
