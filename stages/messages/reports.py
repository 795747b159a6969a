"""Byte accounts, and the counts of a pane."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.messages.keys import StreamKey
from stages.messages.loss import Loss


@dataclass(frozen=True, slots=True)
class Account:
    """Bytes of one stream from `start` to `end`: every one decoded, or in a hole of a named cause.
    Consecutive accounts of a stream join without a gap; the hub makes a hole of any gap it finds."""

    stream: StreamKey
    start: int
    end: int
    decoded: int
    holes: tuple[tuple[Loss, int], ...]  # sums with `decoded` to end − start
    never_written: tuple[tuple[Loss, int], ...] = ()  # events × lost bytes outside the stream's offsets
    events: tuple[tuple[Loss, int], ...] = ()  # how many holes of each cause
    shed: int = 0  # of `decoded`, those that were not followed: only the addresses in them were read


PROFILE_DTYPE = np.dtype(
    [("method", "<i4"), ("tid", "<i4"), ("kind", "<i4"), ("_", "<i4"),
     ("hits", "<u8"), ("instructions", "<u8"), ("ticks", "<u8"), ("invocations", "<u8"),
     ("untold", "<u8"), ("uncounted", "<u8"), ("bytecodes", "<u8")]
)  # fmt: skip
"""`untold`: how often an unknown number of invocations was counted as few (a cycle that leaves no packet), so that they
are a lower bound; `uncounted`: how often code ran that may have made some, and none were counted; `bytecodes`: those
executed by the interpreter, and those that compiled code stands for (stages.inlining.executed)."""


class CodeKind(IntEnum):
    """The kind of code that a profile row's method id was seen running in."""

    UNKNOWN = 0
    INTERPRETED = 1
    C1 = 2
    C2 = 3
    NATIVE_WRAPPER = 4
    STUB = 5  # stubs, adapters, blobs: `method` names the stub


class Break(IntEnum):
    """How the trace contradicts the code that is known: why `stages.follow` broke a walk off. An OVF packet (10 in a
    `Paths`' breaks) breaks it off too, but contradicts nothing."""

    TNT_AT_TIP = 1  # a conditional branch's packet at a place that takes an address
    TIP_AT_TNT = 2  # an address where a conditional branch stands
    RETURN_BIT = 3  # a return that is said not to be taken
    NO_RETURN = 4  # a compressed return, and no call was seen
    OFF_CODE = 5  # went where no code is known
    STUCK = 6  # no instruction, or a loop that nothing ends
    NOT_DISABLED = 7  # left the IP filter, and tracing goes on
    FUP_OFF_PATH = 8  # an interrupt at an address that is not on the way
    PSB_OFF_PATH = 9  # PSB+ names an address that is not on the way
    BAD_PACKET = 11
    ENABLED_TWICE = 12
    WHILE_DISABLED = 13
    WRONG_TARGET = 14  # a stub's jump to where it never leads
    GAVE_UP = 15  # any of these, where a search for another explanation had to leave off
    OTHER_MODE = 16  # 16- or 32-bit code, which is not followed


class Contradiction(NamedTuple):
    """A place where the trace contradicted the code, and how often. `start` 0: no code is known there (`offset` is
    the address), or (`code` = "other") these are places that there was no room to name."""

    cause: Break
    code: str  # the blob's name, and its kind of code
    start: int  # address of the blob
    offset: int  # of the last instruction that the walk had reached, from there
    site: str  # innermost method and bytecode index at that instruction, "" where unknown
    times: int
    suspect: int = 0  # instructions that the walk had passed since the trace last confirmed it


COUNT_DTYPE = np.dtype([("site", "<i4"), ("tid", "<i4"), ("hits", "<u8"), ("ticks", "<u8")])


@dataclass(frozen=True, slots=True)
class Counts:
    """Addresses that stood in packets and the time behind them, of one pane, by site and thread. Sites are numbered by
    the sender; the meaning of a number is told with the first message that has it, and told again when it changes."""

    host: str
    pid: int
    pane: int
    counts: NDArray[np.void] = field(metadata={"dtype": COUNT_DTYPE})
    sites: tuple[tuple[int, str, CodeKind], ...]


@dataclass(frozen=True, slots=True)
class Contradicted:
    """Places where the trace contradicted the code, since the last message."""

    host: str
    pid: int
    places: tuple[Contradiction, ...]


@dataclass(frozen=True, slots=True)
class PaneReport:
    """One worker's counts of one process in one pane. Additive: reports of one pane are summed. It stands for itself:
    a receiver that has begun anew needs nothing that was told before."""

    host: str
    pid: int
    worker: int
    pane: int  # tsc // ticks per pane
    profile: NDArray[np.void] = field(metadata={"dtype": PROFILE_DTYPE})
    names: tuple[tuple[int, str], ...]  # method ids of all rows → display name (pkg.Class.method)
    accounts: tuple[Account, ...]
    closed: bool = False  # this worker will say nothing more of this pane
    gauges: tuple[tuple[str, float], ...] = field(default=())
    contradictions: tuple[Contradiction, ...] = ()  # found since the worker's last report
    off_ticks: int = 0  # of the pane, in which the process was not traced on purpose
    recovered: NDArray[np.void] = field(  # as `profile`, and not in it: fillings of holes
        default_factory=lambda: np.zeros(0, PROFILE_DTYPE), metadata={"dtype": PROFILE_DTYPE}
    )
    guessed: NDArray[np.void] = field(  # in neither: ways through holes that nothing filled
        default_factory=lambda: np.zeros(0, PROFILE_DTYPE), metadata={"dtype": PROFILE_DTYPE}
    )
