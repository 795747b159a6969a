"""The spending with a budget, of a live run under the emulated PT."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np


def spent(metrics: str) -> float:
    """CPU seconds of all members."""
    return sum(float(n) for n in re.findall(r"^streamer_cpu_seconds_total\{[^}]*\} (\S+)$", metrics, re.M))


def budget(percent: float, seconds: float, java: list[str]) -> dict[str, Any]:
    """The spending in each minute, in parts of the budget, and the mean duty."""
    command = [str(Path(sys.executable).with_name("streamer")), "run", "--emulate", "--port", "0", "--no-live",
               "--cpu-budget", f"{percent}%", "--", "java", *java]  # fmt: skip
    seen: list[tuple[float, float]] = []
    duties: list[float] = []
    with tempfile.TemporaryFile("w+") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < seconds + 120:
            time.sleep(1)
            log.seek(0)
            url = re.search(r"serving (http://\S+?)/? \(page\)", log.read())
            if url is None:
                continue
            try:
                with urllib.request.urlopen(f"{url[1]}/metrics", timeout=10) as answer:
                    text = answer.read().decode()
            except OSError:
                continue
            part = re.search(r"^streamer_window_duty_ratio\{[^}]*10s[^}]*\} (\S+)$", text, re.M)
            if part is None or not re.search(r"^streamer_kernels_ready\{[^}]*\} 1.0$", text, re.M):
                continue
            seen.append((time.monotonic(), spent(text)))
            duties.append(float(part[1]))
        process.terminate()
    seen = [s for s in seen if s[0] >= seen[0][0] + 10] if seen else []
    minutes = [
        (b[1] - a[1]) / (b[0] - a[0]) / (percent / 100)
        for a in seen
        for b in [next((s for s in seen if s[0] >= a[0] + 60), None)]
        if b is not None
    ]
    if not minutes:
        raise ValueError("the program did not run for a minute and ten seconds")
    return {"budget_percent": percent, "least": min(minutes), "mean": float(np.mean(minutes)), "most": max(minutes),
            "duty": float(np.mean(duties)), "minutes": len(minutes)}  # fmt: skip
