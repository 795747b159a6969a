"""Builds the agent when it is asked for: C sources → a shared library in the user's cache, keyed by their hash.

One library serves every JDK: JVMTI's tables only grow, and all that is particular to a version is read from the
running VM (vmstructs.c).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
_FLAGS = (
    *("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror=implicit-function-declaration"),
)


class BuildError(RuntimeError):
    """The agent cannot be built; the message says what is missing."""


def cache_dir() -> Path:
    """Where built libraries are kept: $XDG_CACHE_HOME or ~/.cache, else a private temporary directory."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    if not base:
        return Path(tempfile.gettempdir()) / f"streamer-cache-{os.getuid()}"
    return Path(base) / ("streamer" if os.environ.get("XDG_CACHE_HOME") else ".cache/streamer")


def include_dir() -> Path:
    """A directory with jvmti.h: of $JAVA_HOME, of the `java` or `javac` on the path, or of any JDK in /usr/lib/jvm."""
    homes = [Path(home)] if (home := os.environ.get("JAVA_HOME")) else []
    programs = [found for program in ("javac", "java") if (found := shutil.which(program))]
    homes += [Path(found).resolve().parent.parent for found in programs]
    homes += sorted(Path("/usr/lib/jvm").glob("*"))
    for home_dir in homes:
        if all((home_dir / "include" / name).is_file() for name in ("jvmti.h", "jvmticmlr.h", "linux/jni_md.h")):
            return home_dir / "include"
    raise BuildError("the agent needs jvmti.h of a JDK (Debian: openjdk-17-jdk-headless; or set JAVA_HOME)")


def library() -> Path:
    """Path of the built agent, built now if its sources changed. Raises BuildError."""
    sources = sorted(SOURCES.glob("*.c"))
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for file in (*sources, *sorted(SOURCES.glob("*.h"))):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    target = cache_dir() / f"libstreamer-agent-{digest.hexdigest()[:16]}.so"
    if not target.exists():
        _compile(sources, target)
    return target


def _compile(sources: list[Path], target: Path) -> None:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise BuildError("the agent needs a C compiler (Debian: gcc libc6-dev)")
    include = include_dir()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch) / target.name
            command = [compiler, *_FLAGS, f"-I{include}", f"-I{include}/linux", *map(str, sources), "-o", str(made)]
            result = subprocess.run([*command, "-ldl"], capture_output=True, text=True, timeout=120, check=False)
            if result.returncode:
                first = next((line for line in result.stderr.splitlines() if "error" in line), "no message")
                raise BuildError(f"the agent does not compile: {first}")
            made.chmod(0o755)
            made.replace(target)  # whole or not at all, also when two processes build at once
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"the agent cannot be built: {error}") from None
