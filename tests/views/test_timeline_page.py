"""The timeline on the page, in a real browser: lanes, selection by mouse and by keys, links, words, and its speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from stages.messages import Clock
from streamer.config import WindowConfig
from streamer.hub.hub import Hub
from tests.browser import Page
from tests.hub.reports import HOST, PID, Time
from tests.hub.scene import BEFORE, NOW, scene, second
from tests.npm import from_npm
from tests.views.made import NOW as STACKS
from tests.views.made import SUSPECT
from tests.views.test_flame import seen
from tests.views.test_page import SAID, frames, pixel, visit
from tests.views.test_page import place as frame_at

pytestmark = [pytest.mark.peer, pytest.mark.slow]

ZERO = 1000 - 80 - 0.1  # when the scene's pane 0 begins
ROOM = 120  # bins that the width has room for, with 80 panes
TOLD = "document.getElementById('timeline-said').textContent"
DRAWN = "performance.getEntriesByName('timeline').length > 0"
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
TOP, WORK, FATE = 14, 96, 14 + 96 + 5  # pixels: where the lanes are
LOOKUP = "org.apache.fop.fonts.GlyphTable.lookup"
DEFLATE = "org.apache.fop.pdf.PDFStream.deflate"
TOP_METHOD = "document.querySelector('#methods td.method').textContent"
HASH = "decodeURIComponent(location.hash)"


def stretch(first: int, end: int) -> str:
    return f"{ZERO + first:.3f}..{ZERO + end:.3f}"


async def place(page: Page, pane: int) -> tuple[float, float]:
    """The middle of a pane's bar, on the screen."""
    await page.value("document.getElementById('timeline-box').scrollIntoView({block: 'center'})")
    box = await page.value(
        "(() => { const b = document.getElementById('timeline-canvas').getBoundingClientRect();"
        "return [b.x, b.y, b.width] })()"
    )
    return box[0] + box[2] * (ROOM - 80 + pane + 0.5) / ROOM, box[1] + 90


async def drag(page: Page, first: int, last: int) -> None:
    (x, y), (to, _) = await place(page, first), await place(page, last)
    for kind, at in (("mousePressed", x), ("mouseMoved", (x + to) / 2), ("mouseMoved", to), ("mouseReleased", to)):
        await page.call("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", buttons=1, clickCount=1)


async def shift(page: Page, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8)


