"""The pictures of page and terminal in README and docs, of the demo as it plays: `python -m tests.views.pictures`.

They are taken when the program has changed what it does: then there is something to see in the difference of ten
seconds to five minutes.
"""

from __future__ import annotations

import io
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from subprocess import DEVNULL

import httpx
import trio
from rich.console import Console
from rich.terminal_theme import MONOKAI

from streamer.hub.screen import screen
from tests.browser import Page, browser

DOCS = Path("docs")
MOST_BYTES = 200_000
DEMO = ["replay", "streamer/demo/shop.json", "--port"]
MOVED = "Shop$Recommender.distance"
PAINTED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


async def moved(url: str) -> None:
    """Until the method has become hot."""
    async with httpx.AsyncClient(base_url=url) as http:
        while True:
            await trio.sleep(1)
            try:
                view = (await http.get("/api/hot")).json()
            except httpx.TransportError:
                continue
            if view["methods"] and view["methods"][0]["method"] == MOVED and view["methods"][0]["before"] < 0.5:
                return


async def terminal(url: str) -> str:
    """What `streamer top` shows, as HTML."""
    async with httpx.AsyncClient(base_url=url) as http:
        view = (await http.get("/api/hot?top=15")).json()
        view["timeline"] = (await http.get("/api/timeline?top=15&window=10s")).json()
    console = Console(file=io.StringIO(), record=True, width=110, force_terminal=True, color_system="truecolor")
    for part in screen(view):
        console.print(part)
    return console.export_html(inline_styles=True, theme=MONOKAI)


async def compared(page: Page) -> None:
    """Selects what runs now, and compares it with a stretch before the change."""
    told = await page.value("fetch('api/timeline').then(answer => answer.json())")
    end, seconds = told["begin"] + len(told["panes"]) * told["seconds"], told["seconds"]
    moved = next(event["time"] for event in told["events"] if event["method"] == MOVED)
    a, b = (end - 4 * seconds, end), (moved - 14 * seconds, moved - 6 * seconds)
    window, base = (f"{begin:.3f}..{end:.3f}" for begin, end in (a, b))
    await page.value(f"location.hash = 'window={window}&base={base}'")
    await page.until("document.getElementById('flame-legend').hidden === false")
    await page.until("document.getElementById('base').value.includes('..')")


async def take() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    program = [str(Path(sys.executable).parent / "streamer"), *DEMO, str(port)]
    async with trio.open_nursery() as nursery:
        demo = await nursery.start(partial(trio.run_process, program, stdout=DEVNULL, stderr=DEVNULL, check=False))
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            await moved(url)
            async with browser(Path(directory)) as page:
                for name, state, selector, dark in (
                    ("page", "", "body", False),
                    ("flame", "by=instructions", "#flame", False),
                    ("diff", "base=5m", "#flame", True),
                ):
                    await page.dark(dark)
                    await page.goto(f"{url}/#{state}")
                    await page.until("document.querySelectorAll('#flame-path li').length > 0")
                    await page.until("document.querySelectorAll('#methods tr').length > 5")
                    await page.until("document.querySelectorAll('#moved li').length > 0")
                    await page.until(PAINTED)
                    keep(name, await page.picture(selector, 0.62 if name == "page" else 1))
                await page.dark(False)
                await compared(page)
                await page.until(PAINTED)
                keep("timeline", await page.picture("#timeline"))
                html = Path(directory) / "top.html"
                html.write_text(await terminal(url))
                await page.goto(html.as_uri())
                await page.value("document.body.style.cssText += 'display: inline-block; padding: 1em'")
                keep("top", await page.picture("body"))
        demo.terminate()


def keep(name: str, shot: bytes) -> None:
    assert len(shot) < MOST_BYTES, (name, len(shot))
    (DOCS / f"{name}.png").write_bytes(shot)


if __name__ == "__main__":
    trio.run(take)
