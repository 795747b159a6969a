"""Builds C libraries when they are asked for, and keeps them in the user's cache, keyed by what they are made from."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

TIMEOUT = 300.0  # seconds for one command


class BuildError(RuntimeError):
    """It cannot be built; the message says in one line what is missing."""


def cache_dir() -> Path:
    """Where built libraries are kept: $XDG_CACHE_HOME or ~/.cache, else a private temporary directory."""
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME")
    if not base:
        return Path(tempfile.gettempdir()) / f"streamer-cache-{os.getuid()}"
    return Path(base) / ("streamer" if os.environ.get("XDG_CACHE_HOME") else ".cache/streamer")


def compiler() -> str:
    """Path of a C compiler: $CC, else cc or gcc. Raises BuildError."""
    wanted = os.environ.get("CC")
    for name in [wanted] if wanted else ["cc", "gcc"]:
        if found := shutil.which(name):
            return found
    raise BuildError(f"no C compiler{f' {wanted}' if wanted else ''} (Debian: apt-get install gcc libc6-dev)")


def compiled(name: str, sources: Sequence[Path], commands: Sequence[Sequence[str]]) -> Path:
    """The file that `commands` make from `sources`, from the cache if they and it are the same as before. In the
    commands `{out}` is the file to make and `{dir}` a directory to work in. Raises BuildError."""
    digest = hashlib.sha256(repr([list(words) for words in commands]).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    target = cache_dir() / f"{digest.hexdigest()[:16]}-{name}"
    if target.exists():
        return target
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as directory:
            out = Path(directory) / name
            for words in commands:
                argv = [word.format(out=out, dir=directory) for word in words]
                done = subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT, check=False)
                if done.returncode:
                    said = done.stderr.strip().splitlines() or ["no message"]
                    raise BuildError(f"cannot compile {name}: {next((s for s in said if 'error' in s), said[0])}")
            out.chmod(0o755)
            out.replace(target)  # whole or not at all, also when several build at once
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{name} cannot be built: {error}") from error
    return target