async def test_a_drag_shows_a_stretch_in_the_table_and_in_the_flame_graph(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(url)
        await page.until(DRAWN)
        await page.until(f"{TOP_METHOD} === {DEFLATE!r}")
        await drag(page, 55, 57)
        await page.until(f"{HASH} === '#window={stretch(55, 58)}'")
        await page.until(f"{TOP_METHOD} === {LOOKUP!r}")  # hottest before the shift
        whole = 3 * 1000 * (sum(STACKS.values()) + sum(SUSPECT.values()))
        await page.until(f"{SAID}.startsWith('all threads: 100.0 % ({whole:,} instructions)')")
        chosen = "document.getElementById('window').selectedOptions[0].textContent"
        clock = "((s) => new Date(1000 * s).toLocaleTimeString('en-GB'))"
        assert await page.value(chosen) == await page.value(f"{clock}({ZERO + 55}) + ' – ' + {clock}({ZERO + 58})")
        # the link alone shows the same
        link, said = await page.value("location.hash"), await page.value(SAID)
        await page.goto(f"{url}/{link}")
        await page.until(f"{TOP_METHOD} === {LOOKUP!r}")
        await page.until(f"{SAID} === {said!r}")
        # and back
        await page.value("document.getElementById('timeline-newest').click()")
        await page.until(f"{TOP_METHOD} === {DEFLATE!r}")
        assert await page.value("location.hash") == ""


async def test_keys_move_select_and_extend_and_each_pane_is_read_out(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(url)
        await page.until(DRAWN)
        await page.value("document.getElementById('timeline-box').focus()")
        for _ in range(3):
            await page.press("ArrowLeft")
        item = "document.getElementById(document.getElementById('timeline-box').getAttribute('aria-activedescendant'))"
        names = ("role", "aria-posinset", "aria-setsize", "aria-selected")
        read = [await page.value(f"{item}.getAttribute('{name}')") for name in names]
        assert read == ["option", "78", "80", "true"]  # within the last ten seconds, which are shown
        line = await page.value(f"{item}.textContent")
        assert line == await page.value(TOLD)
        assert line[8:] == (
            f": 9,100,000 instructions; {DEFLATE} 54.9 %, java.util.HashMap.getNode 17.6 %, {LOOKUP} 13.2 %; "
            "1.0 MB of trace, lost: 1 × overflow"
        )
        await page.press("Enter")
        await page.until(f"{HASH} === '#window={stretch(77, 78)}'")
        await shift(page, "ArrowLeft")
        await shift(page, "ArrowLeft")
        await page.until(f"{HASH} === '#window={stretch(75, 78)}'")
        await page.press("Home")
        assert await page.value(f"{item}.getAttribute('aria-posinset')") == "1"
        assert await page.value(f"{item}.getAttribute('aria-selected')") == "false"
        await page.press("Escape")
        assert await page.value("location.hash") == ""
        # as a table: the newest first, and a button for each
        await page.value("document.getElementById('timeline-table').open = true")
        rows = "document.querySelectorAll('#timeline-rows tr')"
        await page.until(f"{rows}.length === 80")
        cells = await page.value(f"[...{rows}[9].cells].map(c => c.textContent)")
        assert cells[1:5] == ["9,100,000 instructions",
                              f"{DEFLATE} 54.9 %, java.util.HashMap.getNode 17.6 %, {LOOKUP} 13.2 %",
                              "1.0 MB of trace, lost: 1 × overflow", "100 %"]  # fmt: skip
        moved = await page.value(f"[...{rows}].map(r => r.cells[5].textContent).filter(t => t.includes({DEFLATE!r}))")
        assert len(moved) == 1
        assert f"{DEFLATE} began to move, from 0.0 % to " in moved[0]
        await page.value(f"{rows}[9].querySelector('button').click()")
        await page.until(f"{HASH} === '#window={stretch(70, 71)}'")


async def test_two_stretches_are_compared_red_and_blue(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(url)
        await page.until(DRAWN)
        await drag(page, 52, 57)  # A
        await page.value("document.getElementById('timeline-box').focus()")
        await page.press("b")
        await drag(page, 10, 18)  # B, of which contexts are kept together with those of 19
        await page.until(f"{HASH} === '#window={stretch(52, 58)}&base={stretch(10, 19)}'")
        await page.until("document.getElementById('flame-legend').hidden === false")
        await page.until(f"{SAID}.includes('the base is')")
        assert "Contexts of that time are kept together" in await page.value(SAID)
        told = await frames(page, f"window={stretch(52, 58)}&base={stretch(10, 19)}")
        assert told["stretches"]["base"] == [pytest.approx(ZERO + 10), pytest.approx(ZERO + 20)]
        await page.until(PAINTED)
        for name, redder in ((DEFLATE, True), ("org.apache.fop.area.LineArea.addInline", False)):
            red, green, blue = await pixel(page, *frame_at(name, 0.5, told))
            assert (red > green and red > blue) is redder
            assert (blue > green and blue > red) is not redder
        chosen = await page.value("document.getElementById('base').selectedOptions[0].textContent")
        assert "–" in chosen
        await page.press("Escape")
        assert await page.value("location.hash") == ""


async def test_lanes_show_work_and_loss_in_their_colours(tmp_path: Path) -> None:
    async with visit(scene(fidelity="flow", shed=400_000)[0], tmp_path) as (page, url):
        for dark in (False, True):
            await page.dark(dark)
            await page.goto(url)
            await page.until(DRAWN)
            await page.until(PAINTED)
            color = {name: await rgb(page, name) for name in ("band-0", "good", "shed", "lost-full", "lost-code")}
            assert await spot(page, 30, TOP + WORK - 4) == color["band-0"]  # the heaviest method of all, at the bottom
            assert await spot(page, 30, FATE + 12) == color["good"]
            assert await spot(page, 30, FATE + 2) == color["shed"]
            assert await spot(page, 35, FATE + 1) == color["lost-full"]  # an overflow has no bytes
            assert await spot(page, 39, FATE + 1) == color["lost-code"]
        legend = await page.value("document.getElementById('timeline-fates').textContent")
        assert "lost: overflow (the processor's own buffer was full)" in legend
        assert "shed: not followed" in legend


async def test_what_is_not_kept_any_more_is_said(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(f"{url}/#window=100.000..110.000")
        await page.until("document.getElementById('flame-why').textContent.includes('kept of that time')")
        await page.until(f"{TOLD}.includes('nothing is kept of that time any more')")


async def test_events_bring_new_panes_and_the_selection_stays(tmp_path: Path) -> None:
    hub, clock = scene(fidelity="flow")
    async with visit(hub, tmp_path) as (page, url):
        await page.goto(f"{url}/#window={stretch(70, 72)}")
        await page.until(DRAWN)
        clock.seconds += 1
        second(hub, 80, NOW, {}, "instructions")
        item = "document.getElementById('timeline-item').firstChild"
        await page.until(f"{item}.getAttribute('aria-setsize') === '81'")
        assert await page.value(HASH) == f"#window={stretch(70, 72)}"
        assert "Shown below" in await page.value(TOLD)


async def test_a_page_that_is_not_live_shows_what_its_link_says(tmp_path: Path) -> None:
    async with visit(seen(), tmp_path) as (page, url):
        await page.goto(f"{url}/#window={stretch(55, 58)}&paused=1")
        await page.until(f"{TOP_METHOD} === {LOOKUP!r}")
        await page.until(DRAWN)


async def test_all_kept_panes_of_an_hour_are_drawn(tmp_path: Path) -> None:
    """As many bins as there can be; the time is told by benchmarks.flame_page."""
    clock = Time()
    hub = Hub(WindowConfig(pane_seconds=1, windows_seconds=(10, 798)), fidelity="flow", now=clock, wall_ns=clock.ns)
    hub.introduce(HOST, PID, Clock(mult=1, shift=0, zero=0, wall_zero=clock.ns() - 798 * 10**9))
    for pane in range(798):
        second(hub, pane, NOW if pane % 60 < 20 else BEFORE, {}, "instructions")
    async with visit(hub, tmp_path) as (page, url):
        await page.goto(url)
        await page.until(DRAWN)
        assert await page.value("document.getElementById('timeline-item').firstChild.ariaSetSize") == "399"


async def test_axe_finds_no_fault_of_weight(tmp_path: Path) -> None:
    axe = from_npm("axe-core@4.11.0", "package/axe.min.js", tmp_path).decode()
    async with visit(seen(), tmp_path / "profile") as (page, url):
        for dark in (False, True):
            await page.dark(dark)
            await page.goto(f"{url}/#window={stretch(55, 58)}&base={stretch(40, 50)}")
            await page.until(DRAWN)
            await page.until(f"{TOP_METHOD} === {LOOKUP!r}")
            await page.value("document.getElementById('timeline-table').open = true")
            await page.until("document.querySelectorAll('#timeline-rows tr').length === 80")
            await page.value(f"{axe}; 0")
            found = await page.value(
                "axe.run().then(r => r.violations.map(v => [v.impact, v.id, v.nodes.map(n => n.target.join())]))"
            )
            assert [fault for fault in found if fault[0] in ("serious", "critical")] == []


async def spot(page: Page, pane: int, y: int) -> list[int]:
    """The colour in the middle of a pane's bar."""
    data = await page.value(
        "(() => { const c = document.getElementById('timeline-canvas');"
        f"const x = {(ROOM - 80 + pane + 0.4) / ROOM} * c.width;"
        f"return [...c.getContext('2d').getImageData(x, {y}, 1, 1).data] }})()"
    )
    return list(data[:3])


async def rgb(page: Page, name: str) -> list[int]:
    text = await page.value(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
    return [int(text[k : k + 2], 16) for k in (1, 3, 5)]
