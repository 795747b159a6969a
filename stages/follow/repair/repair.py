"""The answer to a contradiction: find what the code must have been (`stages.follow.repair.backtracking_search`), and
make it so.

The walker's code is one for all threads of a process, and a choice for one holds for all, until a view of the code
image or another contradiction says otherwise. So the trace dates the patches, and more exactly than reading the code
does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from jvm.calls.call_sites import CALL_SIZE
from jvm.code.image import CodeImage
from jvm.code.version import FOREVER
from stages.follow.cfg.graph import DISABLED_BLOCK, FIRST_BLOCK, G_FILTER_HI, G_FILTER_LO
from stages.follow.flow import Flow
from stages.follow.repair.backtracking_search import Choice, Found, Position, choose
from stages.follow.repair.call_patching import Bindings, Branch
from stages.follow.repair.call_targets import Callees
from stages.follow.repair.candidates import EXACT, MADE
from stages.follow.repair.effort import Effort, Purse
from stages.follow.repair.guesses import Guesses
from stages.follow.repair.image_entries import ImageEntries
from stages.follow.repair.known import WINDOW, Known
from stages.follow.repair.recent import Recent
from stages.follow.repair.resolved_calls import ResolvedCalls
from stages.follow.repair.unpatched import Unpatched
from stages.follow.walk.segment_walk import NEVER, Piece
from stages.follow.walk.state import (
    B_NO_RETURN,
    M_BLOCK,
    M_NOT64,
    M_OVF,
    M_PSB,
    X_AT,
    X_BASE,
    X_DEPTH,
    X_FUP,
    X_LAST_IP,
    X_MODE,
    X_PENDING,
    X_TOP,
)  # fmt: skip
from stages.messages import Segment, ThreadKey
from stages.pt.return_stack import DEPTH, SLOTS

I64 = NDArray[np.int64]

CONTENTS = 4  # kept of an instruction
RARELY = 256  # contradictions of the same packets behind one address, of which one is tried at least
AHEAD = 8  # bytes behind a contradiction by which it is told from others
PLACES = 1 << 14  # instructions of which contents are kept


class Repair:
    """`Flow.search` for one process."""

    def __init__(self, flow: Flow, image: CodeImage, slack: int) -> None:
        """`slack`: ticks by which the times of the code image may be wrong."""
        self._flow, self._image, self._slack = flow, image, slack
        self._callees = Callees(image)
        self._entries = ImageEntries(image)
        self._resolved = ResolvedCalls(image, self._callees)
        self._bindings = Bindings(image, self._callees, flow.bytes_at, slack // MADE)
        self._unpatched = Unpatched(image)
        self.guesses = Guesses(image, self._callees, self._resolved, flow.walk_anew)
        self._known: Known | None = None
        self._raw: tuple[Known, I64] | None = None  # of the last search
        self._known_of = -1, -1  # epochs of the image and of its entry state
        self._stood = -1, -1
        self._of_image: Known
        self._replaced = Recent(WINDOW, np.uint8, CONTENTS, PLACES)  # contents, by choices
        self._failed: dict[int, tuple[int, int]] = {}  # searches made in vain: passed over, and to be
        self._segment: Segment
        self._times: tuple[I64, I64] | None = None  # positions in it and times, ascending
        self._resolved_to = 0  # position in the stream
        self._read = 0  # all code was read since
        self._ends = 0  # of the entry state of the image, when last looked at
        self._shut: set[int] = set()  # versions whose entry has been shut, as long as they are kept
        self._shutting: list[tuple[int, int]] = []  # when the others will be, and their ids; the last first
        self._purse = Purse()
        self.counts: Counter[str] = Counter()
        flow.search, flow.call_updated = self, self.call_updated

    def prepare(self) -> Iterator[None]:
        """In steps: makes the next search one that does not have to read much code first."""
        yield from self._callees.prepare()
        self.guesses.settle()

    def begin(self, segment: Segment) -> None:
        """The pieces that follow are in this segment."""
        self._segment, self._times = segment, None
        self._resolved_to = -1
        self._purse.fill(len(segment.data))
        certain = segment.tsc - self._slack // EXACT
        self._restore(certain)
        self._shut_entries(certain)

    def _time(self, at: int) -> int:
        """About when the byte at stream position `at` was written."""
        s = self._segment
        if self._times is None:  # most segments are not asked
            marks = s.marks[s.marks["tsc"] > 0]
            ends = np.array([s.offset, s.offset + len(s.data)], np.int64)
            tsc = (np.array([s.tsc], np.uint64), marks["tsc"], np.array([s.tsc_end], np.uint64))
            self._times = (
                np.concatenate((ends[:1], marks["offset"].astype(np.int64), ends[1:])),
                np.concatenate(tsc).astype(np.int64),
            )
        return int(np.interp(at, *self._times))

    def _restore(self, tsc: int) -> None:
        """A patch made before all code was read once more is there no more, if it was not read."""
        read = self._image.read_until(max(tsc, 0))
        if read > self._read:
            self._read = read
            self.counts["restored"] += self._flow.restore(read)

    def _shut_entries(self, tsc: int) -> None:
        """A version that is certain not to be entrant at `tsc` has the jump at its verified entry that makes it so."""
        entry_state = self._image.entry_state
        if self._ends != entry_state.changes:
            self._ends = entry_state.changes
            self._shut &= entry_state.ended.keys()
            ended = ((v.not_entrant, v.id) for v in entry_state.ended.values() if v.id not in self._shut)
            self._shutting = sorted(ended, reverse=True)
        while self._shutting and self._shutting[-1][0] < tsc:
            version = self._image.version(self._shutting.pop()[1])
            if version is None:
                continue
            self._shut.add(version.id)
            for jump in self._bindings.refusal(version):
                if version.since <= tsc < version.until and self._flow.bytes_at(jump.address, 1) != jump.code[:1]:
                    self.counts["shut"] += self._patch(jump, tsc)

    def take_resolved(self, shown: NDArray[np.void]) -> None:
        """`shown`: RESOLVED_DTYPE, of this segment; the rows taken before are left out."""
        new = shown[shown["offset"] > self._resolved_to]
        if len(new):
            self._resolved_to = int(new["offset"].max())
            tsc = int(self._segment.tsc_end)
            pairs = zip(new["returns"].tolist(), new["target"].tolist(), strict=True)
            self._resolved.add([pair for pair in pairs if not self._leads_elsewhere(*pair, tsc)], tsc)

    def _leads_elsewhere(self, returns: int, target: int, tsc: int) -> bool:
        """Whether a resolver's jump cannot be that of the call before `returns`: the walk has been wrong before."""
        known = returns >= CALL_SIZE and target != 0
        return known and self._callees.names_other(returns - CALL_SIZE, target, tsc, self._slack)

    def __call__(self, thread: ThreadKey, piece: Piece) -> bool:
        position = self._position(piece)
        if position is None:
            self.counts["not_searched"] += 1
            return False
        if piece.cause == B_NO_RETURN and not len(position.stack):
            self.counts["no_stack"] += 1
            return False
        end = piece.contradicted + AHEAD
        packets = hash((position.here, piece.buffers.data[piece.position : end].tobytes()))  # they may be long
        passed, most = self._failed.get(packets, (0, 0))
        if passed < most:
            self._failed[packets] = passed + 1, most
            self.counts["given_up"] += 1
            return False
        self.counts["searches"] += 1
        self.take_resolved(piece.resolved)
        goal = piece.contradicted  # before the walk stands elsewhere
        effort = self._purse.lend()
        if effort.over():
            self.counts["gave_up"] += 1
            piece.gave_up.append(goal)
            return False
        tsc = self._time(piece.offset + goal)
        known = self.known(tsc)
        found = self._search(piece, position, goal, known, tsc, effort)
        found = found or self._search_earlier(piece, goal, known, tsc, effort)
        self._purse.pay(effort)
        self.counts["effort"] += effort.spent
        if found is None:
            if effort.over():
                piece.gave_up.append(goal)
            self.counts["gave_up" if effort.over() else "not_found"] += 1
            if len(self._failed) >= PLACES:
                self._failed.clear()
            self._failed[packets] = 0, min(2 * most + 1, RARELY)
            return False
        self._failed.pop(packets, None)
        for choice in found.choices:
            self._make(piece, choice)
        return True

    def call_updated(self, piece: Piece) -> bool:
        """`Flow.call_updated`: the call is changed now, not when the next contradiction asks for it."""
        return self._update(piece, piece.resolved[-1])

    def _update(self, piece: Piece, row: np.void) -> bool:
        """A call is bound as that jump of a resolver says; False: the jump is another call's."""
        tsc = self._time(int(row["offset"]))
        if self._leads_elsewhere(int(row["returns"]), int(row["target"]), tsc):
            self.counts["doubted"] += 1
            return False
        self.take_resolved(piece.resolved)
        for branch in self._bindings.of(int(row["returns"]), int(row["target"]), int(row["by"]), tsc):
            if self._flow.bytes_at(branch.address, len(branch.code)) != branch.code and self._patch(branch, tsc):
                piece.settle()
                self.counts["call_updated"] += 1
        return True

    def _search(
        self, piece: Piece, position: Position, goal: int, known: Known, tsc: int, effort: Effort
    ) -> Found | None:
        limits = int(self._flow.tables.g[G_FILTER_LO]), int(self._flow.tables.g[G_FILTER_HI])
        data, code = piece.buffers.data, self._flow.code.words()
        if self._raw is None or known is not self._raw[0]:
            self._raw = known, known.raw(self._raw)
        return choose(data, piece.size, goal, position, code, limits, self._raw[1], tsc, self._slack, effort)

    def _search_earlier(self, piece: Piece, goal: int, known: Known, tsc: int, effort: Effort) -> Found | None:
        """A wrong way may fit as far as the next address, and show only later its effect on the return stack. If
        something is found, the walk stands earlier then."""
        here, early = piece.state, piece.early()
        if early is None:
            return None
        piece.state = early
        position = self._position(piece)
        found = self._search(piece, position, goal, known, tsc, effort) if position is not None else None
        if found is None:
            piece.state = here
        else:
            self.counts["earlier"] += 1
        return found

    def _make(self, piece: Piece, choice: Choice) -> None:
        """Walk to where it holds, and make it so. What resolvers on the way have bound is made so, too: else the next
        choice is made where nothing is known of it."""
        if choice.at > piece.position:
            before = len(piece.resolved)
            self._flow.run(piece, choice.at, trap=NEVER)  # the doubts on the way have been decided
            for row in piece.resolved[before:]:
                self._update(piece, row)
        tsc = self._time(piece.offset + choice.at)
        if not self._patch(Branch(choice.address, choice.code), tsc):
            self.counts["nowhere"] += 1
            return
        piece.settle()
        self.counts["chosen_inferred" if choice.inferred else "chosen"] += 1

    def _patch(self, branch: Branch, tsc: int) -> bool:
        """Make it so, if there is code; the replaced bytes may come back."""
        content = self._flow.bytes_at(branch.address, WINDOW).ljust(WINDOW, b"\0")
        self._replaced.add(branch.address, np.frombuffer(content, np.uint8))
        try:
            self._flow.patch(branch.address, branch.code, tsc)
        except ValueError:
            return False
        return True

    def _position(self, piece: Piece) -> Position | None:
        """Of the walker; None: in the middle of something that a search does not follow."""
        x, ring = piece.thread.x, piece.thread.ring
        mode, at = int(x[X_MODE]), int(x[X_AT])
        if (
            x[X_PENDING] > 1
            or x[X_FUP]
            or mode & (M_OVF | M_NOT64 | M_BLOCK)
            or (at < FIRST_BLOCK and at != DISABLED_BLOCK)
        ):
            return None
        depth = min(int(x[X_DEPTH]), DEPTH)
        slots = (int(x[X_TOP]) - np.arange(depth)[::-1]) & (SLOTS - 1)
        address = self._flow.tables.address
        here = 0 if at == DISABLED_BLOCK else int(address[at])
        stack = address[ring[slots]]
        base = min(int(x[X_BASE]), depth)
        return Position(piece.position, int(x[X_LAST_IP]), here, bool(mode & M_PSB), stack, base)

    def known(self, tsc: int) -> Known:
        """All that may be tried at a time."""
        epochs = self._image.epoch, self._image.entry_state.changes
        if self._known is None or self._known_of != epochs:
            self._known_of = epochs
            known = Known.of(self._image.uncertain(0, FOREVER), blobs=self._image.view(tsc).blob)
            jumps = self._flow.jumps
            stood = self._image.census, self._image.entry_state.changes
            if self._stood != stood:
                self._stood, self._of_image = stood, self._unpatched.add(self._entries.add(known))
            told = self._of_image
            self._known = known._replace(
                entry=told.entry, refused=told.refused, entry_point=told.entry_point, opens=told.opens,
                closes=told.closes, body=told.body, body_end=told.body_end, body_method=told.body_method,
                refusal=told.refusal, inline=told.inline, resolver=told.resolver,
                unpatched=told.unpatched, unpatched_to=told.unpatched_to, unpatched_until=told.unpatched_until,
                waiting=told.waiting, waiting_content=told.waiting_content,
                calls=self._callees.now(),
                jump=jumps.ranges.reshape(-1),
                interpreter=jumps.interpreter,
                method_entries=jumps.entries,
            )  # fmt: skip
        branches, replaced = self._resolved.branches, self._replaced
        return self._known._replace(
            resolved=branches.address.view(np.int64),
            branch=branches.value,
            place=replaced.address.view(np.int64),
            content=replaced.value,
        )
