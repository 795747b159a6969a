"""Where the outside test data lies (see its README), and how its expectations are compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[3] / "shared" / "data"
VECTORS = DATA / "pt-vectors"
HARDWARE = DATA / "pt-hardware"


class Vector(NamedTuple):
    name: str
    org: int
    options: dict[str, str]  # by tool
    expectation: Path
    bits: int  # of the code; 0: there is none
    tool: str  # ptdump or ptxed
    cpu: str  # family/model or ""

    @property
    def id(self) -> str:
        return self.expectation.stem


def manifest() -> list[Vector]:
    """Every expectation of every vector; empty where the data is absent."""
    table = VECTORS / "MANIFEST.tsv"
    if not table.exists():
        return []
    head, *rows = (line.split("\t") for line in table.read_text().splitlines())
    found = []
    for row in rows:
        entry = dict(zip(head, row, strict=True))
        options = {"ptdump": entry["opt_ptdump"], "ptxed": entry["opt_ptxed"]}
        for file in entry["exps"].split():
            tool, _, cpu = file.removeprefix(entry["base"] + "-").removesuffix(".exp").partition("-cpu_")
            bits, cpu = int(entry["bits"] or 0), cpu.replace("_", "/")
            found.append(Vector(entry["base"], int(entry["org"], 0), options, VECTORS / file, bits, tool, cpu))
    return found


_ERROR = re.compile(r"^\[([0-9a-f]+(?:, [0-9a-f]+)?): .*\]$")


def normalised(text: str) -> list[str]:
    """Lines without layout; of errors only where they are, their wording is each tool's own."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [_ERROR.sub(r"[\1: error]", line) for line in lines if line]
