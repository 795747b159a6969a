"""The state of a call after the JVM has been at work on it: known when the trace shows that, not when a later packet
does not fit, which may never be.

- `resolve_…` binds it to where it jumps itself: to the entry of a compiled method, or to the call's own stub, if that
  is an adapter (SharedRuntime::resolve_helper).
- `ic_miss`: a call that led to a compiled method looks its callee up in a table from then on
  (SharedRuntime::handle_ic_miss_helper; CompiledIC::update).
- `wrong_method` unbinds it (SharedRuntime::reresolve_call_site).
- Where a resolver has been and it is not known what it has bound the call to, the call is taken as not bound: it does
  not lead to its former target any more.
- An adapter to the interpreter that finds its method compiled binds it to that (fixup_callers_callsite).

All this is inferred. If it was otherwise (another thread was faster; a class is not initialised yet), the packets
behind contradict it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jvm.bytecode.class_file import INVOKESTATIC
from jvm.calls.call_sites import CALL, CALL_SIZE, INLINE_CACHE, JMP, LOAD_CLASS, STUB_JUMP, targets
from jvm.calls.stubs import Stub, stub_of
from jvm.code.image import CodeImage
from jvm.code.version import Kind, Version
from stages.follow.repair.call_targets import Callees

_CALL = bytes((CALL,))
_BINDING = (Stub.RESOLVE_STATIC, Stub.RESOLVE_OPT_VIRTUAL, Stub.RESOLVE_VIRTUAL)


class Branch(NamedTuple):
    """A direct CALL or JMP that stands at `address` from now on."""

    address: int
    code: bytes


class Bindings:
    """Of one code image."""

    def __init__(
        self, image: CodeImage, callees: Callees, bytes_at: Callable[[int, int], bytes], fresh: int
    ) -> None:  # fmt: skip
        """`bytes_at`: (address, how many) of the code as it is believed to be; `fresh`: ticks, see `Callees.table`."""
        self._image, self._callees, self._bytes_at, self._fresh = image, callees, bytes_at, fresh
        self._stubs: dict[Stub, int] = {}  # where the first of each stands, as of that census of the image
        self._census = -1

    def of(self, returns: int, target: int, by: int, tsc: int) -> list[Branch]:
        """The call before `returns`, after the stub at `by` has jumped to `target` (an adapter: 0)."""
        call = returns - CALL_SIZE
        caller, at_work = (self._image.at(max(at, 0), tsc) for at in (call, by))
        if caller is None or caller.kind != Kind.NMETHOD or at_work is None or self._bytes_at(call, 1) != _CALL:
            return []
        stub, to = stub_of(at_work), 0
        if stub in _BINDING:
            return self._bound(call, target, tsc) or _branch(call, CALL, at_work.start)
        if stub == Stub.IC_MISS:
            to = self._looked_up(call, tsc)
        elif stub == Stub.WRONG_METHOD:
            to = self._unbound(call)
        elif stub == Stub.ADAPTER and self._callees.checked(call) is False:
            to = self._callees.compiled(call, tsc)
        return _branch(call, CALL, to)

    def _bound(self, call: int, target: int, tsc: int) -> list[Branch]:
        led, checked = self._image.at(target, tsc), self._checked(call)
        if led is None:
            return []
        if led.kind == Kind.NMETHOD and target == led.verified_entry:
            return _branch(call, CALL, led.entry if checked else target)
        if stub_of(led) != Stub.ADAPTER:
            return []
        to, through_stub = self._callees.to_adapter(call, target, led, tsc)
        if through_stub:
            return _branch(to + STUB_JUMP, JMP, target) + _branch(call, CALL, to)
        return _branch(call, CALL, to) if checked and to != target else []

    def _looked_up(self, call: int, tsc: int) -> int:
        now = np.frombuffer(self._bytes_at(call, CALL_SIZE), np.uint8)
        if len(now) < CALL_SIZE or now[0] != CALL:
            return 0
        led = self._image.at(int(targets(now, call, np.zeros(1, np.int64))[0]), tsc)
        return self._callees.table(call, tsc, self._fresh) if led is not None and led.kind == Kind.NMETHOD else 0

    def _unbound(self, call: int) -> int:
        callee = self._callees.named(call)
        static = callee is not None and callee.opcode == INVOKESTATIC
        bound = Stub.RESOLVE_STATIC if static else Stub.RESOLVE_OPT_VIRTUAL  # which look the same in a trace
        return self._stub(Stub.RESOLVE_VIRTUAL if self._checked(call) else bound)

    def refusal(self, version: Version) -> list[Branch]:
        """The jump that makes an nmethod not entrant (NativeJump::patch_verified_entry)."""
        return _branch(version.verified_entry, JMP, self._stub(Stub.WRONG_METHOD)) if version.verified_entry else []

    def _checked(self, call: int) -> bool:
        """Whether the call checks the receiver: the instruction before it loads the class that it looks for."""
        checked = self._callees.checked(call)
        if checked is None:
            load = self._bytes_at(max(call - INLINE_CACHE, 0), len(LOAD_CLASS))
            return load == LOAD_CLASS
        return checked

    def _stub(self, wanted: Stub) -> int:
        if self._census != self._image.census:
            self._census, self._stubs = self._image.census, {}
            for v in self._image.versions():
                stub = stub_of(v)
                if stub is not None:
                    self._stubs.setdefault(stub, v.start)
        return self._stubs.get(wanted, 0)


def _branch(address: int, opcode: int, target: int) -> list[Branch]:
    """None, if there is no target or it is out of reach."""
    distance = target - (address + CALL_SIZE)
    if not target or not -(1 << 31) <= distance < 1 << 31:
        return []
    return [Branch(address, bytes((opcode,)) + (distance & 0xFFFFFFFF).to_bytes(4, "little"))]
