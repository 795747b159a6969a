"""The command that runs a JVM under the emulated PT."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from capture.emulator import build
from capture.emulator.options import EmulatorError, EmulatorOptions
from jvm.inputfile import open_input
from jvm.private import PrivacyError, safe_directory


def program(name: str) -> Path:
    """The real ELF file of a program: symbolic links resolved, as QEMU runs it without a shell's help, and as the
    launcher of a JDK finds its libraries. Raises EmulatorError."""
    found = shutil.which(name)
    if not found:
        raise EmulatorError(f"{name}: no such program")
    path = Path(os.path.realpath(found))
    try:
        with os.fdopen(open_input(path, 1 << 42), "rb") as file:
            head = file.read(20)
    except OSError as error:
        raise EmulatorError(f"{path}: {error.strerror}") from error
    if head[:2] == b"#!":
        raise EmulatorError(f"{name} is a script, not a program: give the java command line that it runs")
    if head[:5] != b"\x7fELF\x02" or head[18:20] != b"\x3e\x00":  # EI_CLASS 64 bit, e_machine x86-64
        raise EmulatorError(f"{path} is no x86-64 program")
    return path


def command(java_argv: Sequence[str], directory: Path, options: EmulatorOptions | None = None) -> list[str]:
    """`java_argv` (program and arguments) under emulation, with its rings in `directory`, which is made (0700) and
    must not hold rings. Exit status, input and output of the command are the JVM's own. Raises EmulatorError,
    BuildError."""
    if not java_argv:
        raise EmulatorError("no command to run")
    options = options or EmulatorOptions()
    java = program(java_argv[0])
    qemu, plugin = build.qemu(), build.plugin()
    try:
        directory = safe_directory(directory)
        if options.truth:
            safe_directory(options.truth)
    except PrivacyError as error:
        raise EmulatorError(str(error)) from error
    if any(directory.glob("*.ring")):
        raise EmulatorError(f"{directory} holds the rings of another run")
    return [
        *(qemu, "-cpu", "max"),
        *("-plugin", f"{plugin},{options.arguments(directory)}"),
        *(str(java), *java_argv[1:]),
    ]
