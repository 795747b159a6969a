"""Compiles the plugin when it is not there yet. Cached by a hash of the source, in the user's cache directory."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from capture.emulator.options import EmulatorError
from jvm.agent.build import cache_dir

_SOURCE = Path(__file__).resolve().parent
_FLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
# QEMU keeps the guest's registers where rbp points, and calls these callbacks with it (signals.c).
_FIXED_RBP = {"signals.c": ["-ffixed-rbp", "-fomit-frame-pointer"]}


def compiler() -> str:
    """Path of a C compiler ($CC, cc, gcc). Raises EmulatorError."""
    for name in (os.environ.get("CC", ""), "cc", "gcc"):
        if name and (found := shutil.which(name)):
            return found
    raise EmulatorError("no C compiler to build the emulated PT (Debian: apt-get install gcc libc6-dev)")


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


def compiled(name: str, sources: list[Path], command: list[list[str]]) -> Path:
    """The file that `command` makes from `sources`, from the cache if they and it are the same as before. In the
    commands `{out}` is the file to make and `{dir}` a directory to work in. Raises EmulatorError."""
    digest = hashlib.sha256(repr(command).encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    target = cache_dir() / f"{digest.hexdigest()[:16]}-{name}"
    if target.exists():
        return target
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as directory:
        out = Path(directory) / name
        for words in command:
            argv = [word.format(out=out, dir=directory) for word in words]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
            if done.returncode:
                raise EmulatorError(f"cannot compile {name}: {(done.stderr.strip().splitlines() or ['?'])[0]}")
        out.replace(target)  # atomic: several may build at once
    return target


def plugin() -> Path:
    """The plugin as a shared object. Raises EmulatorError."""
    cc = compiler()
    sources = sorted(_SOURCE.glob("*.c"))
    commands = [
        [cc, *_FLAGS, *_FIXED_RBP.get(source.name, []), "-c", str(source), "-o", f"{{dir}}/{source.stem}.o"]
        for source in sources
    ]
    objects = [f"{{dir}}/{source.stem}.o" for source in sources]
    commands.append([cc, "-shared", "-o", "{out}", *objects, "-lpthread"])
    return compiled("emulated-pt.so", sources + sorted(_SOURCE.glob("*.h")), commands)
