"""One member as the supervisor knows it: its state (docs/shutdown.md draws the changes), its deaths, its last words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import trio

from streamer.pipeline.members import Run
from streamer.pipeline.topology import Group
from streamer.transport.control import Control


@dataclass(frozen=True)
class Policy:
    """How patient the supervisor is. Seconds."""

    first_delay: float = 0.1  # before the first restart; doubles each time …
    longest_delay: float = 5.0  # … up to this, for as long as it dies
    healthy_after: float = 20.0  # a member that lived so long has its failures forgiven
    startup: float = 300.0  # until it is ready (kernels may be compiling), then it is killed
    quiet: float = 5.0  # without a heartbeat, then it is said not to be there
    silence: float = 60.0  # without a heartbeat, then it is killed …
    silence_at_end: float = 10.0  # … and in the end
    tell_seconds: float = 5.0  # for a word to be taken, then the member that does not take it is killed
    deaths_at_end: int = 3  # in a row: in the end it is not tried any more
    idle_at_end: float = 60.0  # in the end: without progress of any member, then all that is left is killed
    shutdown_seconds: float = 30.0  # from `stop` to the end, progress or not
    term_seconds: float = 1.0  # of both, between SIGTERM and SIGKILL
    exit_seconds: float = 5.0  # for a process that has said its last word

    def delay(self, failures: int) -> float:
        """Before the next start, after so many deaths in a row."""
        return min(self.longest_delay, self.first_delay * 2.0 ** min(failures - 1, 30))


class State(Enum):
    STARTING = "starting"
    UP = "up"
    ENDING = "ending"  # it has sent all it had and waits for the acknowledgement
    WAITING = "waiting"  # dead, to be started again
    ENDED = "ended"  # in order
    LOST = "lost"  # died in the end, when another start would have changed nothing
    GIVEN_UP = "given up"  # another start would not help


WORKING = (State.UP, State.ENDING)
RESUME_SECONDS = 60.0
FINAL = (State.ENDED, State.LOST, State.GIVEN_UP)
SAID_ALL = (State.ENDING, *FINAL)
"""Nothing new comes from a member in one of these."""


class Keeper:
    """One member. Lives as long as the supervisor."""

    def __init__(self, group: Group, level: int, index: int) -> None:
        self.group, self.level, self.index = group, level, index
        self.name = f"{group.name}/{index}"
        self.state = State.STARTING
        self.incarnation = 0
        self.failures = 0  # in a row
        self.restarts = 0
        self.why = ""  # its last incarnation ended
        self.last_words = ""  # of this one
        self.hopeless = False  # it has said that another start would not help
        self.said_all = False  # it has sent all it ever had
        self.statistics: dict[str, Any] = {}
        self.control: Control | None = None
        self.run: Run | None = None
        self.last_beat = -math.inf
        self.quiet = False  # no heartbeat for some time
        self.ready = trio.Event()  # the first incarnation is, or never will be

    @property
    def ended(self) -> bool:
        """For good."""
        return self.state in FINAL

    @property
    def given_up(self) -> bool:
        return self.state is State.GIVEN_UP

    @property
    def up(self) -> bool:
        """Takes messages."""
        return self.state in WORKING

    @property
    def patience(self) -> float:
        """How long a source waits for members that hear it, in seconds. A JVM that starts is not to wait; a JVM that
        has run untraced for a while has its rings, and losses where they have no room."""
        options = self.group.options
        return (RESUME_SECONDS if options.get("resumed") else 0.0) if options.get("live") else math.inf

    def progress(self) -> tuple[Any, ...]:
        """Changes whenever it has done something."""
        said = self.statistics
        return (
            self.state,
            said.get("steps", 0),
            said.get("input", {}).get("received", 0),
            said.get("output", {}).get("sent", 0),
            said.get("stages", {}).get("drained_bytes", 0),
        )

    def status(self) -> dict[str, Any]:
        """In the words of a heartbeat to the hub."""
        return {
            "component": self.name,
            "up": (self.up and not self.quiet) or self.state is State.ENDED,
            "state": "quiet" if self.up and self.quiet else self.state.value,
            "restarts": self.restarts,
            "deaths_in_a_row": self.failures if self.state is not State.ENDED else 0,
            "pid": self.run.pid if self.run else 0,
            "why": self.why,
            "cpu_seconds": float(self.statistics.get("cpu_seconds", 0.0)),
            "memory_bytes": int(self.statistics.get("memory_bytes", 0)),
            "statistics": self.statistics,
        }
