"""The event layer and the exact flow as a fuzz target.

Kernels are not instrumented, so inputs are made to mean something: the first byte chooses raw bytes, or packets that
the following bytes pick and fill.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from jvm.code.snapshot import CodeView
from stages.pt import errata
from stages.pt import packet_scan as ps
from stages.pt.events import event as e
from stages.pt.exact.decoder import AddressFilter, FlowDecoder, Options
from stages.pt.exact.instructions import Instructions
from tests.fuzz.fence import Bytes
from tests.pt import ptwriter as w
from tests.pt.machine import BASE, program

_CODE, _PROGRAM = program(random.Random(7), 200)
_SPECIAL = (  # instructions that events bind to
    b"\xf3\x0f\xae\xe0\x0f\x22\xd8\x0f\x01\xc2\x0f\x05\x0f\x07\xcf\xcd\x80\xf3\x0f\x01\xec\x0f\xc7\x30\x0f\x34\xea\xd5\x00\xa1"
)
_INSTRUCTIONS = Instructions(CodeView.of([(BASE, _CODE), (BASE + 0x10000, _SPECIAL)]))
_STARTS = [*_PROGRAM, *range(BASE + 0x10000, BASE + 0x10000 + len(_SPECIAL)), BASE - 1, 0]
_CPUS = ((0, 0), (6, 0x3D), (6, 0x8E), (6, 0x55), (6, 0x97), (6, 0x5C))
_OPTIONS = [
    Options(
        family=family, model=model, mtc_shift=3, ctc_num=4, ctc_den=1, nominal=4, ticks=bool(n & 1), iflags=bool(n & 2),
        resync=bool(n & 4), end_on_call=bool(n & 1), blocks=bool(n & 2),
        filters=(AddressFilter(BASE, BASE + 0x200), AddressFilter(BASE + 0x300, BASE + 0x310, stop=True)),
    )
    for family, model in _CPUS
    for n in range(8)
]  # fmt: skip
_PACKETS = np.zeros(64, ps.PACKET_DTYPE)
_HEADER = w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend()


def _ip(a: int, b: int) -> tuple[int, int]:
    return _STARTS[(a << 3 | b >> 5) % len(_STARTS)], (3, 3, 1, 1, 0, 6, 2, 4)[b & 7]


FILLED: tuple[Callable[[int, int], bytes], ...] = (
    lambda a, b: bytes((a & 0xFE,)),  # a short TNT, mostly
    lambda a, b: bytes((a & 0xFE, b & 0xFE)),
    lambda a, b: w.tip(*_ip(a, b)),
    lambda a, b: w.tip(*_ip(a, b)),
    lambda a, b: w.tip_pge(*_ip(a, b)),
    lambda a, b: w.tip_pgd(*_ip(a, b)),
    lambda a, b: w.fup(*_ip(a, b)),
    lambda a, b: w.fup(*_ip(a, b)) + w.tip_pgd(),
    lambda a, b: _HEADER,
    lambda a, b: w.psb() + (w.psbend() if a & 1 else b""),
    lambda a, b: w.tnt64(f"{a << 8 | b:b}".replace("0", ".").replace("1", "!")),
    lambda a, b: (w.ovf(), w.psbend(), w.stop(), w.exstop(bool(b & 1)), w.bep(bool(b & 1)), w.pad())[a % 6],
    lambda a, b: w.mode_exec((64, 64, 64, 32, 16)[a % 5], bool(b & 1)),
    lambda a, b: w.mode_tsx(bool(a & 1), bool(b & 1)),
    lambda a, b: (w.cyc(a << b % 60), w.mtc(a), w.tsc(a << b % 56), w.tma(a, b), w.cbr(b))[a % 5],
    lambda a, b: (w.pip(b << 8), w.vmcs(b << 12), w.mnt(b), w.ptw(b, 4, bool(b & 1)), w.mwait(b, 0))[a % 5],
    lambda a, b: (w.pwre(b & 15), w.pwrx(b & 15, 1), w.evd(b % 4, a), w.cfe(b % 18, a, bool(a & 1)))[a % 4],
    lambda a, b: w.trig(a, b if a & 2 else None, bool(a & 1), bool(a & 4)),
    lambda a, b: (w.bbp(b & 31, 4 if b & 32 else 8), w.bip(b & 31, a))[a & 1],
    lambda a, b: bytes((a, b)),
)


def _trace(data: bytes) -> bytes:
    if data[0] & 1:
        return data[2:]
    out = _HEADER
    for n in range(2, len(data) - 2, 3):
        out += FILLED[data[n] % len(FILLED)](data[n + 1], data[n + 2])
    return out


def one(data: bytes, buffer: Bytes) -> None:
    """One input, laid into `buffer`; raises at anything that must not be."""
    if len(data) < 3:
        return
    trace = _trace(data)
    array = buffer.put(trace)
    options = _OPTIONS[data[1] % len(_OPTIONS)]
    state = ps.scanner(int(e.start_context(errata.of_cpu(options.family, options.model))))
    at = expected = 0
    while True:
        n, at = ps.scan(array, at, len(array), 0, state, _PACKETS)
        for offset, size in zip(_PACKETS["offset"][:n].tolist(), _PACKETS["size"][:n].tolist(), strict=True):
            assert expected - 16 < offset <= expected, "a gap between packets"
            expected = offset + size
        if n < len(_PACKETS):
            break
    assert expected == at <= len(array)
    told = 0
    for batch in FlowDecoder(array, _INSTRUCTIONS, options, capacity=512):
        told += len(batch.ips) + len(batch.events)
    # every packet lets the walk go on at most once around the code; TRIG counts 16 bits of instructions
    assert told <= (len(array) + 1) * 48 * (_INSTRUCTIONS.count + 8) + 65536 * trace.count(b"\xd9"), "does not end"
