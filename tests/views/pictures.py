"""The pictures of the page in README and docs, of the demo as it plays: `python -m tests.views.pictures`.

They are taken when the program has changed what it does: then there is something to see in the difference of ten
seconds to five minutes.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from subprocess import DEVNULL

import httpx
import trio

from tests.browser import browser

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
                    shot = await page.picture(selector, 0.7 if name == "page" else 1)
                    assert len(shot) < MOST_BYTES, (name, len(shot))
                    (DOCS / f"{name}.png").write_bytes(shot)
        demo.terminate()


if __name__ == "__main__":
    trio.run(take)
