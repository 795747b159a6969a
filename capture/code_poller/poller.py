"""Changes of a running JVM's code that come without an event, found by reading it from outside again and again.

Call sites are bound and bound again, inline caches and their stubs change, methods become not entrant, stubs are
filled in after they were told of. None of this is announced, and a decoder that does not know it walks wrong. So the
parts of the code cache of which the JIT export has told are read every tenth of a second (process_vm_readv(2): the
JVM is not stopped and notices nothing) and compared with their last contents; differences become CODE_PATCH records
(docs/jit-export.md) in the export file, with the time of the last reading that had the old bytes and of the first that
had the new ones.

A share of one CPU is all that may be spent (`share`). Reading costs by the page. So each look takes as many pages as
there is CPU time saved up for, those first that were not read for longest, where the time counts `HASTE` times for
pages in which something happened lately: most changes are made soon after code is there. Loads bring the next look
forward.

Not reported are: bytes of which nothing was told; padding (`jvm.code.diff`); operands that do not steer control flow
(the guard value of an nmethod's entry barrier, which a collector changes in all nmethods at once, and constants loaded
by mov); an nmethod of which most differs: something else is being put there, and the load event will tell.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from capture.code_poller.memory import MOST, PAGE, ProcessMemory, UnreadableError
from capture.live import tsc
from jvm.code.diff import GAP, PADDING, padding
from jvm.export import records as export
from jvm.export.parse import code_patch, iter_records
from jvm.intervals import Intervals

SECONDS = 0.1  # between two looks
SHARE = 0.02  # of one CPU
SOONEST = 0.02  # seconds between two looks when code was loaded
LATELY = 2.0  # seconds for which a page is read more often after a load into it, or a change
HASTE = 8
BATCH = MOST // PAGE  # pages in one system call
PROBE = 16  # bytes by which the code is found in memory
LONGEST = 32  # bytes in one run that are patched in an nmethod's instructions; more may be another one
MAX_CACHE = 1 << 31  # HotSpot's own limit (ReservedCodeCacheSize)
MAX_LOADED = 1 << 20

_TOLD = frozenset(
    (
        export.RecordType.CODE_CACHE,
        export.RecordType.INTERPRETER,
        export.RecordType.NMETHOD_LOAD,
        export.RecordType.NMETHOD_UNLOAD,
        export.RecordType.DYNAMIC_CODE,
        export.RecordType.BLOB,
        export.RecordType.CODE_PATCH,
        export.RecordType.VM_DEATH,
    )
)
_UNTOLD, _STUB, _NMETHOD = 0, 1, 2
_NEVER = np.uint64(0xFFFFFFFFFFFFFFFF)


class CodePoller:
    """One process's code. `learn` takes all records of its export in order, `look` gives the new ones."""

    def __init__(
        self,
        pid: int,
        *,
        seconds: float = SECONDS,
        share: float = SHARE,
        now: Callable[[], int] = tsc.now,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """`now` reads the TSC, `clock` seconds, `cpu` the CPU time of this thread in seconds."""
        self.pid, self.seconds, self.share = pid, seconds, share
        self.fault = ""
        self.counts: Counter[str] = Counter()
        self.spent = 0.0  # CPU seconds for looking, limited by `share`
        self.learning = 0.0  # CPU seconds for learning which code there is
        self._now, self._clock, self._cpu = now, clock, cpu
        self._memory = ProcessMemory(pid)
        self._low = self._high = 0
        self._shift: int | None = None  # address a of the JVM is a + shift in its process
        self._done = False
        self._news = False  # code was loaded since the last look
        self._last = -1.0
        self._saved = 0.0  # CPU seconds that may be spent
        self._page_cost = 5e-6
        self._loaded: Intervals[int] = Intervals()  # methods of nmethods, until those are unloaded or overlapped
        self._complete = 0

    # ---- records of the export

    def learn(self, data: export.Buffer) -> None:
        """Whole records. Records that cannot be parsed are left out."""
        began = self._cpu()
        try:
            for record in iter_records(data, only=_TOLD):
                self._learn(record)
        except export.ExportError:
            self.counts["bad_records"] += 1
        self.learning += self._cpu() - began

    def _learn(self, record: export.Record) -> None:
        match record:
            case export.CodeCache() if record.low < record.high:
                self._bounds(record.low & -PAGE, (record.high + PAGE - 1) & -PAGE)
            case export.Interpreter():
                self._told(record, record.start, record.code, _STUB)
            case export.NmethodLoad():
                self._news |= not record.flags & export.RecordFlag.REPLAYED
                if self._inside(record.address, record.end) and len(self._loaded) < MAX_LOADED:
                    self._evict(record.address, record.end)
                    self._loaded.put(record.address, record.end, record.method)
                    self._told(record, record.address, record.code, _NMETHOD)
                    if 0 <= record.stub_offset < len(record.code):  # many of those are filled in at once
                        self._what[record.address + record.stub_offset - self._low : record.end - self._low] = _STUB
            case export.NmethodUnload():  # which another thread than its follower's may tell: not of that one, then
                if record.method in (0, self._loaded.get(record.address)):
                    self._evict(record.address, record.address + 1)
            case export.DynamicCode() if len(record.code) and not _of_an_nmethod(record):
                self._evict(record.address, record.address + len(record.code))
                self._told(record, record.address, record.code, _STUB)
            case export.CodePatch():
                if self._inside(record.address, record.end):
                    self._put(record.address, record.code)
            case export.VmDeath():
                self._done = True
            case _:
                pass  # code that compilers scribble in is told of without bytes

    def _bounds(self, low: int, high: int) -> None:
        if (low, high) == (self._low, self._high) or not 0 < high - low <= MAX_CACHE:
            return  # told again, or nonsense
        size, pages = high - low, (high - low) // PAGE
        self._low, self._high = low, high
        self._loaded = Intervals()
        self._bytes = np.zeros(size, np.uint8)  # pages that stay zero take no memory
        self._what = np.zeros(size, np.uint8)
        self._seen = np.zeros(pages, np.uint64)  # TSC before the last reading, or (not read yet) when first told of
        self._touched = np.full(pages, -1e9)  # seconds; when something was told of it or found in it
        self._wanted = np.zeros(pages, np.bool_)
        self._probe = -1  # where some code is that hardly changes

    def _inside(self, start: int, end: int) -> bool:
        return self._low <= start < end <= self._high

    def _told(self, record: export.Record, start: int, code: memoryview, what: int) -> None:
        if not self._inside(start, start + len(code)):
            return
        lo, hi = start - self._low, start - self._low + len(code)
        self._put(start, code)
        if len(code) >= PROBE and (self._probe < 0 or isinstance(record, export.Interpreter)):
            self._probe = lo
        self._what[lo:hi] = what
        pages = slice(lo // PAGE, (hi - 1) // PAGE + 1)
        self._wanted[pages] = True
        self._touched[pages] = self._clock()
        self._seen[pages][self._seen[pages] == 0] = record.tsc

    def _put(self, start: int, code: memoryview) -> None:
        lo = start - self._low
        self._bytes[lo : lo + len(code)] = np.frombuffer(code, np.uint8)

    def _evict(self, start: int, end: int) -> None:
        """The code loaded into [start, end) is no more."""
        for address, behind in self._loaded.take(start, end).items():
            self._what[address - self._low : behind - self._low] = _UNTOLD

    # ---- readings of the memory

    def look(self) -> bytes:
        """CODE_PATCH records of the changes found, if it is time to look; never waits."""
        at = self._clock()
        if self._last < 0:
            self._last = at
        if self._done or self.fault or not self._high:
            return b""
        since = at - self._last
        if since < (SOONEST if self._news else self.seconds):
            return b""
        saved = min(self._saved + self.share * since, 5 * self.share * self.seconds)
        pages = int(saved / self._page_cost)
        if saved <= 0 or pages < min(BATCH, self._count()):
            return b""
        self._last, self._news = at, False
        began = self._cpu()
        try:
            records, read = self._look(pages, at)
        except UnreadableError as error:  # for good
            self.fault, records, read = f"{error}: changes of code go unseen", b"", 0
        spent = self._cpu() - began
        if read:
            self._page_cost += 0.2 * (spent / read - self._page_cost)
        self._saved = saved - spent
        self.spent += spent
        self.counts["looks"] += 1
        self.counts["pages"] += read
        return records

    def _count(self) -> int:
        return int(np.count_nonzero(self._wanted))

    def _look(self, most: int, at: float) -> tuple[bytes, int]:
        """Reads at most so many pages; records, and how many pages were read."""
        pages = np.flatnonzero(self._wanted)
        if not self._memory.alive():
            self._done = True
            return b"", 0
        if self._shift is None and (self._probe < 0 or not self._find()):
            return b"", 0
        shift = self._shift or 0
        if most < len(pages):
            age = (np.uint64(self._now()) - self._seen[pages]).astype(np.float64)
            age[self._touched[pages] > at - LATELY] *= HASTE
            pages = np.sort(pages[np.argpartition(age, -most)[-most:]])
        out: list[bytes] = []
        read = 0
        for first in range(0, len(pages), BATCH):
            batch = pages[first : first + BATCH]
            while len(batch):
                before = self._now()
                found = self._memory.read((batch * PAGE + self._low + shift).astype(np.uint64), PAGE)
                after = self._now()
                if self._memory.gone:
                    self._done = True
                    return b"".join(out), read
                if not len(found):  # that page is not mapped (any more)
                    self._seen[batch[0]] = before
                    batch = batch[1:]
                    continue
                have = batch[: len(found)]
                self._compare(have, found, after, out)
                self._seen[have] = before
                read += len(have)
                batch = batch[len(have) :]
        complete = int(self._seen[self._wanted].min(initial=_NEVER))
        if self._complete < complete < _NEVER:
            self._complete = complete
            out.append(code_patch(0, complete, self._now(), b""))
        return b"".join(out), read

    def _compare(self, pages: NDArray[np.int64], found: NDArray[np.uint8], after: int, out: list[bytes]) -> None:
        """`found` (n, PAGE) was read at (n,) `pages`, ascending."""
        mine, now = self._bytes.view(np.uint64), found.view(np.uint64).ravel()
        words = np.flatnonzero(now != mine.reshape(-1, PAGE // 8)[pages].ravel())
        word_at = pages[words // (PAGE // 8)] * (PAGE // 8) + words % (PAGE // 8)
        told = self._what.view(np.uint64)[word_at] != _UNTOLD
        mine[word_at[~told]] = now[words[~told]]  # so that it is not found again
        words, word_at = words[told], word_at[told]
        if not len(words):
            return
        new, old = found.reshape(-1, 8)[words], self._bytes.reshape(-1, 8)[word_at]
        word, byte = np.nonzero(new != old)
        row, at, code = words[word] // (PAGE // 8), word_at[word] * 8 + byte, new[word, byte]
        told = self._what[at] != _UNTOLD
        self._bytes[at[~told]] = code[~told]
        row, at, code = row[told], at[told], code[told]
        if not len(at):
            return
        breaks = (np.diff(at) > GAP) | (np.diff(row) != 0)
        first = np.flatnonzero(np.concatenate(([True], breaks)))
        begin, end = at[first], at[np.concatenate((first[1:], [len(at)])) - 1] + 1
        for i in np.flatnonzero((end - begin > LONGEST) & (self._what[begin] == _NMETHOD)).tolist():
            if self._overwritten(int(begin[i]), at, pages):
                self.counts["overwritten"] += 1
                self._evict(self._low + int(begin[i]), self._low + int(end[i]))
        good = self._what[begin] != _UNTOLD
        for i in np.flatnonzero(good & np.isin(code[first], PADDING)).tolist():
            offset = int(begin[i]) % PAGE
            good[i] = not padding(found[row[first[i]]], offset, offset + int(end[i] - begin[i]))
        which = good[np.cumsum(np.concatenate(([0], breaks)))]
        self._bytes[at[which]] = code[which]
        page, begin, end = pages[row[first[good]]], begin[good], end[good]
        self._touched[page] = self._clock()
        steers = self._steers(at[which], begin)
        self.counts["operands"] += int(np.count_nonzero(~steers))
        self.counts["patches"] += int(np.count_nonzero(steers))
        before = self._seen[page]
        for i in np.flatnonzero(steers).tolist():
            lo, hi = int(begin[i]), int(end[i])
            out.append(code_patch(self._low + lo, int(before[i]), after, self._bytes[lo:hi].tobytes()))

    def _overwritten(self, where: int, at: NDArray[np.int64], pages: NDArray[np.int64]) -> bool:
        """Is it other code than the nmethod around `where`? Then most of its instructions, as far as they lie in the
        `pages` that were read, are among the bytes `at` that differ. A long run alone does not say so: C1 patches
        several neighbouring instructions where classes are loaded one after the other."""
        found = self._loaded.holding(self._low + where)
        if found is None:  # it has just been evicted
            return False
        lo, hi = (address - self._low for address in found)
        read = np.zeros((hi - 1) // PAGE - lo // PAGE + 1, np.bool_)
        mine = pages[(pages >= lo // PAGE) & (pages <= (hi - 1) // PAGE)]
        read[mine - lo // PAGE] = True
        told = (self._what[lo:hi] == _NMETHOD) & read[np.arange(lo, hi) // PAGE - lo // PAGE]
        differ = at[np.searchsorted(at, lo) : np.searchsorted(at, hi)]
        return 2 * int(np.count_nonzero(told[differ - lo])) > int(np.count_nonzero(told))

    def _steers(self, at: NDArray[np.int64], begin: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) bytes that differ, ascending, of m runs that begin at (m,) bytes → which of the runs hold one that
        steers control flow. A run may be of several operands: two constants of one object each lie side by side."""
        if not len(begin):
            return np.zeros(0, np.bool_)
        first = np.flatnonzero(np.concatenate(([True], (np.diff(at) > 1) | np.isin(at[1:], begin))))
        ends = at[np.concatenate((first[1:], [len(at)])) - 1] + 1
        alone = ~operands(self._bytes, at[first], ends)
        return np.logical_or.reduceat(alone, np.searchsorted(at[first], begin))

    def _find(self) -> bool:
        """Where the code is in that process's own addresses; QEMU's user mode may map a program elsewhere."""
        address, want = self._low + self._probe, self._bytes[self._probe : self._probe + PROBE]
        for start in (self._low, *self._memory.mapped()):
            shift = start - self._low
            if self._looks_like(address + shift, want):
                self._shift = shift
                return True
        if self._memory.gone:
            self._done = True
            return False
        raise UnreadableError(f"process {self.pid}: its code is not found in its memory")

    def _looks_like(self, address: int, want: NDArray[np.uint8]) -> bool:
        if not 0 <= address < 1 << 64:
            return False
        found = self._memory.read(np.array([address], np.uint64), len(want))
        return len(found) > 0 and 2 * int(np.count_nonzero(found[0] == want)) >= len(want)


def _of_an_nmethod(record: export.Record) -> bool:
    return isinstance(record, export.Blob) and record.kind == export.BlobKind.NMETHOD


def operands(code: NDArray[np.uint8], begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) stretches [begin, end) → which lie in an operand that steers nothing: that of `cmp dword [r15+disp], imm32`
    in an entry barrier (JDK: BarrierSetAssembler::nmethod_entry_barrier) or of `mov r64, imm64`; but not if it could
    be a branch's displacement."""
    where = begin[:, None] + np.arange(-16, 0)
    near = np.where(where < 0, 0, code[np.maximum(where, 0)])  # the 16 bytes before
    branch, harmless = np.zeros(len(begin), np.bool_), np.zeros(len(begin), np.bool_)
    for k in range(8):  # the operand begins so many bytes before the stretch
        opcode, prefix = near[:, 15 - k], near[:, 14 - k]
        if k < 4:
            narrow = end - begin + k <= 4
            branch |= narrow & ((opcode == 0xE8) | (opcode == 0xE9) | ((prefix == 0x0F) & (opcode & 0xF0 == 0x80)))
            for modrm, disp in ((0x7F, 1), (0xBF, 4)):
                at = 16 - k - disp - 3
                compare = (near[:, at] == 0x41) & (near[:, at + 1] == 0x81) & (near[:, at + 2] == modrm)
                harmless |= narrow & compare
        harmless |= (end - begin + k <= 8) & ((prefix == 0x48) | (prefix == 0x49)) & (opcode & 0xF8 == 0xB8)
    return harmless & ~branch
