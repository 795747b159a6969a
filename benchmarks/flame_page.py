"""How fast the page draws a flame graph, in a headless Chromium without a GPU: `python -m benchmarks.flame_page`.

A tree of so many nodes, all of them sent (the page itself asks for 20,000 at most); zooms into a hundred of its frames
and back, each drawn. A frame of an animation has 16 ms at 60 Hz; 100 ms are felt as at once.
"""

from __future__ import annotations

import argparse
from functools import partial

import trio

from benchmarks.in_page import measured
from tests.hub.scene import scene
from tests.views.made import large

MEASURE = """(async () => {
  const {Frames} = await import('/flame/frames.js'), {Painter} = await import('/flame/paint.js');
  const begin = performance.now();
  const text = await (await fetch('api/flame?most=200000')).text();
  const fetched = performance.now();
  const told = JSON.parse(text), parsed = performance.now();
  const frames = new Frames(told), laid = performance.now();
  const [box, canvas] = ['flame-box', 'flame-canvas'].map((id) => document.getElementById(id));
  document.getElementById('flame').classList.remove('empty');
  const painter = new Painter(box, canvas), drawn = [], found = [];
  painter.frames = frames;
  for (let k = 0; k < 100; k++) {
    for (const zoom of [0, Math.floor(k * frames.count / 100)]) {
      painter.zoom = zoom;
      const from = performance.now();
      painter.paint();
      canvas.getContext('2d').getImageData(0, 0, 1, 1);  // waits until it is drawn
      drawn.push(performance.now() - from);
    }
    const from = performance.now();
    frames.search(`method${k}`);
    found.push(performance.now() - from);
  }
  return {frames: frames.count, depths: frames.depths, bytes: text.length, fetch: fetched - begin,
          parse: parsed - fetched, layout: laid - parsed, drawn, found};
})()"""


async def measure(nodes: int) -> None:
    hub, _ = scene(fidelity="flow")
    hub.trees.feed(large(nodes, 79))
    told = await measured(hub, MEASURE)
    print(f"{told['frames']:,} frames, {told['depths']} deep, {told['bytes'] / 1e6:.1f} MB")
    print(f"asked for {told['fetch']:.0f} ms, parsed {told['parse']:.0f} ms, laid out {told['layout']:.0f} ms")
    for what, key in (("drawn", "drawn"), ("searched", "found")):
        times = sorted(told[key])
        at = partial(lambda part, times: times[min(len(times) - 1, int(part * len(times)))], times=times)
        print(f"{what}: median {at(0.5):.1f} ms, 99 % {at(0.99):.1f} ms, most {times[-1]:.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    trio.run(measure, parser.parse_args().nodes)
