"""The flame graph on the page, in a real browser: what is drawn, keys, search, links, dark and light, and its speed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from streamer.config import WebConfig, WindowConfig
from streamer.hub.hub import Hub
from streamer.views import web
from tests.browser import Page, browser
from tests.hub.reports import Time, report
from tests.hub.scene import scene
from tests.npm import from_npm
from tests.views.made import NOW, large, tree
from tests.views.test_flame import seen

pytestmark = [pytest.mark.peer, pytest.mark.slow]

SAID = "document.getElementById('flame-said').textContent"
READY = "document.querySelectorAll('#flame-path li').length > 0 && performance.getEntriesByName('flame').length > 0"
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
DEFLATE = "org.apache.fop.pdf.PDFStream.deflate"


@asynccontextmanager
async def visit(hub: Hub, directory: Path) -> AsyncIterator[tuple[Page, str]]:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(web.serve, hub, WebConfig(port=0))
        async with browser(directory) as page:
            yield page, url
            assert not page.thrown, page.thrown
        nursery.cancel_scope.cancel()


async def pixel(page: Page, x: float, row: int) -> list[int]:
    """Red, green and blue at `x` of the width, above the text of a row."""
    return (await rgba(page, x, row))[:3]


async def alpha(page: Page, x: float, row: int) -> int:
    """0 where there is no frame."""
    return (await rgba(page, x, row))[3]


async def rgba(page: Page, x: float, row: int) -> list[int]:
    data = await page.value(
        "(() => { const c = document.getElementById('flame-canvas');"
        f"return [...c.getContext('2d').getImageData({x} * c.width, {19 * row + 2}, 1, 1).data] }})()"
    )
    return list(data)


async def test_ways_through_a_flame_graph(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(url)
        await page.until(READY)
        assert (await page.value(SAID)).startswith("all threads: 100.0 % (")
        # keys: the heaviest callee, its neighbours, zoom and back
        await page.value("document.getElementById('flame-box').focus()")
        await page.press("ArrowDown")
        assert (await page.value(SAID)).startswith("org.apache.fop.cli.Main.main: ")
        item = "document.getElementById(document.getElementById('flame-box').getAttribute('aria-activedescendant'))"
        assert await page.value(f"{item}.getAttribute('role') + {item}.getAttribute('aria-level')") == "treeitem2"
        assert (
            await page.value(f"{item}.getAttribute('aria-posinset')+'/'+{item}.getAttribute('aria-setsize')") == "3/3"
        )
        assert await page.value(f"{item}.textContent === {SAID}")
        await page.press("ArrowLeft")
        assert (await page.value(SAID)).startswith("app.Worker.run: ")
        await page.press("ArrowRight")
        await page.press("ArrowDown")
        await page.press("Enter")
        link = await page.value("location.hash")
        assert link.startswith("#zoom=")
        path = "[...document.querySelectorAll('#flame-path li')].map(e => e.textContent)"
        zoomed = await page.value(path)
        assert zoomed[:2] == ["all threads", "org.apache.fop.cli.Main.main"]
        assert len(zoomed) == 3
        rows = "[...document.querySelectorAll('#flame-rows tr')].map(e => e.cells[0].textContent)"
        below = await page.value(rows)
        await page.press("Escape")
        assert await page.value(path) == zoomed[:2]
        # back, as in any page
        await page.value("history.back()")
        await page.until(f"{path}.length === 3")
        # the link alone shows the same
        await page.goto(url + "/" + link)
        await page.until(READY)
        assert await page.value(path) == zoomed
        assert await page.value(rows) == below
        # the table's buttons lead on
        await page.value("document.querySelector('#flame-path button').click()")
        assert await page.value(path) == ["all threads"]
        # a click zooms: into the widest frame of the second row
        box = await page.value(
            "(() => { const f = document.getElementById('flame-box'); f.scrollIntoView({block: 'center'});"
            "const b = f.getBoundingClientRect(); return [b.x, b.y, b.width] })()"
        )
        await page.click(box[0] + 0.9 * box[2], box[1] + 19 * 1.5)
        assert await page.value(path) == zoomed[:2]


async def test_a_context_that_moved_leads_to_its_frame(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(url)
        await page.until("document.querySelectorAll('#moved li').length > 2")
        listed = await page.value("[...document.querySelectorAll('#moved li')].map(e => e.textContent)")
        (grown,) = (k for k, text in enumerate(listed) if f"{DEFLATE}, called by org.apache.fop.cli.Main.main" in text)
        assert listed[grown].startswith("▲ +")
        assert any(text.startswith("▼ −") for text in listed)
        await page.value(f"document.querySelectorAll('#moved button')[{grown}].click()")
        await page.until("location.hash.includes('zoom=')")
        assert "base=before" in await page.value("location.hash")
        assert (await page.value(SAID)).startswith(f"{DEFLATE} @3: ")


async def test_search_counts_what_lies_within_once(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(f"{url}/#find=hashmap&certain=1")
        await page.until(READY)
        sure = 10 * sum(NOW.values()) + 50
        assert await page.value("found.textContent") == f"{100 * 10 * (160 + 70) / sure:.1f} % in 1 contexts"
        assert await page.value("document.getElementById('find').value") == "hashmap"
        await page.choose("find", "java.")
        share = 10 * (160 + 70 + 150 + 25) / sure
        await page.until(f"found.textContent === '{100 * share:.1f} % in 4 contexts'")
        assert await page.value("location.hash") == "#certain=1&find=java."
        await page.choose("find", "nothing of that name")
        await page.until("found.textContent === '0.0 % in 0 contexts'")


async def test_callees_above_one_thread_and_what_is_saved(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(f"{url}/#shape=flame")
        await page.until(READY)
        await page.until(PAINTED)
        told = await frames(page, "window=10s")
        x, level = place(DEFLATE, 0.5, told)
        depth = len(told["levels"]) - 2
        assert await alpha(page, x, depth - level) > 0
        assert await alpha(page, x, 0) == 0  # the deepest row, which this stack does not reach
        await page.choose("thread", "8")
        await page.until(f"{SAID}.startsWith('thread 8: ')")
        assert await page.value("document.getElementById('flame-rows').textContent.includes('app.Worker.run')")
        assert await page.value("location.hash") == "#thread=8&shape=flame"
        for kind in ("pprof", "collapsed", "speedscope", "cct"):
            link = await page.value(f"document.querySelector('#flame-save [data-format={kind}]').href")
            assert f"format={kind}" in link
            assert "thread=8" in link
            assert await page.value(f"fetch({link!r}).then(answer => answer.status)") == 200


async def test_suspect_parts_are_hatched(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(url)
        await page.until(READY)
        for query, hatched in (("window=10s", True), ("window=10s&observed=1", False)):
            await page.choose("certain", "" if hatched else "1")
            await page.until(f"{SAID}.includes('suspect') === {str(hatched).lower()}")
            await page.until(PAINTED)
            told = await frames(page, query)
            spots = [place("org.apache.fop.fonts.GlyphTable.lookup", x / 100, told) for x in range(87, 99)]
            tones = {tuple(await pixel(page, *spot)) for spot in spots}
            assert (len(tones) > 1) is hatched


async def test_a_difference_is_red_and_blue_in_the_light_and_in_the_dark(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(f"{url}/#base=1m")
        await page.until("document.getElementById('flame-legend').hidden === false")
        assert "in the base 100.0 %" in await page.value(SAID)
        told = await frames(page, "window=10s&base=1m")
        for dark in (False, True):
            await page.dark(dark)
            await page.until(PAINTED)
            for name, redder in ((DEFLATE, True), ("org.apache.fop.area.LineArea.addInline", False)):
                red, green, blue = await pixel(page, *place(name, 0.5, told))
                assert (red > green and red > blue) is redder
                assert (blue > green and blue > red) is not redder
            background = await page.value("getComputedStyle(document.body).backgroundColor")
            assert (max(map(int, background[4:-1].split(","))) < 100) is dark


async def frames(page: Page, query: str) -> dict[str, Any]:
    return dict(await page.value(f"fetch('api/flame?{query}').then(answer => answer.json())"))


def place(name: str, part: float, told: dict[str, Any]) -> tuple[float, int]:
    """Where that part of the first frame of a name is: in the width, and the row."""
    sides = [told["total"], *([told["base"]] if "base" in told else [])]
    width = [sum(side[k] / side[0] for side in sides) / len(sides) for k in range(len(told["parent"]))]
    free, depth = [0.0] * len(width), [0] * len(width)
    for k, up in enumerate(told["parent"]):
        x = 0.0
        if up >= 0:
            x, depth[k] = free[up], depth[up] + 1
            free[up] += width[k]
        free[k] = x
        if told["names"][told["name"][k]] == name:
            return x + part * width[k], depth[k]
    raise LookupError(name)


async def test_narrow_frames_are_drawn_where_they_are(tmp_path: Path) -> None:
    """Two hundred a tenth of a pixel wide, at either side of a wide one that calls nothing."""
    hub, _ = scene(fidelity="flow")
    sides = {f"{side}.Run/x.N{k}.m": 100 for side in ("a.A", "z.Z") for k in range(200)}
    hub.trees.feed(tree(79, {**sides, "m.Middle.run": 960_000}))
    async with visit(hub, tmp_path) as (page, url):
        await page.goto(url)
        await page.until(READY)
        await page.until(PAINTED)
        found = [await alpha(page, x, 2) for x in (0.01, 0.5, 0.99)]
        assert [a > 200 for a in found] == [True, False, True]


async def test_what_an_unknown_caller_is_stands_beside_it(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(url)
        await page.until(READY)
        await page.value("document.getElementById('flame-box').focus()")
        for key in ("ArrowDown", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
            await page.press(key)
        assert (await page.value(SAID)).startswith("[unknown caller] (where tracing began or trace was lost")


async def test_while_nothing_has_come_the_page_says_what_is_awaited_and_since_when(tmp_path: Path) -> None:
    clock = Time()
    hub = Hub(WindowConfig(pane_seconds=1), fidelity="flow", now=clock, wall_ns=clock.ns)
    hub.heartbeat({"component": "decode/0", "up": True, "kernels_ready": False})
    clock.seconds += 7
    async with visit(hub, tmp_path) as (page, url):
        await page.goto(url)
        why = "document.getElementById('flame-why').textContent"
        await page.until(f"{why}.startsWith('Waiting for the first calling contexts, since 7 s: ')")
        told = await page.value(why)
        assert "decode/0 has its kernels compiled" in told
        assert "no pane has closed yet" in told
        assert await page.value("document.getElementById('timeline-why').hidden") is False
        hub.heartbeat({"component": "decode/0", "kernels_ready": True})
        hub.feed(report(1, {"A.a": 1}, column="instructions"))
        hub.trees.feed(tree(1, {"A.a": 1}))
        await page.until(READY)  # without being asked to


async def test_without_trees_the_page_says_how_to_get_them(tmp_path: Path) -> None:
    for hub, words in ((scene()[0], "--fidelity flow"), (scene(fidelity="flow")[0], "--no-contexts")):
        async with visit(hub, tmp_path / words[2:5]) as (page, url):
            await page.goto(url)
            why = "document.getElementById('flame-why')"
            await page.until(f"{why}.textContent.includes({words!r})")
            assert await page.value("getComputedStyle(document.getElementById('flame-box')).display") == "none"


async def test_axe_finds_no_fault_of_weight(tmp_path: Path) -> None:
    """Rules of WCAG as far as a program can check them, in the light and in the dark."""
    axe = from_npm("axe-core@4.11.0", "package/axe.min.js", tmp_path).decode()
    async with visit(seen(), tmp_path / "profile") as (page, url):
        for state, dark in (("", False), ("base=1m&find=java", False), ("", True), ("base=1m", True)):
            await page.dark(dark)
            await page.goto(f"{url}/#{state}")
            await page.until(READY)
            await page.until("document.querySelectorAll('#methods tr').length > 5")
            await page.value("document.querySelector('details').open = true")
            await page.value(f"{axe}; 0")
            found = await page.value(
                "axe.run().then(r => ({passes: r.passes.length, faults: r.violations.map(v => [v.impact, v.id, "
                "v.nodes.map(n => n.target.join() + ': ' + n.failureSummary)])}))"
            )
            assert found["passes"] > 20
            assert [fault for fault in found["faults"] if fault[0] in ("serious", "critical")] == []


async def test_events_bring_new_trees(tmp_path: Path) -> None:
    hub = seen()
    async with visit(hub, tmp_path) as (page, url):
        await page.goto(url)
        await page.until(READY)
        hub.trees.feed(tree(60, {"fresh.Code.runs": 5000}))
        await page.until(
            "[...document.querySelectorAll('#flame-rows tr')].some(r => r.textContent.includes('fresh.Code'))"
        )
        assert (
            await page.value("performance.getEntriesByType('resource').filter(r => r.name.includes('api/hot')).length")
            == 0
        )


async def test_a_hundred_thousand_frames(tmp_path: Path) -> None:
    """The number of what is sent is the page's own choice otherwise; here all are."""
    hub, _ = scene(fidelity="flow")
    hub.trees.feed(large(100_000))
    async with visit(hub, tmp_path) as (page, url):
        await page.goto(url)
        await page.until(READY)
        drawn = await page.value(
            """(async () => {
              const {Frames} = await import('/flame/frames.js'), {Painter} = await import('/flame/paint.js');
              const told = await (await fetch('api/flame?most=200000')).json();
              const [box, canvas] = ['flame-box', 'flame-canvas'].map((id) => document.getElementById(id));
              const painter = new Painter(box, canvas);
              painter.frames = new Frames(told);
              painter.paint();
              return [painter.frames.count, painter.frames.depths];
            })()"""
        )
        assert drawn[0] >= 90_000
        assert drawn[1] > 30
