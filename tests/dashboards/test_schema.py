"""The dashboards by Grafana's published schema: its TypeScript types, checked by TypeScript's compiler.

A JSON file is written as a literal of the type `Dashboard`: a field that the type does not have, one that is missing,
and a value of another type are errors.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from dashboards.build import DASHBOARDS, FOLDER
from tests.npm import from_npm, unpacked_from_npm

SCHEMA = ("@grafana/schema@11.6.0", "package/dist/esm/raw/dashboard/x/dashboard_types.gen.d.ts")
COMPILER = ("typescript@5.8.3", "package/lib")
pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]


def literal(types: str) -> str:
    """Enumerations as unions of their values, which is what JSON has."""
    values: dict[str, str] = {}

    def union(found: re.Match[str]) -> str:
        members = dict(re.findall(r"(\w+)\s*=\s*(\"[^\"]*\"|-?\d+)", found[2]))
        values.update({f"{found[1]}.{member}": value for member, value in members.items()})
        return f"export type {found[1]} = {' | '.join(members.values())};"

    types = re.sub(r"export declare enum (\w+) \{(.*?)\}", union, types, flags=re.DOTALL)
    return re.sub(r"\b[A-Z]\w+\.\w+\b", lambda name: values.get(name[0], name[0]), types)


def errors(dashboards: dict[str, str], directory: Path) -> dict[str, list[str]]:
    """By the name of the dashboard (JSON)."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing (Debian package nodejs)")
    (directory / "schema.d.ts").write_text(literal(from_npm(*SCHEMA, directory).decode()))
    for name, text in dashboards.items():
        code = f'import type {{Dashboard}} from "./schema";\nexport const it: Dashboard = {text};\n'
        (directory / f"{name}.ts").write_text(code)
    run = [node, str(unpacked_from_npm(*COMPILER, directory) / "tsc.js"), "--noEmit", "--strict"]
    done = subprocess.run(
        [*run, *(f"{name}.ts" for name in dashboards)], cwd=directory, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if ": error TS" in line]
    assert bool(lines) == bool(done.returncode), done.stdout + done.stderr
    found = {name: [line for line in lines if line.startswith(f"{name}.ts(")] for name in dashboards}
    assert sum(map(len, found.values())) == len(lines), lines
    return found


def test_dashboards_are_as_the_schema_says() -> None:
    texts = {name: (FOLDER / f"{name}.json").read_text() for name in DASHBOARDS}
    known = json.loads(texts["streamer"])
    panel, *others = known["panels"]
    wrong = {
        "field": known | {"tittle": "x"},
        "nested": known | {"panels": [panel | {"gridPos": panel["gridPos"] | {"h": "8"}}, *others]},
        "value": known | {"templating": {"list": [known["templating"]["list"][0] | {"hide": 7}]}},
    }
    with tempfile.TemporaryDirectory() as directory:
        found = errors(texts | {name: json.dumps(value) for name, value in wrong.items()}, Path(directory))
    assert {name: found[name] for name in DASHBOARDS} == {name: [] for name in DASHBOARDS}
    assert all(found[name] for name in wrong), found
