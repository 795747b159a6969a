"""Packages of the npm registry, for tests that compare with them."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest


def from_npm(package: str, name: str, directory: Path) -> bytes:
    """One file of `package` (with its version). Skips the test where it is not to be had."""
    with tarfile.open(_packed(package, directory)) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()


def unpacked_from_npm(package: str, below: str, directory: Path) -> Path:
    """The files whose names begin with `below`, in a folder of `directory`. Skips the test as `from_npm` does."""
    into = directory / package.replace("/", "+")
    with tarfile.open(_packed(package, directory)) as archive:
        members = [member for member in archive.getmembers() if member.name.startswith(below)]
        archive.extractall(into, members, filter="data")
    return into / below


def _packed(package: str, directory: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"npm is missing (Debian package npm): {package} comes from its registry")
    run = [npm, "pack", "--silent", package]
    got = subprocess.run(run, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    if got.returncode:
        pytest.skip(f"{package} is not to be had: {got.stderr[:200]}")
    return directory / got.stdout.split()[-1]
