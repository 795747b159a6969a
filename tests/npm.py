"""One file of a package of the npm registry, for tests that compare with it."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest


def from_npm(package: str, name: str, directory: Path) -> bytes:
    """`package`: with its version. Skips the test where it is not to be had."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"npm is missing (Debian package npm): {package} comes from its registry")
    run = [npm, "pack", "--silent", package]
    got = subprocess.run(run, cwd=directory, capture_output=True, text=True, timeout=120, check=False)
    if got.returncode:
        pytest.skip(f"{package} is not to be had: {got.stderr[:200]}")
    with tarfile.open(directory / got.stdout.split()[-1]) as archive:
        file = archive.extractfile(name)
        assert file is not None
        return file.read()
