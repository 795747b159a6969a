"""The bytecodes of each thread, in the order in which they ran: as the truth has them, and as they were found.

A thread's bytecodes are (n,) int64: see `benchmarks.accuracy.methods`. The truth has the events ENTER and RETURN alone.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.methods import BITS, I64, Methods
from benchmarks.accuracy.truth import Event, TruthError, methods, threads
from benchmarks.recovery.control_flow import Filling, Run, Threads
from jvm.bytecode.icfg import Icfg
from jvm.bytecode.opcodes import KIND, OPCODE, Kind
from stages.messages import FrameEvent, Paths
from stages.messages.paths import Provenance

ENTER, RETURN, UPCALL = (-int(e) for e in (FrameEvent.ENTER, FrameEvent.RETURN, FrameEvent.UPCALL))
SEEN_UPCALL = -64
"""In the place of UPCALL, where the VM makes it for a bytecode whose resolution hides no steps (`unseen.py`)."""
HIDING = np.array([OPCODE[f"{what}{where}"] for what in ("get", "put") for where in ("static", "field")]
                  + [o for o, kind in enumerate(KIND.tolist()) if kind == Kind.CALL])  # fmt: skip
LAUNCHER = "sun/launcher/LauncherHelper"


class Truth(NamedTuple):
    """Of a thread, from when the VM is initialised."""

    sequence: I64  # with events
    entered: I64  # the method of each ENTER
    main: int  # the position from which on the program's `main(String[])` runs
    launcher: I64 = np.zeros(0, np.int64)  # methods of the class that runs last before it


def truth(directory: Path, numbers: Methods, name: str) -> Truth:
    """Of the thread of that name. Raises TruthError."""
    known = methods(directory)
    number = np.zeros(max(known, default=0) + 1, np.int64)
    for n, method in known.items():
        number[n] = numbers.number(*method)
    parts, entered = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for thread in threads(directory):
        if thread.name != name:
            continue
        for block in thread.blocks():
            if (block.event == Event.CUT).any():
                raise TruthError(f"{directory}: the logs have become too long")
            entries, exits = block.event == Event.ENTRY, block.event == Event.EXIT
            codes = np.where(entries, ENTER, RETURN)[entries | exits]
            parts.append(np.insert(number[block.method] << BITS | block.bci, block.at[entries | exits], codes))
            entered.append(number[block.of[entries]])
    sequence = np.concatenate(parts)
    mains = [number[n] for n, m in known.items() if (m.name, m.descriptor) == ("main", "([Ljava/lang/String;)V")]
    at = np.flatnonzero((sequence >= 0) & np.isin(sequence >> BITS, mains))
    launcher = np.array([number[n] for n, m in known.items() if m.holder == LAUNCHER], np.int64)
    return Truth(sequence, np.concatenate(entered), int(at[0]) - 1 if len(at) else 0, launcher)


class Executed:
    """Hears `Reconstruct`. `runs`, and `fillings` where rows of a `Paths` are recovered: of bytecodes, in the form of
    `benchmarks.recovery`; `whole`: with events, fillings in their places."""

    def __init__(self, numbers: Methods) -> None:
        self._numbers = numbers
        self.runs: Threads = defaultdict(list)
        self.fillings: dict[tuple[int, int], Filling] = {}
        self.whole: dict[int, list[tuple[int, I64]]] = defaultdict(list)  # by row, with the time when that ends
        self._last: dict[int, int] = {}  # node or event, of each thread
        self._message: Paths | None = None
        self._heard: dict[int, list[tuple[I64, I64]]] = defaultdict(list)

    def hear(self, message: Paths, tid: int, executed: list[NDArray[np.void]], icfg: Icfg) -> None:
        if message is not self._message:
            self.end()
            self._message = message
        nodes = icfg.graph().nodes
        for part in executed:
            node = part["node"].astype(np.int64)
            real = node >= 0
            upcalls = np.flatnonzero(node == UPCALL)
            by = np.append(node, self._last.get(tid, -1))[upcalls - 1]  # the bytecode, if one is under way
            node[upcalls[(by >= 0) & ~np.isin(nodes.opcode[np.maximum(by, 0)], HIDING)]] = SEEN_UPCALL
            self._last[tid] = int(part["node"][-1])
            of = nodes.method[node[real]]
            graph, which = np.unique(of, return_inverse=True)
            number = np.array([self._numbers.number(*icfg.selector(int(m))) for m in graph], np.int64)
            node[real] = number[which] << BITS | nodes.bci[node[real]]
            self._heard[tid].append((part["order"].copy(), node))

    def end(self) -> None:
        """Nothing more comes of the last message."""
        message, heard = self._message, self._heard
        self._message, self._heard = None, defaultdict(list)
        if message is None:
            return
        nothing = np.zeros(0, np.int64)
        flows = {tid: (*map(np.concatenate, zip(*parts, strict=True)),) for tid, parts in heard.items() if parts}
        filled = set[int]()
        for row in message.rows:
            tid = int(row["tid"])
            order, keys = flows.get(tid, (nothing, nothing))
            first, end = np.searchsorted(order, (row["order"], row["order_end"]))
            self.whole[tid].append((int(row["tsc_end"]), keys[first:end]))
            own = keys[first:end] >= 0
            bytecodes = keys[first:end][own]
            if row["provenance"] == Provenance.RECOVERED:
                filled.add(tid)
                self.fillings[tid, int(row["offset"])] = Filling(0, bytecodes, True)
                continue
            runs = self.runs[tid]
            if not row["continues"] or not runs or tid in filled:
                filled.discard(tid)
                runs.append(Run(int(row["offset"])))
            run = runs[-1]
            stops = message.stops[row["stop"] : row["stop_end"]]
            before = np.searchsorted(order[first:end][own], stops["order"])
            run.marks += [(int(t), run.size + int(n)) for t, n in zip(stops["tsc"], before, strict=True)]
            run.parts.append(bytecodes)
            run.size += len(bytecodes)

    def of(self, tid: int, since: int) -> I64:
        """The thread's bytecodes and events but for rows that end before that time."""
        return np.concatenate([np.zeros(0, np.int64), *(part for end, part in self.whole[tid] if end > since)])

    def when(self, tid: int, since: int, position: int) -> int:
        """The time when the row ends in which that position of `of` is."""
        for end, part in self.whole[tid]:
            if end > since:
                position -= len(part)
                if position < 0:
                    return end
        return since
