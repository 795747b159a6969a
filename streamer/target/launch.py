"""The JVM to trace: its command line with the agent in it, under emulation or not. `streamer.target.process` has its
life."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from capture.emulator import launch
from capture.emulator.options import EmulatorOptions
from capture.live import perf_event
from capture.live.hardware import SessionHardware
from jvm.agent import build
from jvm.faults import ExpectedError
from streamer.config import AgentConfig, Settings


class TargetError(ExpectedError):
    """The command cannot be traced; the message says why."""


def with_agent(java_argv: Sequence[str], session: Path, agent: AgentConfig) -> list[str]:
    """The command with `-agentpath` before its other options; the agent's ring is `<session>/jit-<pid>.ring`."""
    if not java_argv:
        raise TargetError("no command to run: streamer run --emulate -- java …")
    classes = "on" if agent.classes else "off"
    options = f"dir={session},size={agent.ring_mib}m,classes={classes}"
    options += f",stacks={agent.stacks_ms},mounts={agent.mounts_per_second}"
    return [java_argv[0], f"-agentpath:{build.library()}={options}", *java_argv[1:]]


def native(java_argv: Sequence[str], session: Path, settings: Settings) -> list[str]:
    """The command as it is, for Intel PT of the processor. Raises TargetError, HardwareError, BuildError: each names
    the missing thing in one line."""
    perf_event.check()
    if java_argv and shutil.which(java_argv[0]) is None:
        raise TargetError(f"{java_argv[0]}: no such program")
    return with_agent(java_argv, session, settings.agent)


def hardware(session: Path, settings: Settings) -> SessionHardware:
    """Intel PT of the JVM that `native` started."""
    of = settings.hardware
    return SessionHardware(
        session, socket.gethostname(), per_cpu=of.per_cpu, aux_size=of.aux_kib << 10, data_size=of.data_kib << 10
    )


def emulated(java_argv: Sequence[str], session: Path, settings: Settings) -> list[str]:
    """The command under the emulated PT, its rings in `<session>/pt`.

    Raises TargetError, EmulatorError, BuildError: each names the missing thing in one line.
    """
    options = EmulatorOptions.from_fields(settings.emulator)
    return launch.command(with_agent(java_argv, session, settings.agent), session / "pt", options)
