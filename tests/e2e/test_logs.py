"""With `log_json` each line on stderr is an object, of all processes, also that of a fault which ends a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Streamer

DEMO = Path("streamer/demo/shop.json").resolve()
JSON = {"STREAMER_LOG_JSON": "true", "STREAMER_LOG_LEVEL": "debug"}


def events(text: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert {"event", "level", "timestamp", "process"} <= set(line), line
        assert line["timestamp"].endswith("Z")
    return lines


@pytest.mark.slow
def test_a_run_logs_lines_of_json(start: Callable[..., Streamer]) -> None:
    streamer = start("replay", DEMO, "--port", "0", "--pace", "max", "--seconds", "3", env=JSON)
    ended = streamer.wait()
    assert ended.status == 0, ended.err
    told = events(ended.err)
    (serving,) = (line for line in told if line["event"].startswith("serving http://"))
    assert (serving["process"], serving["level"]) == ("streamer", "info")
    assert serving["event"].endswith("/metrics")  # in one line, however long
    assert "decoded" in ended.out  # the summary is for people


def test_a_fault_that_ends_a_command_is_one_too(start: Callable[..., Streamer]) -> None:
    streamer = start("replay", DEMO, "--port", "0", "--token-file", "/no/such/token", env=JSON)
    ended = streamer.wait()
    assert ended.status == 1
    (line,) = events(ended.err)
    assert line["level"] == "error"
    assert line["event"] == "token: /no/such/token: No such file or directory"
