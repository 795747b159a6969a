"""The byte ledger: the fate of every byte of every stream.

A worker's `Account` says of the bytes [start, end) of a stream how many were decoded and how many lie in holes of
which cause. The ledger joins accounts: `joined` is the offset below which every byte is decoded or in a hole. An
account that begins further on waits, because the account between may still be on its way (from a worker that has been
replaced since). After `patience` seconds a gap is settled: its bytes become a hole of the cause the ledger was told for
them, or else WORKER_DOWN. At the end `close` extends each stream to its `aux_head`. So at any time

    joined = decoded + bytes in holes        and after `close`        joined = aux_head        to the byte.

An account of bytes that are settled already is an overlap: it is counted, and never counts bytes twice. Where the
ledger cannot know whether a byte in an overlap was decoded, it does not claim it.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stages.messages import Account, Loss, StreamKey

MAX_OFFSET = 1 << 56
"""No stream is longer (at 1 GB/s it would take two years): keeps sums far from the end of 64 bits."""
_CAUSES = frozenset(Loss)
_FORGOTTEN = "", -1
"""In the place of processes."""


@dataclass(slots=True)
class Totals:
    """Sums over streams; `decoded + sum(holes.values()) == accounted`."""

    accounted: int = 0
    decoded: int = 0
    holes: Counter[Loss] = field(default_factory=Counter)
    """Bytes of the streams that were not decoded, by cause."""
    events: Counter[Loss] = field(default_factory=Counter)
    """How many holes, by cause."""
    unwritten: Counter[Loss] = field(default_factory=Counter)
    """Bytes that never entered a stream, by cause, as far as the source knows them."""
    overlaps: int = 0
    """Bytes accounted for a second time."""
    shed: int = 0
    """Of the decoded bytes, those of which only the addresses were read."""
    malformed: int = 0
    """Accounts that contradict themselves; their bytes become a gap."""

    def add(self, other: Totals) -> None:
        self.accounted += other.accounted
        self.decoded += other.decoded
        self.shed += other.shed
        self.overlaps += other.overlaps
        self.malformed += other.malformed
        for mine, theirs in (
            (self.holes, other.holes),
            (self.events, other.events),
            (self.unwritten, other.unwritten),
        ):
            mine.update(theirs)

    @property
    def lost(self) -> int:
        return sum(self.holes.values())


@dataclass(frozen=True, slots=True)
class Balance:
    """The final check of one stream, or of several of a process together (then `stream` has neither CPU nor thread)."""

    stream: StreamKey
    aux_head: int
    decoded: int
    holes: dict[Loss, int]
    shed: int = 0
    streams: int = 1

    def with_(self, other: Balance) -> Balance:
        """The sum."""
        holes = Counter(self.holes)
        holes.update(other.holes)
        return Balance(
            StreamKey(*self.stream[:2], -1, -1),
            self.aux_head + other.aux_head,
            self.decoded + other.decoded,
            dict(holes),
            self.shed + other.shed,
            self.streams + other.streams,
        )

    @property
    def error(self) -> int:
        """Bytes that do not add up; 0 unless more was accounted for than was ever written."""
        return self.decoded + sum(self.holes.values()) - self.aux_head


@dataclass(order=True, slots=True)
class _Waiting:
    start: int
    end: int
    arrived: float = field(compare=False)
    account: Account = field(compare=False)


@dataclass(slots=True)
class _Stream:
    joined: int = 0
    waiting: list[_Waiting] = field(default_factory=list)
    told: list[tuple[int, int, Loss]] = field(default_factory=list)
    restored: bool = False  # a gap before the next account was reported to the hub that was before
    totals: Totals = field(default_factory=Totals)


class Ledger:
    """`on_change(stream, cause or None, bytes, shed)` hears of every byte once: decoded (None; `shed` of them by their
    addresses only) or in a hole. `on_hole(stream, cause, count)` hears of every hole, also of one without bytes."""

    def __init__(
        self,
        patience: float = 2.0,
        *,
        max_streams: int = 65536,
        max_waiting: int = 256,
        on_change: Callable[[StreamKey, Loss | None, int, int], None] | None = None,
        on_hole: Callable[[StreamKey, Loss, int], None] | None = None,
    ) -> None:
        self._patience = patience
        self._max_streams = max_streams
        self._max_waiting = max_waiting
        self._on_change, self._on_hole = on_change, on_hole
        self._streams: dict[StreamKey, _Stream] = {}
        self._retired: dict[tuple[str, int], Totals] = {}
        self._restored = False
        self.refused = 0
        """Accounts of streams beyond `max_streams`: `close` finds their bytes to be a gap."""

    def account(self, account: Account, now: float) -> None:
        """Takes one account; `now` is any monotonic time in seconds."""
        if account.stream not in self._streams and len(self._streams) >= self._max_streams:
            self.refused += 1
            return
        stream = self._stream(account.stream)
        if stream.restored and account.start < account.end:
            stream.restored = False
            if account.start > stream.joined:
                self.tell(account.stream, stream.joined, account.start, Loss.HUB_DOWN)
        if not _sound(account):
            stream.totals.malformed += 1
            return
        for cause, count in account.events:
            self._hole(account.stream, stream, cause, count)
        for cause, size in account.never_written:
            stream.totals.unwritten[cause] += size
        if account.start == account.end:
            return  # events alone: bytes before them may still come from a slower stage
        if account.start > stream.joined:
            insort(stream.waiting, _Waiting(account.start, account.end, now, account))
            if len(stream.waiting) > self._max_waiting:
                self._fill(account.stream, stream, stream.waiting[0].start)
        else:
            self._take(account.stream, stream, account)
        self._absorb(account.stream, stream)

    def tell(self, key: StreamKey, start: int, end: int, cause: Loss) -> None:
        """If a gap is found in [start, end), `cause` is why."""
        stream = self._stream(key)
        stream.told = [t for t in stream.told if t[1] > stream.joined][-63:]
        stream.told.append((start, end, cause))

    def restored(self) -> None:
        """A former hub has died: the first gap of each stream, also of a stream not known yet, has the cause
        HUB_DOWN."""
        self._restored = True
        for stream in self._streams.values():
            stream.restored = True

    def settle(self, now: float) -> None:
        """Makes holes of the gaps that have waited long enough."""
        for key, stream in self._streams.items():
            while stream.waiting and min(w.arrived for w in stream.waiting) + self._patience <= now:
                self._fill(key, stream, stream.waiting[0].start)
                self._absorb(key, stream)

    def close(self, heads: Mapping[StreamKey, int]) -> list[Balance]:
        """The end of the streams in `heads` (their final aux_head): settles every gap, extends the stream to its
        head and forgets all but its sums. Returns one balance a stream, in order of keys."""
        balances = []
        for key in sorted(heads):
            stream = self._stream(key)
            while stream.waiting:
                self._fill(key, stream, stream.waiting[0].start)
                self._absorb(key, stream)
            if stream.restored:
                self.tell(key, stream.joined, heads[key], Loss.HUB_DOWN)
            if heads[key] > stream.joined:
                self._fill(key, stream, heads[key])
            totals = stream.totals
            balances.append(Balance(key, heads[key], totals.decoded, dict(totals.holes), totals.shed))
            self._retire(key)
        return balances

    def close_ended(self, heads: Mapping[StreamKey, int]) -> list[Balance]:
        """`close` of those streams in `heads`, whose producers have ended, of which every byte is accounted for."""
        whole = {key: head for key, head in heads.items() if key in self._streams and self._streams[key].joined >= head}
        return self.close(whole)

    def forget(self, host: str, pid: int) -> None:
        """Of a process that the hub has forgotten: its closed streams are from now on in the sums of all alone."""
        if (host, pid) in self._retired:
            self._retired.setdefault(_FORGOTTEN, Totals()).add(self._retired.pop((host, pid)))

    def totals(self, host: str | None = None, pid: int | None = None) -> Totals:
        """Sums over the streams of a process, or of all."""
        sums = Totals()
        for process, retired in self._retired.items():
            if (host, pid) in (process, (None, None)):
                sums.add(retired)
        for key, stream in self._streams.items():
            if (host, pid) in ((key.host, key.pid), (None, None)):
                sums.add(stream.totals)
        return sums

    def streams(self) -> dict[StreamKey, Totals]:
        """Sums of the streams that are not closed."""
        return {key: stream.totals for key, stream in self._streams.items()}

    def gaps(self) -> int:
        """Gaps that are waiting to be filled or settled."""
        return sum(1 for stream in self._streams.values() if stream.waiting)

    def _stream(self, key: StreamKey) -> _Stream:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream(restored=self._restored)
        return stream

    def _retire(self, key: StreamKey) -> None:
        self._retired.setdefault((key.host, key.pid), Totals()).add(self._streams.pop(key).totals)

    def _take(self, key: StreamKey, stream: _Stream, account: Account) -> None:
        """Accepts the part of `account` beyond `joined`, where it begins or which it overlaps."""
        overlap = min(account.end, stream.joined) - account.start
        stream.totals.overlaps += overlap
        rest = account.end - account.start - overlap
        if not rest:
            return
        decoded = max(0, account.decoded - overlap)
        self._charge(key, stream, None, decoded, min(account.shed, decoded))
        rest -= decoded
        for cause, size in account.holes:
            self._charge(key, stream, cause, min(size, rest))
            rest -= min(size, rest)
        stream.joined = account.end

    def _absorb(self, key: StreamKey, stream: _Stream) -> None:
        while stream.waiting and stream.waiting[0].start <= stream.joined:
            self._take(key, stream, stream.waiting.pop(0).account)

    def _fill(self, key: StreamKey, stream: _Stream, end: int) -> None:
        """A hole from `joined` to `end`, cut where the causes told for it begin and end."""
        at = stream.joined
        cuts = sorted({end, *(c for t in stream.told for c in t[:2] if at < c < end)})
        causes: list[Loss] = []
        for cut in cuts:
            cause = next((t[2] for t in reversed(stream.told) if t[0] <= at and cut <= t[1]), Loss.WORKER_DOWN)
            self._charge(key, stream, cause, cut - at)
            if not causes or causes[-1] is not cause:
                causes.append(cause)
            at = cut
        for cause in causes:
            self._hole(key, stream, cause, 1)
        stream.joined = end

    def _hole(self, key: StreamKey, stream: _Stream, cause: Loss, count: int) -> None:
        stream.totals.events[cause] += count
        if self._on_hole is not None:
            self._on_hole(key, cause, count)

    def _charge(self, key: StreamKey, stream: _Stream, cause: Loss | None, size: int, shed: int = 0) -> None:
        if size <= 0:
            return
        stream.totals.accounted += size
        if cause is None:
            stream.totals.decoded += size
            stream.totals.shed += shed
        else:
            stream.totals.holes[cause] += size
        if self._on_change is not None:
            self._on_change(key, cause, size, shed)


def _sound(account: Account) -> bool:
    named = (*account.holes, *account.never_written, *account.events)
    return (
        0 <= account.start <= account.end < MAX_OFFSET
        and 0 <= account.shed <= account.decoded
        and all(cause in _CAUSES and 0 <= size < MAX_OFFSET for cause, size in named)
        and account.decoded + sum(size for _, size in account.holes) == account.end - account.start
    )
