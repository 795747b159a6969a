"""The counters of a run that was kept, made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def kept_run(directory: Path, recorded: int, streams: list[dict[str, int]], **state: Any) -> None:
    """As `benchmarks.flow_truth.record` leaves them, with so many bytes recorded of those streams."""
    run = {
        "java": ["java"], "status": 0, "seconds": 1.0, "trace_bytes": recorded, "aux_full": 0, "attached": 0,
        "reread_seconds": 0.0, "reread_learning_seconds": 0.0, "faults": [],
    }  # fmt: skip
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "flow-truth.json").write_text(json.dumps(run))
    counters = {"state": "ended", "refused": 0, "unexplained": 0, "streams": streams} | state
    (directory / "emulator.json").write_text(json.dumps(counters))
