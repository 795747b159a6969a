"""The graph of the classes of a process, as they are told; a class is dropped some time after its unload was told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from jvm import names
from jvm.bytecode.icfg import Icfg
from jvm.export import records as export
from jvm.export.parse import iter_records
from jvm.export.records import RecordType

ONLY = {int(t) for t in (RecordType.CLASS, RecordType.CLASS_DEF, RecordType.CLASS_UNLOAD)}
CALLS = 1 << 9  # looked at in one step


class Classes:
    def __init__(self, going: Callable[[range, range], None]) -> None:
        """`going` hears of nodes and methods that go, before they do."""
        self.icfg = Icfg()
        self.bad_records = 0
        self._going = going
        self._definition: dict[int, int] = {}  # of each class
        self._gone: deque[tuple[int, int]] = deque()  # (time, class), in the order of being told

    def feed(self, data: export.Buffer) -> Iterator[None]:
        """In steps."""
        try:
            for record in iter_records(data, only=ONLY):
                match record:
                    case export.ClassUnload():
                        self._gone.append((record.tsc, record.id))
                    case export.Class() if self._definition.get(record.id) == record.definition:
                        pass  # told again
                    case export.Class():
                        self._going(*self.icfg.numbers_of(record.id))
                        self._definition[record.id] = record.definition
                        yield from self.icfg.feeding(record)
                        yield
                    case _:
                        self.icfg.feed(record)
        except export.ExportError:
            self.bad_records += 1
        yield from self._update()

    def forget_before(self, tsc: int) -> Iterator[None]:
        """Classes that were unloaded before that, in steps."""
        while self._gone and self._gone[0][0] < tsc:
            _, id_ = self._gone.popleft()
            yield
            self._going(*self.icfg.numbers_of(id_))
            self.icfg.remove(id_)
            self._definition.pop(id_, None)
        yield from self._update()

    def _update(self) -> Iterator[None]:
        """Behind it no call has a callee that is gone."""
        while self.icfg.update(CALLS):
            yield

    def name(self, method: int) -> str:
        holder, name, _ = self.icfg.selector(method)
        return names.display(f"L{holder};", name)
