"""The C of the agent and of the emulator: each header stands alone, declares the symbols that its own file defines, and
includes go one way. (`make lint` holds their style.)"""

from __future__ import annotations

import re
import subprocess
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from capture.emulator import build as emulator
from jvm.agent import build as agent
from jvm.cbuild import BuildError, compiler

FOLDERS = (agent.SOURCES, Path(emulator.__file__).parent)
STRICT = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")
OUTSIDE = {"Agent_OnLoad", "Agent_OnAttach", "qemu_plugin_install", "qemu_plugin_version"}  # the host's header has them


def compiled(source: Path, *options: str, text: str = "") -> str:
    """Errors of the compiler about `source`, or about the `text` that includes it."""
    try:
        cc, include = compiler(), agent.include_dir() if source.parent == agent.SOURCES else None
    except BuildError as error:
        pytest.skip(str(error))
    jdk = [f"-I{include}", f"-I{include}/linux"] if include else []
    command = [cc, *STRICT, *options, *jdk, f"-I{source.parent}", "-x", "c", "-" if text else str(source)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False).stderr


def included(source: Path) -> list[Path]:
    """The project's own headers that it includes, in order."""
    return [source.with_name(name) for name in re.findall(r'^#include "(.*)"', source.read_text(), re.MULTILINE)]


def files(pattern: str) -> list[Path]:
    return [file for folder in FOLDERS for file in sorted(folder.glob(pattern))]


@pytest.mark.peer
@pytest.mark.parametrize("header", files("*.h"), ids=lambda path: path.name)
def test_a_header_compiles_alone(header: Path) -> None:
    assert compiled(header, "-fsyntax-only", text=f'#include "{header.name}"\n') == ""


@pytest.mark.peer
@pytest.mark.parametrize("source", files("*.c"), ids=lambda path: path.name)
def test_all_that_other_files_see_of_a_file_is_in_its_header(source: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.o"
    assert compiled(source, "-c", "-o", str(made)) == ""
    listed = subprocess.run(["nm", "-g", "--defined-only", made], capture_output=True, text=True, check=True).stdout
    seen = {line.split()[-1] for line in listed.splitlines()} - OUTSIDE
    header = source.with_suffix(".h")
    assert seen <= set(re.findall(r"\w+", header.read_text()) if header.exists() else ())
    assert not seen or included(source)[0] == header


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_headers_form_no_circle(folder: Path) -> None:
    headers = {header: included(header) for header in folder.glob("*.h")}
    assert set(TopologicalSorter(headers).static_order()) == set(headers)
