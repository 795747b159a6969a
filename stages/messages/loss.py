"""The loss taxonomy."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Loss(IntEnum):
    """Why something was not seen. Never one number: each kind has its own counter and its own remedy."""

    OVERFLOW = 1  # OVF packet: the processor's internal buffer was full
    AUX_FULL = 2  # AUX record TRUNCATED: we drained the kernel's (or emulator's) AUX ring too late
    SIDEBAND_LOST = 3  # LOST record: the data ring (switches, mmaps) was full
    JIT_LOST = 4  # the agent's export ring was full (healed by replay)
    TRANSPORT = 5  # our own socket was full, or a message went missing (sequence gap)
    CAPTURE_DOWN = 6  # drained by a capture process that died before sending
    WORKER_DOWN = 7  # sent to a worker that died before reporting
    CODE_MISSING = 8  # the trace went to code of which no load was told
    CODE_PENDING = 9  # the code's load event did not arrive within the watermark
    DESYNC = 10  # the trace contradicts the code: wrong from the last confirmed point on
    BAD_PACKET = 11  # bytes that are no packet: skipped to the next PSB
    NO_SYNC = 12  # bytes before the first PSB of a stream (after a start or a loss)
    SHED = 13  # not followed on purpose, because we were behind: of these bytes only the addresses were read
    UNKNOWN_THREAD = 14  # no switch record says which thread these bytes belong to
    HUB_DOWN = 15  # reported to a hub that died before it noted it
    OFF_DUTY = 16  # tracing was switched off on purpose, to stay within the CPU budget
    UNEXPLAINED = 17  # followed, but which methods the interpreter ran was not looked for, because we were behind
    UNREAD = 18  # not even read, because we were further behind: it would have been seen too late


UNWRITTEN = frozenset({Loss.AUX_FULL, Loss.OFF_DUTY})
"""Trace that its producer never wrote: these leave no gap in the offsets."""

RESYNC = UNWRITTEN | {Loss.TRANSPORT, Loss.CAPTURE_DOWN, Loss.WORKER_DOWN, Loss.SHED, Loss.UNREAD}
"""Losses of trace bytes: the decoder's state is void behind them. Of others (switches, code) the packets are whole."""


class LossMark(NamedTuple):
    """A loss that lies just before stream position `offset`. `lost` counts bytes that never entered the stream
    (0 = the source does not know); they are not part of the offsets."""

    offset: int
    cause: Loss
    lost: int
    tsc: int
