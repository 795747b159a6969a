"""A processor that runs made-up programs and traces itself, as the SDM says Intel PT does: a decoder must undo that.

`program` lays out random code; `Processor` executes it with random outcomes and writes the packets. Its execution is
the truth, as far as it can be known: nothing between the last packet and an OVF, and no second round of a loop that
needs no packet.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.pt import ptwriter as w

BASE = 0x7F00_1000_0000
_DEPTH = 64


class Instruction(NamedTuple):
    code: bytes
    kind: str  # plain, jcc, jmp, call, call0, ret, ijmp, icall, far
    target: int = 0


def program(rng: Random, size: int, base: int = BASE) -> tuple[bytes, dict[int, Instruction]]:
    """`size` random instructions one after the other from `base` on; all branches lead to instructions."""
    shapes = [rng.choices(list(_SHAPES), [share for _, _, share in _SHAPES.values()])[0] for _ in range(size)]
    shapes[-1] = "ijmp"  # so that nothing runs off the end
    starts = [base]
    for kind in shapes:
        starts.append(starts[-1] + len(_SHAPES[kind][0]) + _SHAPES[kind][1])
    found: dict[int, Instruction] = {}
    code = b""
    for n, kind in enumerate(shapes):
        opcode, operand, _ = _SHAPES[kind]
        target = 0
        if operand == 4 and kind != "call0":
            target = starts[rng.randrange(size)]
        elif operand == 1 and kind in ("jcc8", "jmp8"):
            near = [s for s in starts[:-1] if -128 <= s - starts[n + 1] <= 127]
            target = rng.choice(near)
        distance = target - starts[n + 1] if target else 0
        raw = opcode + (distance & (1 << 8 * operand) - 1).to_bytes(operand, "little")
        if kind == "call" and distance == 0:
            kind = "call0"
        found[starts[n]] = Instruction(raw, _SHAPES_KIND.get(kind, kind), target or starts[n + 1])
        code += raw
    return code, found


_SHAPES = {  # opcode, bytes of displacement or immediate, how often
    "plain": (b"\x90", 0, 30),
    "plain3": (b"\x0f\x1f\x00", 0, 10),
    "jcc8": (b"\x75", 1, 12),
    "jcc": (b"\x0f\x84", 4, 12),
    "jmp8": (b"\xeb", 1, 2),
    "jmp": (b"\xe9", 4, 2),
    "call": (b"\xe8", 4, 10),
    "call0": (b"\xe8", 4, 1),
    "ret": (b"\xc3", 0, 10),
    "ijmp": (b"\xff\xe0", 0, 3),
    "icall": (b"\xff\xd0", 0, 3),
    "far": (b"\xcd", 1, 1),
}
_SHAPES_KIND = {"plain3": "plain", "jcc8": "jcc", "jmp8": "jmp"}


class Processor:
    def __init__(
        self, rng: Random, code: dict[int, Instruction], compress_returns: bool = True, honest: bool = False
    ) -> None:
        """`honest`: every return goes to its call."""
        self.trace = b""
        self.executed: list[int] = []
        self._rng = rng
        self._code = code
        self._starts = list(code)
        self._compress = compress_returns
        self._stray = 0.0 if honest else 0.05
        self._stack: list[int] = []  # the program's own
        self._known: list[int] = []  # a decoder's knowledge of it,
        self._known_before: list[list[int]] = []  # and knew before each instruction
        self._bits = ""
        self._deferred: list[bytes] = []
        self._last_ip = 0
        self._anchor = 0  # up to here a decoder can know the execution
        self._free_of_packets = 0
        self.ip = rng.choice(self._starts)
        self.psb()

    def _address(self, ip: int) -> tuple[int, int]:
        """Any compression that says `ip` after the last IP."""
        forms = [6]
        if ip >> 16 == self._last_ip >> 16:
            forms.append(1)
        if ip >> 32 == self._last_ip >> 32:
            forms.append(2)
        if ip >> 48 == self._last_ip >> 48:
            forms.append(4)
        if ip >> 47 in (0, 0x1FFFF):
            forms.append(3)
        self._last_ip = ip
        return ip, self._rng.choice(forms)

    def _flush(self) -> None:
        while self._bits:
            size = min(len(self._bits), self._rng.choice([1, 3, 6, 6, 47]))
            if self._deferred:  # all bits that overtake a TIP are in the TNT before it
                size = len(self._bits)
            self.trace += w.tnt64(self._bits[:size]) if size > 6 else w.tnt8(self._bits[:size])
            self._bits = self._bits[size:]
        for ip in self._deferred:
            self.trace += ip
        self._deferred = []
        if self._rng.random() < 0.2:
            self.trace += self._rng.choice([w.pad(), w.cyc(self._rng.randrange(999)), w.mtc(self._rng.randrange(256))])

    def _indirect(self, ip: int, may_defer: bool) -> None:
        if not may_defer or not self._bits or self._rng.random() < 0.5:
            self._flush()
            self.trace += w.tip(*self._address(ip))
        else:  # further bits may overtake the TIP
            self._deferred.append(w.tip(*self._address(ip)))
        self.ip = ip

    def step(self) -> None:
        here = self.ip
        instruction = self._code[here]
        after = here + len(instruction.code)
        self.executed.append(here)
        self._known_before.append(self._known)
        self._free_of_packets += 1
        kind = instruction.kind
        self.ip = after
        if kind in ("jmp", "call"):
            self.ip = instruction.target
        if kind in ("call", "icall"):
            self._stack.append(after)
            self._known = [*self._known, after][-_DEPTH:]
        if kind == "jcc":
            taken = self._rng.random() < 0.5
            self.ip = instruction.target if taken else after
            self._bits += "!" if taken else "."
        elif kind == "ret":
            stray = not self._stack or self._rng.random() < self._stray
            target = self._rng.choice(self._starts) if stray else self._stack.pop()
            known = self._known[-1] if self._known else 0
            self._known = self._known[:-1]
            if self._compress and known == target:
                self._bits += "!"
                self.ip = target
            else:
                self._indirect(target, may_defer=False)
        elif kind in ("ijmp", "icall", "far"):
            self._indirect(self._rng.choice(self._starts), may_defer=not self._compress)
        if kind in ("jcc", "ret", "ijmp", "icall", "far"):
            self._free_of_packets = 0
            self._anchor = len(self.executed)
        if len(self._bits) >= 47 or (len(self._bits) >= 6 and self._rng.random() < 0.5):
            self._flush()

    @property
    def runs_without_packets(self) -> bool:
        """In a loop that no decoder could count."""
        return self._free_of_packets > len(self._starts)

    def _place(self) -> None:
        """An event happens here. A decoder finds it at the first time it passes."""
        since = self.executed[self._anchor :]
        if self.ip in since:
            first = self._anchor + since.index(self.ip)
            self._known = self._known_before[first]
            del self.executed[first:], self._known_before[first:]
        self._anchor = len(self.executed)
        self._free_of_packets = 0

    def psb(self) -> None:
        self._flush()
        self._place()
        self._last_ip = 0
        self.trace += w.psb() + w.mode_exec(64) + w.fup(*self._address(self.ip)) + w.psbend()

    def interrupt(self) -> None:
        self._flush()
        self._place()
        self.trace += w.fup(*self._address(self.ip))
        self.ip = self._rng.choice(self._starts)
        self.trace += w.tip(*self._address(self.ip))

    def pause(self) -> None:
        """Tracing off and on again, elsewhere."""
        self.stop()
        self.ip = self._rng.choice(self._starts)
        self.trace += w.tip_pge(*self._address(self.ip))

    def lose(self) -> None:
        """An overflow: code that runs meanwhile is not seen."""
        self._flush()
        del self.executed[self._anchor :], self._known_before[self._anchor :]
        self.ip = self._rng.choice(self._starts)
        self._known = []
        self._stack = []
        self._last_ip = 0
        self.trace += w.ovf() + w.fup(*self._address(self.ip))
        self._free_of_packets = 0

    def stop(self) -> None:
        self._flush()
        self._place()
        self.trace += w.fup(*self._address(self.ip)) + w.tip_pgd()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.runs_without_packets:
                self.interrupt()
            self.step()
            chance = self._rng.random()
            if chance < 0.004:
                self.psb()
            elif chance < 0.008:
                self.interrupt()
            elif chance < 0.010:
                self.pause()
            elif chance < 0.012:
                self.lose()
        self.stop()


class Confined(Processor):
    """A processor with an IP filter, [BASE, BASE + reach). Code outside is not executed: control comes back to where it
    was called from, or elsewhere."""

    def __init__(self, rng: Random, code: dict[int, Instruction], reach: int, compress_returns: bool = True) -> None:
        inside = {ip: i for ip, i in code.items() if ip + len(i.code) <= BASE + reach}
        super().__init__(rng, inside, compress_returns)

    def _indirect(self, ip: int, may_defer: bool) -> None:
        if self._rng.random() < 0.3:
            self.ip = BASE + 0x8000
        else:
            super()._indirect(ip, may_defer)

    def step(self) -> None:
        instruction, bits = self._code[self.ip], self._bits
        super().step()
        if self.ip not in self._code:
            if self._bits[:-1] == bits:  # a branch that leaves has no bit
                self._bits = bits
            if instruction.kind == "ret":
                self._known = self._known_before[-1]
            self._leave()

    def _leave(self) -> None:
        self._flush()
        self.trace += w.tip_pgd(*self._address(self.ip)) if self._rng.random() < 0.7 else w.tip_pgd()
        back = self._known[-1] if self._known else 0
        if back in self._code and self._rng.random() < 0.7:
            self.ip, self._known = back, self._known[:-1]
        else:
            self.ip = self._rng.choice(self._starts)
        self.trace += b"\0" * self._rng.choice([0, 0, 1, 5, 12]) + w.tip_pge(*self._address(self.ip))
        self._place()
