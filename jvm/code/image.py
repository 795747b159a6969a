"""The machine code of a JVM as it changes in time.

Every blob (nmethod, stub, adapter, codelet) is a `Version` with the time [since, until) in which its bytes were
valid at its addresses. The sources say less than that, so:

- A load is told late: the Service Thread posts it after the code may already run. So a version reaches back from its
  load to the end of the version that stood there before it, but by `lateness` ticks at most; code that was *found*
  (REPLAYED) reaches back without that limit, and so does code told of until the JVM's beginning is over (`settled`):
  code compiled before VMInit is told after it. The limit makes a lookup for time t depend on nothing told after t +
  lateness: a stage that waits until `complete_until` has passed that point gets, live, the answer that a replay of the
  recording gives.
- An unload may be lost: a new load ends every version that it overlaps (`evicted`). An unloaded version stays known
  until it is overlapped or `forget_before` drops it, because a stream may still be behind.
- Replays and re-read spools tell the same again: same place, size and method is the same version. Bytes that differ
  then, or that CODE_PATCH says differ, were patched in place: `jvm.code.revisions`.
- Stubs may nest (`jvm.code.standing`): the innermost answers (`jvm.code.register`).

Here is each kind of record, and the changes that it makes to what is kept; `jvm.code.known` answers about that.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from jvm import names
from jvm.bytecode.classes import Classes
from jvm.calls.stubs import Stub, stub_of
from jvm.code import diff as codediff
from jvm.code.codelets import Codelets, label
from jvm.code.debug_info import DebugInfo
from jvm.code.known import KnownCode
from jvm.code.sites import SiteKind, Sites, compiled_kind, stub_label
from jvm.code.version import FOREVER, Kind, Version
from jvm.export import records as export
from jvm.export.parse import iter_records
from jvm.export.unowned import Unowned
from jvm.threads import ThreadNames

CALL_STUB = "[stub] call_stub"
"""The name of the stub by which the VM calls Java."""
MAX_BLOB = 1 << 28
"""Largest blob believed, in bytes; the whole code cache is 2 GiB at most and 240 MiB by default."""
UNKNOWN_METHOD = "[unknown method]"
INTERPRETER = "[interpreter]"


_OF_CODE = frozenset(export.RecordType) - {export.RecordType.STACK, export.RecordType.MOUNT}
_FOUND = (export.Codelet, export.Interpreter, export.Blob)  # told of as found, so always there before


class CodeImage(KnownCode):
    """The code of one process. Fed with export records in order; their content never makes it raise."""

    def __init__(self, lateness: int | None = None, sites: Sites | None = None) -> None:
        """`lateness`: ticks that a load may be told late; None: any."""
        super().__init__(lateness, sites)
        self.codelets = Codelets()
        self.jdk = 0  # the JVM's feature release; 0: not known
        self.methods: dict[int, str] = {}
        self.classes = Classes()
        self.threads = ThreadNames()
        self.counts: Counter[str] = Counter()
        self.complete_until = 0
        self._retired: list[Version] = []  # overlapped or replaced; kept until forget_before
        self._unowned = Unowned()
        self._unloaded: list[tuple[int, int]] = []  # (time, class) that are still to be forgotten
        self._replayed: set[int] | None = None  # addresses of the nmethods in the replay under way
        self._replay_began = 0

    # Telling

    def feed(self, data: export.Buffer, complete_until: int = 0) -> None:
        """Whole records, and the time before which everything has now been told. Where they cannot be parsed the
        rest of the buffer is left out and `counts["bad_records"]` says so."""
        try:
            for record in iter_records(data, only=_OF_CODE):
                self.apply(record)
        except export.ExportError:
            self.counts["bad_records"] += 1
        self.complete_until = max(self.complete_until, complete_until)

    def apply(self, record: export.Record) -> None:
        match record:
            case export.AgentInfo():
                number = re.match(r"\d+", record.vm_version)
                self.jdk = int(number[0]) if number else 0
            case export.Method():
                self.methods[record.id] = names.display(record.class_signature, record.name)
                self.classes.add(record)
                if unused := self._unowned.told(record):
                    self.classes.remove_method(unused)
                    self.methods.pop(unused, None)
            case export.Class() | export.ClassDef():
                self.classes.add(record)
            case export.NmethodLoad():
                self._load(record)
            case export.NmethodUnload():
                self._unload(record)
            case export.NmethodState():
                self._state(record)
            case export.CodePatch():
                self._patch(record)
            case export.Blob():
                if record.kind != export.BlobKind.NMETHOD:  # those are told by loads, which say more
                    self._other(Kind.BLOB, record, record.address, record.end, stub_label(record.name), record.code)
            case export.DynamicCode(name="Interpreter"):
                self._other(Kind.INTERPRETER, record, record.address, record.end, INTERPRETER, record.code)
            case export.DynamicCode():
                self._other(Kind.DYNAMIC, record, record.address, record.end, stub_label(record.name), record.code)
            case export.Interpreter():
                self._other(Kind.INTERPRETER, record, record.start, record.end, INTERPRETER, record.code)
            case export.Codelet():
                self.codelets.add(record)
                self._other(Kind.CODELET, record, record.start, record.end, label(record), memoryview(b""))
            case export.DispatchTable():
                self.census += self.codelets.add_table(record)
            case export.ClassUnload():
                self._unloaded.append((record.tsc, record.id))
            case export.Overflow():
                self.counts["overflows"] += 1
                self._replayed = None  # the replay under way, if any, is not whole
            case export.ThreadStart():
                found = bool(record.flags & export.RecordFlag.REPLAYED)
                self.threads.start(record.os_tid, record.name, 0 if found else record.tsc)
                if found:  # these stand behind the code that was found
                    self._prime(record.tsc)
            case export.ThreadEnd():
                self.threads.end(record.os_tid, record.tsc)
            case export.ReplayBegin():
                self._replayed, self._replay_began = set(), record.tsc
            case export.ReplayEnd():
                self._replay_end(record.tsc)
            case _:
                pass

    def _load(self, record: export.NmethodLoad) -> None:
        start, end = record.address, record.end
        if not self._believable(start, end):
            return
        if self._replayed is not None:
            self._replayed.add(start)
        old = self._standing.nmethods_in(start, end)
        if len(old) == 1 and self._told_before(old[0], record):
            return
        if any(record.tsc < v.loaded for v in old):
            self.counts["stale"] += 1  # a spool read again tells of code replaced since
            return
        self.counts["loads"] += 1
        self._retire(old + self._standing.bury(start, end), record.tsc)
        since = self._since(record, start, end)
        version = Version(self._register.new_id(), Kind.NMETHOD, start, end, UNKNOWN_METHOD, record.tsc, since)
        version.method, version.level, version.compile_id = record.method, record.level, record.compile_id
        version.entry, version.verified_entry, version.osr_entry = record.entry, record.verified_entry, record.osr_entry
        version.debug = DebugInfo.of(record)
        version.site_kind = compiled_kind(record.level, record.blob != 0)
        self._standing.place(version)
        self._add(version, record.code)
        replayed = bool(record.flags & export.RecordFlag.REPLAYED)
        self.entry_state.loaded(version, np.frombuffer(record.code, np.uint8), replayed)
        self._resolve(version)

    def _told_before(self, v: Version, record: export.NmethodLoad) -> bool:
        """Is this load the one that made `v`, told again? Then take in its new parts."""
        same = (v.start, v.end, v.method) == (record.address, record.end, record.method)
        if not same or (v.compile_id and record.compile_id and v.compile_id != record.compile_id):
            return False
        if v.until != FOREVER:
            if record.tsc > v.until:
                return False
            self.counts["repeated"] += 1
            return True
        code = np.frombuffer(record.code, np.uint8)
        if not np.array_equal(code, self.code(v)):
            identified = v.compile_id and record.compile_id  # a JVM gives each once
            if not identified and not record.flags & export.RecordFlag.REPLAYED and record.tsc > v.loaded:
                return False  # a new load at the old place: its unload was lost
            if record.tsc > v.loaded:
                self._differs(v, code, record.tsc)
        self.counts["repeated"] += 1
        if v.unresolved:
            self._resolve(v)
        return True

    def _unload(self, record: export.NmethodUnload) -> None:
        v = self._standing.nmethod_from(record.address)
        if v is None or v.loaded > record.tsc or record.method not in (0, v.method):
            self.counts["unknown_unloads"] += 1
        elif v.until == FOREVER:
            self.counts["unloads"] += 1
            self._end(v, record.tsc)

    def _state(self, record: export.NmethodState) -> None:
        v = self._standing.nmethod_holding(record.address)
        if v is None or record.compile_id not in (0, v.compile_id):
            self.counts["unknown_states"] += 1
        elif record.state == export.NmethodStatus.NOT_ENTRANT:
            self.entry_state.end(v, record.tsc)

    def _other(self, kind: Kind, record: export.Record, start: int, end: int, name: str, code: memoryview) -> None:
        if not self._believable(start, end):
            return
        old = self._standing.stub(start, kind)
        if old is not None and (old.end, old.name) == (end, name):
            if record.tsc > old.loaded:
                self._differs(old, np.frombuffer(code, np.uint8), record.tsc)
            return
        gone = self._standing.nmethods_in(start, end) + ([] if old is None else [old])
        if any(record.tsc < v.loaded for v in gone):
            self.counts["stale"] += 1
            return
        self._retire(gone, record.tsc)
        since = self._since(record, start, end)
        version = Version(self._register.new_id(), kind, start, end, name, record.tsc, since)
        if kind in (Kind.INTERPRETER, Kind.CODELET):
            version.site_kind = SiteKind.INTERPRETED
        self._standing.place(version)
        self._add(version, code)
        if stub_of(version) == Stub.INLINE_CACHE:
            self._revisions.inline = version

    def _differs(self, v: Version, code: NDArray[np.uint8], tsc: int) -> None:
        """`v` was told again at `tsc`: bytes that differ have been patched since."""
        known = self.code(v)
        code = code[: len(known)]
        edits = codediff.runs(known[: len(code)], code)
        for begin, end in edits:
            self._revisions.edit(v, begin, code[begin:end], max(v.loaded, v.patched), tsc)
            self.entry_state.seen(v, begin, code[begin:end], tsc)
        if edits:
            self.counts["patched"] += 1
            self._changed()

    def _patch(self, record: export.CodePatch) -> None:
        if not len(record.code):
            if not self._read or record.before > self._read[-1]:
                self._read.append(record.before)
            return
        if record.before >= record.after:
            self.counts["bad_patches"] += 1
            return
        place = record.address, record.end
        found = self._standing.nmethods_in(*place) + self._standing.stubs_in(*place)
        found = [v for v in found if v.loaded < record.after <= v.until and v.data_size]
        self.counts["patches" if found else "patches_nowhere"] += 1
        code = np.frombuffer(record.code, np.uint8)
        for v in found:
            offset = record.address - v.start
            closes = self.entry_state.seen(v, offset, code, record.after)
            self._revisions.edit(v, offset, code, record.before, record.after, v.not_entrant if closes else FOREVER)
        if found:
            self._changed()

    @property
    def begins(self) -> bool:
        """Whether the JVM has been seen from its beginning: the interpreter is told, and by no replay under way."""
        return bool(self.codelets) and self._replayed is None

    def _replay_end(self, tsc: int) -> None:
        if self._replayed is not None:
            for v in self._standing.nmethods:
                if v.until == FOREVER and v.loaded < self._replay_began and v.start not in self._replayed:
                    self.counts["healed_unloads"] += 1
                    self._end(v, tsc)
        self._replayed = None
        self._prime(tsc)

    def _prime(self, tsc: int) -> None:
        if self.codelets:
            self.primed_at = min(self.primed_at, tsc)

    def forget_before(self, tsc: int) -> None:
        """No time before `tsc` will be asked about again: drops versions that had ended by then, patches made before,
        and classes, methods and threads that were gone."""
        self._forget_classes(tsc)
        self.threads.forget_before(tsc)
        ended = [v for v in (*self._retired, *self._standing.nmethods) if v.until <= tsc]
        if not self._revisions.drop(ended, tsc) and not ended:
            return
        for v in ended:
            self.entry_state.gone(v)
        self._register.drop(ended)
        while len(self._read) > 1 and self._read[1] <= tsc:
            self._read.popleft()
        self._retired = [v for v in self._retired if v.until > tsc]
        self._standing.forget_before(tsc)
        self._revisions.compact(self._register.by_id)
        self._register.compact()
        (self._registered if ended else self._changed)()

    def _forget_classes(self, tsc: int) -> None:
        for _, class_id in (gone for gone in self._unloaded if gone[0] <= tsc):
            for method in self.classes.remove(class_id):
                self.methods.pop(method, None)
        self._unloaded = [gone for gone in self._unloaded if gone[0] > tsc]

    def statistics(self) -> dict[str, int | float]:
        return {
            **{f"code_{name}": n for name, n in sorted(self.counts.items())},
            "code_versions": len(self._register.by_id),
            "code_methods": len(self.methods),
            "code_classes": len(self.classes),
            "code_retired": len(self._retired),
            "code_bytes": self._revisions.size,
            "code_epoch": self.epoch,
            "code_detail": self._detail.share,
        }

    # Inside

    def _believable(self, start: int, end: int) -> bool:
        if 0 < end - start <= MAX_BLOB and end <= FOREVER:
            return True
        self.counts["bad_blobs"] += 1
        return False

    def _since(self, record: export.Record, start: int, end: int) -> int:
        """From when on a blob told by `record` is taken to have stood at [start, end)."""
        floor = self._register.ended_before(record.tsc, start, end)
        if record.flags & export.RecordFlag.REPLAYED or isinstance(record, _FOUND) or not self.settled(record.tsc):
            return floor
        assert self.lateness is not None
        return max(floor, record.tsc - self.lateness)

    def _retire(self, versions: list[Version], tsc: int) -> None:
        """These give way to a load told at `tsc`."""
        for v in versions:
            if v.until == FOREVER:
                self.counts["evicted"] += 1
                self._end(v, tsc)
            self._retired.append(v)

    def _resolve(self, v: Version) -> None:
        """Names and sites of an nmethod and of the methods inlined in it, all of its own kind."""
        assert v.debug is not None
        v.unresolved = False
        v.name = self._method_name(v, v.method)
        methods, where = v.debug.distinct_inner_methods()
        sites = [self.sites.site(self._method_name(v, method), v.site_kind) for method in methods]
        site = self.sites.site(v.name, v.site_kind)
        self._register.describe(v, site, v.debug.pc, np.array(sites, np.int32)[where])
        self._registered()

    def _method_name(self, v: Version, method: int) -> str:
        name = self.methods.get(method)
        if name is None:
            v.unresolved = True
            self.counts["unknown_methods"] += 1
            return UNKNOWN_METHOD
        return name
