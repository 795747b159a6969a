"""Which bytecodes of a live JVM ran, while it runs: over HTTP, as a file of lcov, and in the metrics."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import TINY
from tests.e2e.harness import COMMAND, Streamer, until

pytestmark = [pytest.mark.slow, pytest.mark.jvm, pytest.mark.timeout(900)]
(RETURN,) = [number for number, line in enumerate(TINY.splitlines(), 1) if "return (i & 1)" in line]


def step(streamer: Streamer) -> dict[str, Any] | None:
    """`Tiny.step`, once something of it is known to have run."""
    text = streamer.get("/api/coverage?window=5m&include=Tiny.step")
    return next(iter(json.loads(text)["methods"]), None) if text else None


def test_a_live_jvm_tells_which_of_its_bytecodes_ran(run: Callable[..., Streamer], root: Path) -> None:
    """Both ways through `Tiny.step`, all of which the interpreter runs."""
    streamer = run("Tiny enough", "--statements")
    until(lambda: (of := step(streamer)) is not None and of["ran"] == of["bytecodes"], "all of Tiny.step has been seen")
    found = step(streamer)
    assert found is not None
    assert (found["seen"], found["hit"], found["lines"]) == (found["bytecodes"], 1, 1)
    text = streamer.get("/metrics")
    series = dict(
        re.findall(r'^streamer_statement_bytecodes\{.*state="(\w+)",window="5m"\} (\S+)$', text, re.MULTILINE)
    )
    assert float(series["seen"]) >= found["bytecodes"]
    assert series.keys() == {"seen", "concluded", "missed"}
    url = re.search(r"serving (http://\S+?)/? \(page\)", streamer.err)
    assert url is not None
    file = root / "tiny.info"
    words = ["flow", "coverage", "live", "--url", url[1], "--window", "5m", "--include", "Tiny.step", "--lcov"]
    subprocess.run([COMMAND, *words, "-o", file], check=True)
    lines = file.read_text().splitlines()
    assert lines[:2] == ["TN:", "SF:Tiny.java"]
    assert f"DA:{RETURN},1" in lines
    streamer.enough()
    streamer.wait().check_books()
    streamer.check_gone()
