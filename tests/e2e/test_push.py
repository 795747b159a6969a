"""A streamer that is told of a Pyroscope server sends it what the program did."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.e2e.harness import PATIENCE, Streamer
from tests.views.test_push import READER, receiver

DEMO = Path("streamer/demo/shop.json").resolve()


@pytest.mark.slow
async def test_a_run_pushes_its_contexts(start: Callable[..., Streamer]) -> None:
    async with receiver(seconds=PATIENCE) as (url, told):
        env = {"STREAMER_PUSH__URL": url, "STREAMER_PUSH__SECONDS": "2"}
        streamer = start("replay", DEMO, "--port", "0", "--pace", "4", env=env)
        names: set[str] = set()
        while "Shop.serve" not in names:
            _, body = await told.receive()
            for series in READER["Request"].FromString(body).a:
                names |= set(READER["Profile"].FromString(gzip.decompress(series.b[0].a)).strings)
        counted = 'streamer_pushes_total{outcome="failed"}'
        assert await trio.to_thread.run_sync(streamer.metric, counted) == 0
