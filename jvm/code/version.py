"""One blob of machine code for as long as it stood at its place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from jvm.code.debug_info import DebugInfo
from jvm.code.sites import SiteKind

FOREVER = (1 << 64) - 1


class Kind(IntEnum):
    NMETHOD = 1
    DYNAMIC = 2  # DynamicCodeGenerated: stubs, adapters
    BLOB = 3  # found by walking the code heaps
    INTERPRETER = 4
    CODELET = 5  # a range inside INTERPRETER; has no bytes of its own


@dataclass(slots=True, eq=False)
class Version:
    """One blob for as long as it stood there. Times are TSC ticks; `until` is FOREVER while it stands."""

    id: int  # never reused
    kind: Kind
    start: int
    end: int
    name: str  # display name of the method, or the stub's name
    loaded: int  # when we were told
    since: int
    until: int = FOREVER
    method: int = 0  # the rest is known of nmethods only
    level: int = 0
    compile_id: int = 0
    entry: int = 0
    verified_entry: int = 0
    osr_entry: int = 0
    not_entrant: int = FOREVER  # not later than this it was made not entrant
    debug: DebugInfo | None = None
    site_kind: SiteKind = SiteKind.STUB
    unresolved: bool = False  # a method of it was not known by name when it was told
    row: int = 0  # where it is in the columns for kernels
    patched: int = 0  # when its bytes were last found changed
    data_at: int = 0  # its bytes in the arena, as last told
    data_size: int = 0

    def valid(self, ip: int, tsc: int) -> bool:
        return self.start <= ip < self.end and self.since <= tsc < self.until
