"""The messages between stages.

Every message is a frozen dataclass. Inside a group of stages it is passed by direct call; between groups the
codec (`streamer.transport.codec`) sends it as a ZeroMQ multipart: small fields in a msgpack header, every field
of type ``bytes`` or ``numpy.ndarray`` as a raw frame. So a field is either a small scalar (int, float, str, bool,
None, IntEnum), a key, a tuple of those, or one bulk array.

All times are TSC ticks (uint64) of the traced machine; wall time is made at the edge from `Clock`.
Offsets are positions in a stream, in bytes since it was opened: as `aux_head` counts them.
"""

from __future__ import annotations

from stages.messages.bytecodes import EVENT_DTYPE, KNOWN_DTYPE, METHOD_DTYPE, STACK_DTYPE, Bytecodes, FrameEvent
from stages.messages.clock import Clock, PtConfig
from stages.messages.keys import StreamKey, ThreadKey
from stages.messages.loss import Loss, LossMark
from stages.messages.paths import Paths
from stages.messages.pieces import PIECE_DTYPE, Pieces, Watermark
from stages.messages.recovered import FILLING_DTYPE, Recovered
from stages.messages.reports import (
    COUNT_DTYPE,
    PROFILE_DTYPE,
    Account,
    Break,
    CodeKind,
    Contradicted,
    Contradiction,
    Counts,
    PaneReport,
)
from stages.messages.statements import STATEMENT_DTYPE, WAY_DTYPE, StatementReport
from stages.messages.trace import (
    MARK_DTYPE,
    SIDE_DTYPE,
    U8,
    Arrival,
    Chunk,
    Decoded,
    EndOfStream,
    JitBatch,
    MarkKind,
    OffDuty,
    Segment,
    Sideband,
    SideKind,
    StreamEnd,
    StreamOpen,
    ThreadEnd,
    Tick,
)
from stages.messages.trees import TREE_DTYPE, TreeReport

__all__ = [
    "COUNT_DTYPE",
    "EVENT_DTYPE",
    "FILLING_DTYPE",
    "KNOWN_DTYPE",
    "MARK_DTYPE",
    "METHOD_DTYPE",
    "PIECE_DTYPE",
    "PROFILE_DTYPE",
    "SIDE_DTYPE",
    "STACK_DTYPE",
    "STATEMENT_DTYPE",
    "TREE_DTYPE",
    "U8",
    "WAY_DTYPE",
    "Account",
    "Arrival",
    "Break",
    "Bytecodes",
    "Chunk",
    "Clock",
    "CodeKind",
    "Contradicted",
    "Contradiction",
    "Counts",
    "Decoded",
    "EndOfStream",
    "FrameEvent",
    "JitBatch",
    "Loss",
    "LossMark",
    "MarkKind",
    "OffDuty",
    "PaneReport",
    "Paths",
    "Pieces",
    "PtConfig",
    "Recovered",
    "Segment",
    "SideKind",
    "Sideband",
    "StatementReport",
    "StreamEnd",
    "StreamKey",
    "StreamOpen",
    "ThreadEnd",
    "ThreadKey",
    "Tick",
    "TreeReport",
    "Watermark",
]
