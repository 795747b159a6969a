"""The JVM to trace: its command line with the agent in it, under emulation or not, and its process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from capture.emulator import launch
from capture.emulator.options import EmulatorOptions
from jvm.agent import build
from streamer.config import Settings


class TargetError(Exception):
    """The command cannot be traced; the message says why."""


def with_agent(java_argv: Sequence[str], session: Path) -> list[str]:
    """The command with `-agentpath` before its other options; the agent's ring is `<session>/jit-<pid>.ring`."""
    if not java_argv:
        raise TargetError("no command to run: streamer run --emulate -- java …")
    return [java_argv[0], f"-agentpath:{build.library()}=dir={session}", *java_argv[1:]]


def emulated(java_argv: Sequence[str], session: Path, settings: Settings) -> list[str]:
    """The command under the emulated PT, its rings in `<session>/pt`.

    Raises TargetError, EmulatorError, BuildError: each says in one line what is missing.
    """
    options = EmulatorOptions.from_fields(settings.emulator)
    return launch.command(with_agent(java_argv, session), session / "pt", options)
