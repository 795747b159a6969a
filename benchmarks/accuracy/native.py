"""The hot methods that Java Flight Recorder sees in a native run: how often each was on top of a sampled stack."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.accuracy.truth import TruthError
from jvm.names import display

SECONDS = 600


def sampled(java: Sequence[str], directory: Path) -> Counter[str]:
    """Of all threads. `java`: program, by its path or in PATH, which has `jfr` beside it, and arguments. Raises
    TruthError."""
    recording = directory / "native.jfr"
    words = [java[0], f"-XX:StartFlightRecording=settings=profile,filename={recording}", *java[1:]]
    tool = Path(shutil.which(java[0]) or java[0]).resolve().with_name("jfr")
    try:
        subprocess.run(words, capture_output=True, check=True, timeout=SECONDS)
        printed = subprocess.run(
            [tool, "print", "--json", "--stack-depth", "1", "--events", "jdk.ExecutionSample", str(recording)],
            capture_output=True, check=True, timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise TruthError(f"Flight Recorder: {' '.join(str(error).split())[-500:]}") from error
    found = Counter[str]()
    for event in json.loads(printed.stdout)["recording"]["events"]:
        trace = event["values"]["stackTrace"]
        if trace and trace["frames"]:
            method = trace["frames"][0]["method"]
            found[display(f"L{method['type']['name']};", method["name"])] += 1
    return found
