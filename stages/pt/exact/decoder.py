"""The flow of a whole trace in memory, batch by batch: `flow.run` with the decoding of instructions around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.code.snapshot import CodeView
from stages.messages import U8
from stages.pt import errata
from stages.pt import packets as p
from stages.pt.events.event import EVENT_DTYPE, STATE_DTYPE
from stages.pt.exact import flow
from stages.pt.exact.instructions import Instructions
from stages.pt.exact.walker import FLOW_DTYPE, FULL, MISSING
from stages.pt.packets import Records
from stages.pt.timing import RATES_DTYPE


class AddressFilter(NamedTuple):
    """An IA32_RTIT_ADDRn range, both ends inclusive."""

    first: int
    last: int
    stop: bool = False  # TraceStop range instead of a filter


@dataclass(frozen=True)
class Options:
    """How the trace was made, and which parts of it are wanted."""

    family: int = 0
    model: int = 0
    bits: int = 64  # code size until the trace tells it
    filters: tuple[AddressFilter, ...] = ()
    mtc_shift: int = 0
    nominal: int = 0
    ctc_num: int = 0
    ctc_den: int = 0
    keep_calibration: bool = False
    no_calibration: bool = False
    ticks: bool = False
    iflags: bool = False
    resync: bool = False  # after an error: at the next event that has an address, not only at the next PSB
    end_on_call: bool = False
    end_on_jump: bool = False
    blocks: bool = False

    def rates(self) -> Records:
        """RATES_DTYPE[1]"""
        rates = np.zeros(1, RATES_DTYPE)
        rates[0] = (
            self.mtc_shift, self.nominal, self.ctc_num, self.ctc_den, errata.of_cpu(self.family, self.model),
            self.no_calibration, self.keep_calibration,
        )  # fmt: skip
        return rates


class Batch(NamedTuple):
    """A piece of the flow. Overwritten by the next: copy what you keep."""

    ips: NDArray[np.uint64]  # executed instructions
    speculative: U8  # of each: inside a transaction
    events: Records  # EVENT_DTYPE; `index` counts into `ips`


class FlowDecoder:
    """Iterate over it for the flow, in batches."""

    def __init__(
        self, data: U8, code: CodeView | Instructions, options: Options = Options(), capacity: int = 1 << 16
    ) -> None:
        """`data` the whole trace, `code` the code (decoded: to be shared by traces), `capacity` of a batch in
        instructions."""
        self._data = p.frozen(data)
        self._instructions = code if isinstance(code, Instructions) else Instructions(code, options.bits)
        self._rates = options.rates()
        self._states = np.zeros(2, STATE_DTYPE)
        self._states["sync"] = -1
        self._states["iflags"] = options.iflags
        self._evs = np.zeros(2, EVENT_DTYPE)
        self._flow = np.zeros(1, FLOW_DTYPE)
        for field, value in (
            ("phase", flow.SYNC), ("last", -1), ("postponed", -1), ("block_last", -1), ("resync_at", -1),
            ("ticks", options.ticks), ("end_on_call", options.end_on_call), ("end_on_jump", options.end_on_jump),
            ("resync", options.resync), ("tell_blocks", options.blocks),
        ):  # fmt: skip
            self._flow[field] = value
        self._filters = np.array([(2 if f.stop else 1, f.first, f.last) for f in options.filters], np.uint64).reshape(
            -1, 3
        )
        self._out = np.zeros(max(capacity, 1), np.uint64)
        self._speculative = np.zeros(len(self._out), np.uint8)
        self._events = np.zeros(max(capacity // 16, 16), EVENT_DTYPE)
        self._instruction_count = 0

    def __iter__(self) -> Iterator[Batch]:
        state = self._flow[0]
        code = self._instructions
        while True:
            state["known"] = code.count
            status = flow.run(
                self._data, self._states, self._evs, self._rates[0], self._flow, code.table, code.slots, self._filters,
                self._out, self._speculative, self._events,
            )  # fmt: skip
            if status == MISSING:
                code.add(int(state["missing"]), int(state["mode"]))
                continue
            n, events = int(state["out"]), int(state["events"])
            state["out"] = state["events"] = 0
            self._instruction_count += n
            if n or events:
                yield Batch(self._out[:n], self._speculative[:n], self._events[:events])
            if status != FULL:
                return

    def statistics(self) -> dict[str, int]:
        return {
            "instructions": self._instruction_count,
            "blocks": int(self._flow[0]["blocks"]),
            "code_instructions": self._instructions.count,
        }
