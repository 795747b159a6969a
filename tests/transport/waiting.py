"""Waiting for events outside trio: in libzmq's threads, in other processes."""

from __future__ import annotations

from collections.abc import Callable

import trio


async def eventually(condition: Callable[[], bool], seconds: float = 100) -> None:
    """Until `condition()` holds; `trio.TooSlowError` after `seconds`."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  nothing in this process could set an event
            await trio.sleep(0.005)
