"""A script that measures something in a hub's page, in a headless Chromium without a GPU."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import trio

from streamer.config import WebConfig
from streamer.hub.hub import Hub
from streamer.views import web
from tests.browser import browser


async def measured(hub: Hub, script: str) -> Any:
    """The value of a JavaScript expression in the page of `hub`, a promise's when it is there."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        async with trio.open_nursery() as nursery:
            url = await nursery.start(web.serve, hub, WebConfig(port=0))
            async with browser(Path(directory)) as page:
                await page.goto(url)
                value = await page.value(script)
            nursery.cancel_scope.cancel()
    return value
