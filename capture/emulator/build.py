"""The needs of the emulated PT: a QEMU that takes the plugin, and the plugin, built when it is asked for."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from capture.emulator.options import EmulatorError
from jvm.cbuild import compiled, compiler

_SOURCE = Path(__file__).resolve().parent
_FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
# QEMU keeps the guest's registers where rbp points, and calls these callbacks with it (signals.c).
_FIXED_RBP = {"signals.c": ["-ffixed-rbp", "-fomit-frame-pointer"]}


def qemu() -> str:
    """Path of a qemu-x86_64 whose plugin API is ours (version 1: QEMU 6.0 to 8.2). Raises EmulatorError."""
    found = shutil.which("qemu-x86_64")
    if not found:
        raise EmulatorError("qemu-x86_64 is missing (Debian 12: apt-get install qemu-user)")
    try:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise EmulatorError(f"{found} does not run: {error}") from error
    match = re.search(r"version (\d+)\.(\d+)", said)
    if not match:
        raise EmulatorError(f"{found}: cannot tell its version")
    version = int(match[1]), int(match[2])
    if not (6, 0) <= version < (9, 0):
        raise EmulatorError(f"{found} is version {match[1]}.{match[2]}; the plugin API used here is that of 6.0 to 8.2")
    return found


def plugin() -> Path:
    """The plugin as a shared object, built now if its sources changed. Raises BuildError."""
    cc = compiler()
    sources = sorted(_SOURCE.glob("*.c"))
    commands = [
        [cc, *_FLAGS, *_FIXED_RBP.get(source.name, []), "-c", str(source), "-o", f"{{dir}}/{source.stem}.o"]
        for source in sources
    ]
    objects = [f"{{dir}}/{source.stem}.o" for source in sources]
    commands.append([cc, "-shared", "-o", "{out}", *objects, "-lpthread"])
    return compiled("emulated-pt.so", sources + sorted(_SOURCE.glob("*.h")), commands)
