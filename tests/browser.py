"""A headless Chromium, driven over its debugging pipe (Chrome DevTools Protocol: JSON messages, each ended by a 0)."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest
import trio

SECONDS = 240  # for a whole visit, on a machine that has much else to do
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--hide-scrollbars"]


class Page:
    def __init__(self, send: trio.lowlevel.FdStream, receive: trio.lowlevel.FdStream) -> None:
        self._send, self._receive = send, receive
        self._rest, self._last, self._session = b"", 0, ""
        self.thrown: list[str] = []
        """Errors of scripts and of the console, and what the Content-Security-Policy refused."""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._send.send_all(json.dumps(message).encode() + b"\0")
        while True:
            answer = await self._message()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer
                return dict(answer["result"])
            params = answer.get("params", {})
            if "exceptionDetails" in params or params.get("entry", {}).get("level") == "error":
                self.thrown.append(json.dumps(params))

    async def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = await self._receive.receive_some()
            assert piece, "the browser has ended"
            self._rest += bytes(piece)
        text, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(text))

    async def open(self, width: int, height: int) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def goto(self, url: str) -> None:
        """Also to another fragment of the same page, as a fresh visit."""
        await self.call("Page.navigate", url="about:blank")
        await self.until("location.href === 'about:blank'")
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def value(self, expression: str) -> Any:
        """Of a JavaScript expression; of a promise, what it becomes."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, condition: str) -> Any:
        """The condition's value when it is true, looked at each frame; the visit's deadline is the caller's."""
        return await self.value(
            f"new Promise(done => {{ const look = () => {{ let is; try {{ is = ({condition}) }} catch (e) {{}} "
            "if (is) done(is); else setTimeout(look, 16) }; look() })"
        )

    async def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def choose(self, name: str, value: str) -> None:
        """In a control, as a user does."""
        await self.value(
            f"(() => {{ const c = document.getElementById({name!r}); c.value = {value!r};"
            "c.dispatchEvent(new Event(c.tagName === 'SELECT' ? 'change' : 'input', {bubbles: true})) })()"
        )

    async def dark(self, dark: bool) -> None:
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    async def picture(self, selector: str = "body", scale: float = 1) -> bytes:
        box = await self.value(
            f"(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();"
            "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height} })()"
        )
        shot = await self.call("Page.captureScreenshot", clip={**box, "scale": scale}, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def browser(directory: Path, width: int = 1140, height: int = 900) -> AsyncIterator[Page]:
    """Skips the test where Chromium is missing. `directory`: for its profile."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is missing (Debian package chromium)")
    command, answers = os.pipe(), os.pipe()
    run = [chromium, *FLAGS, f"--user-data-dir={directory}", "about:blank"]
    shell = f'exec "$@" 3</dev/fd/{command[0]} 4>/dev/fd/{answers[1]}'
    with trio.fail_after(SECONDS):
        process = await trio.lowlevel.open_process(
            ["sh", "-c", shell, "sh", *run], pass_fds=(command[0], answers[1]), stdout=DEVNULL, stderr=DEVNULL
        )
        os.close(command[0])
        os.close(answers[1])
        async with trio.lowlevel.FdStream(command[1]) as send, trio.lowlevel.FdStream(answers[0]) as receive:
            try:
                page = Page(send, receive)
                await page.open(width, height)
                yield page
            finally:
                process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()
