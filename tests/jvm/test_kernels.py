"""Compiled kernels are kept by their sources: their own module and all that it imports."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jvm import kernels, sources

OUTER = """
from jvm.kernels import kernel
from project.inner import value


@kernel
def outer():
    return value() + 1
"""
INNER = """
from jvm.kernels import inner


@inner
def value():
    return {}
"""
# Modules of a made-up project, which is told to be ours.
RUN = """
import sys
from pathlib import Path
from jvm import sources
root = Path(sys.argv[1])
sources.ROOT = root
sys.path.insert(0, str(root))
from project.outer import outer
result = outer()
print(result, sum(outer.stats.cache_hits.values()))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "project"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "outer.py").write_text(OUTER)
    (package / "inner.py").write_text(INNER.format(1))
    return tmp_path


def run(project: Path) -> tuple[int, int]:
    """Of a process of its own: result of the kernel, and how many times the cache had it."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(project / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(project)], env=environment, capture_output=True, text=True, check=True
    )
    result, hits = done.stdout.split()
    return int(result), int(hits)


def test_a_change_in_a_callee_is_seen(project: Path) -> None:
    assert run(project) == (2, 0)
    assert run(project) == (2, 1)
    (project / "project" / "inner.py").write_text(INNER.format(41))
    assert run(project) == (42, 0)
    (project / "project" / "inner.py").write_text(INNER.format(1))  # as it was: found again
    assert run(project) == (2, 1)


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_damaged_cache_costs_time_only(project: Path, suffix: str) -> None:
    assert run(project) == (2, 0)
    damaged = list((project / "cache").rglob(f"*.{suffix}"))
    assert damaged
    for path in damaged:
        path.write_bytes(b"\xff" * 16)
    assert run(project) == (2, 0)


def test_a_cache_that_cannot_be_written_costs_time_only(project: Path) -> None:
    (project / "cache").write_text("a file where the directory should be")
    assert run(project) == (2, 0)


def test_what_nobody_used_is_removed(project: Path) -> None:
    run(project)
    (old,) = (project / "cache").glob("project.outer-*")
    neighbour = project / "cache" / "project.outermost-00"
    neighbour.mkdir()
    for path in (old, neighbour):
        os.utime(path, (0, time.time() - kernels.KEPT_SECONDS - 1))
    (project / "project" / "inner.py").write_text(INNER.format(41))
    assert run(project) == (42, 0)
    assert not old.exists()
    assert neighbour.exists()  # of another module


def test_every_module_is_in_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is imported, and however far; a circle ends."""
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    (tmp_path / "p").mkdir()
    names = ["one", "two", "three", "four", "__init__"]
    files = {name: tmp_path / "p" / f"{name}.py" for name in names}
    files["one"].write_text("from p.two import (\n    a,\n    b,\n)\n")
    files["two"].write_text("def f():\n    import p.three as three, os\n")
    files["three"].write_text("from p import four\n")
    files["four"].write_text("import p.one\n")
    files["__init__"].write_text("")
    before = sources.digest(files["one"])
    for name in names:
        sources._source.cache_clear()
        files[name].write_text(files[name].read_text() + "# changed\n")
        after = sources.digest(files["one"])
        assert after != before, name
        before = after
