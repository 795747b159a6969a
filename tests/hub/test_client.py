"""Answers of a streamer: of a view a few MB at most, of a tree as much as a tree's file may have."""

from __future__ import annotations

import pytest
import trio

from streamer import client
from streamer.cli import Failure
from streamer.trees import file
from tests.hub.test_top import answering


async def test_a_tree_may_be_larger_than_a_view_and_not_larger_than_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 1000)
    monkeypatch.setattr(file, "MOST_PACKED", 5000)
    with answering(b"x" * 4000) as url:
        assert await trio.to_thread.run_sync(client.fetch_tree, url, {}) == b"x" * 4000
        with pytest.raises(Failure, match="is not a streamer"):
            await trio.to_thread.run_sync(client.fetch_bytes, url, {}, "hot")
    with answering(b"x" * 6000) as url, pytest.raises(Failure, match="is not a streamer"):
        await trio.to_thread.run_sync(client.fetch_tree, url, {})
