from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from capture.emulator import build
from capture.emulator.options import EmulatorError
from jvm.cbuild import BuildError
from tests.emulator.harness import PROGRAM


@pytest.fixture(scope="session")
def plugin() -> Path:
    """The emulator's; skips where no program can be run under emulation."""
    try:
        build.qemu()
        return build.plugin()
    except (EmulatorError, BuildError) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def classes(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class path with `Ways N`; skips where no JVM can be run under emulation."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    out = tmp_path_factory.mktemp("ways")
    (out / "Ways.java").write_text(PROGRAM)
    subprocess.run(["javac", "--release", "17", "-d", out, out / "Ways.java"], check=True, timeout=120)
    return out
