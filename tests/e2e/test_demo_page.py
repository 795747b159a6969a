"""The demo as `make demo` plays it: what the page asks for is there while it runs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import COMMAND, Streamer, until
from tests.views.test_export import go_pprof

pytestmark = [pytest.mark.slow]
DEMO = Path("streamer/demo/shop.json").resolve()


def test_the_demo_shows_its_calling_contexts(start: Callable[..., Streamer], tmp_path: Path) -> None:
    streamer = start("replay", DEMO, "--port", "0", "--pace", "2")

    def frames() -> dict[str, Any] | None:
        text = streamer.get("/api/flame?window=1m&weight=time")
        told = json.loads(text) if text else {"names": []}
        return told if "Shop.serve" in told["names"] else None

    told = until(frames, "Shop.serve is in the flame graph")
    calls = dict(zip(told["name"], told["parent"], strict=True))
    serve = told["names"].index("Shop.serve")
    below = {told["names"][name] for name, up in zip(told["name"], told["parent"], strict=True)
             if up >= 0 and told["name"][up] == serve}  # fmt: skip
    assert any(name.startswith("Shop$") or name == "Shop.page" for name in below), below
    assert calls[serve] >= 0
    assert told["total"][0] > told["total"][told["name"].index(serve)] > 0
    edges = until(
        lambda: re.findall(r'^streamer_call_edge_share_ratio\{.*callee="Shop.page".*caller="Shop.serve"',
                           streamer.get("/metrics"), re.MULTILINE),
        "the edge is in the metrics",
    )  # fmt: skip
    assert len(edges) <= 3  # one a weight
    url = re.search(r"serving (http://\S+?)/? \(page\)", streamer.err)
    assert url is not None
    file = tmp_path / "now.pb.gz"
    exported = subprocess.run(
        [COMMAND, "export", "live", "--url", url[1], "--window", "1m", "-o", str(file)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert exported.returncode == 0, exported.stderr
    shown = subprocess.run([go_pprof(), "-top", str(file)], capture_output=True, text=True, timeout=60, check=True)
    assert "Shop" in shown.stdout
