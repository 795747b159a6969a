"""What a command loads: kernels take most of a second to load, and memory as long as it runs; few need them."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

from streamer import commands

COMMANDS = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
_LOADED = "import sys; print('loaded:', *sorted({'numba', 'llvmlite'} & sys.modules.keys()))"


def loaded_by(program: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", f"{program}\n{_LOADED}"], capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()[-1].split()[1:]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_commands_help_loads_no_kernels(name: str) -> None:
    words = [name.replace("_", "-"), "--help"]
    assert loaded_by(f"from streamer.cli import cli\ncli.main({words}, standalone_mode=False)") == []


@pytest.mark.parametrize(
    "words",
    [
        ["attach", "0"],
        ["contexts"],
        ["doctor"],
        ["flow", "coverage", "live", "--url", "http://127.0.0.1:1"],
        ["report", "--url", "http://127.0.0.1:1"],
        ["resume", "1"],
        ["run", "--emulate", "--config", "/none", "--", "java"],
        ["top", "--once", "--url", "http://127.0.0.1:1"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_without_kernels_runs_to_its_end_without_them(words: list[str], tmp_path: str) -> None:
    """To the fault that ends it, and the line that tells it."""
    program = f"""
import os, sys
os.environ["STREAMER_RUNTIME_DIR"] = {str(tmp_path)!r}
from streamer import cli
sys.argv = ["streamer", *{words}]
try:
    cli.main()
except SystemExit as ended:
    assert {words[0]!r} == "doctor" or ended.code in (1, 2), ended.code
"""
    assert loaded_by(program) == []


@pytest.mark.parametrize("module", ["streamer.errors", "streamer.running", "streamer.recording"])
def test_the_process_that_keeps_the_others_going_loads_no_kernels(module: str) -> None:
    """`streamer.running` is all of `run`, `replay` and `resume` up to the summary."""
    assert loaded_by(f"import {module}") == []
