"""Events and compounds, written by hand: one trace each, and the instructions and events, in order.

The same was compared once with libipt's block decoder (2.3), which knows all of these but the block packets.
"""

from __future__ import annotations

import numpy as np
import pytest

from jvm.code.snapshot import CodeView
from stages.pt.exact.decoder import FlowDecoder, Options
from stages.pt.exact.text import TextOptions, lines
from tests.pt import ptwriter as w
from tests.pt.machine import BASE as B

NOPS = b"\x90" * 16
IND = b"\x90\x90\xff\xe0" + b"\x90" * 12  # nop, nop, jmp rax


def header(*inner: bytes) -> bytes:
    return w.psb() + w.mode_exec(64) + b"".join(inner) + w.psbend()


def second(code: bytes) -> bytes:
    """A nop, `code`, nops."""
    return b"\x90" + code + NOPS


S = header(w.fup(B))
END = w.tip_pgd()

CASES = [
    pytest.param(
        IND,
        S + w.fup(B + 1) + w.tip(B + 8) + w.fup(B + 9) + END,
        ["+00", "[interrupt, from: +01, to: +08]", "+08", "[disabled, at: +09]"],
        id="interrupt",
    ),
    pytest.param(
        IND,
        S + w.fup(B + 1) + END + w.tip_pge(B + 1) + w.tip(B + 8) + w.fup(B + 8) + END,
        ["+00", "[disabled, at: +01]", "[resumed, ip: +01]", "+01", "+02", "[disabled, at: +08]"],
        id="interrupt out of the filter",
    ),
    pytest.param(
        IND,
        S + w.fup(B + 1) + w.pip(0x5000, True) + w.vmcs(0x7000) + w.tip(B + 8) + w.fup(B + 9) + END,
        [
            "+00",
            "[interrupt, from: +01, to: +08]",
            "[vmcs, base: 0000000000007000, ip: +08]",
            "[paging, cr3: 0000000000005000, nr, ip: +08]",
            "+08",
            "[disabled, at: +09]",
        ],
        id="interrupt, paging and vmcs in between",
    ),
    pytest.param(
        IND,
        header() + w.pip(0x5000) + w.vmcs(0x7000) + w.tip_pge(B + 8) + w.fup(B + 9) + END,
        [
            "[paging, cr3: 0000000000005000]",
            "[vmcs, base: 0000000000007000]",
            "[enabled, ip: +08]",
            "+08",
            "[disabled, at: +09]",
        ],
        id="paging and vmcs at PGE",
    ),
    pytest.param(
        NOPS,
        S + w.mode_tsx(True) + w.fup(B + 1) + w.mode_tsx(False) + w.fup(B + 3) + w.fup(B + 4) + END,
        ["+00", "[begin transaction, ip: +01]", "? +01", "? +02", "[committed, ip: +03]", "+03", "[disabled, at: +04]"],
        id="transaction begins and commits",
    ),
    pytest.param(
        NOPS,
        S
        + w.mode_tsx(True)
        + w.fup(B + 1)
        + w.mode_tsx(False, True)
        + w.fup(B + 3)
        + w.tip(B + 8)
        + w.fup(B + 9)
        + END,
        [
            "+00",
            "[begin transaction, ip: +01]",
            "? +01",
            "? +02",
            "[aborted, ip: +03]",
            "[interrupt, from: +03, to: +08]",
            "+08",
            "[disabled, at: +09]",
        ],
        id="transaction aborts",
    ),
    pytest.param(
        NOPS,
        S
        + w.mode_tsx(True)
        + w.fup(B + 1)
        + w.mode_tsx(False, True)
        + w.fup(B + 3)
        + END
        + w.tip_pge(B + 3)
        + w.fup(B + 4)
        + END,
        [
            "+00",
            "[begin transaction, ip: +01]",
            "? +01",
            "? +02",
            "[aborted, ip: +03]",
            "[disabled, at: +03]",
            "[resumed, ip: +03]",
            "+03",
            "[disabled, at: +04]",
        ],
        id="transaction aborts out of the filter",
    ),
    pytest.param(
        IND,
        S + w.tip(B) + w.ovf() + w.fup(B + 8) + w.fup(B + 9) + END,
        ["+00", "+01", "+02", "[overflow, ip: +08]", "+08", "[disabled, at: +09]"],
        id="overflow with FUP",
    ),
    pytest.param(
        IND,
        S + w.tip(B) + w.ovf() + w.tip_pge(B + 8) + w.fup(B + 9) + END,
        ["+00", "+01", "+02", "[overflow]", "[enabled, ip: +08]", "+08", "[disabled, at: +09]"],
        id="overflow with PGE",
    ),
    pytest.param(
        IND,
        S + w.tip(B) + w.psb() + w.fup(B) + w.ovf() + w.fup(B + 8) + w.fup(B + 9) + END,
        ["+00", "+01", "+02", "[overflow, ip: +08]", "+08", "[disabled, at: +09]"],
        id="overflow cuts PSB+",
    ),
    pytest.param(
        b"\xf3\x48\x0f\xae\xe0" + NOPS,
        S + w.ptw(0x1122334455667788, 8, True) + w.fup(B) + w.fup(B + 6) + END,
        ["+00", "[ptwrite: 1122334455667788, ip: +00]", "+05", "[disabled, at: +06]"],
        id="ptwrite with FUP",
    ),
    pytest.param(
        b"\x90\xf3\x48\x0f\xae\xe0" + NOPS,
        S + w.ptw(7) + w.fup(B + 7) + END,
        ["+00", "+01", "[ptwrite: 7]", "+06", "[disabled, at: +07]"],
        id="ptwrite without FUP",
    ),
    pytest.param(
        NOPS,
        S + w.exstop(True) + w.fup(B + 2) + w.fup(B + 3) + END,
        ["+00", "+01", "[exstop, ip: +02]", "+02", "[disabled, at: +03]"],
        id="exstop with FUP",
    ),
    pytest.param(
        b"\x90\x0f\x01\xc9" + NOPS,
        S + w.mwait(0x20, 1) + w.pwre(2) + w.exstop(True) + w.fup(B + 1) + w.pwrx(3, 2) + w.fup(B + 5) + END,
        [
            "+00",
            "[mwait 20 1, ip: +01]",
            "[exstop, ip: +01]",
            "[pwre c3.1]",
            "[pwrx int: c4 (c3)]",
            "+01",
            "+04",
            "[disabled, at: +05]",
        ],
        id="mwait, pwre, exstop, pwrx",
    ),
    pytest.param(
        NOPS,
        header() + w.pwre(5, 1, True) + w.exstop() + w.pwrx(5, 5, 8) + w.tip_pge(B) + w.fup(B + 1) + END,
        ["[exstop]", "[pwre c6.2 hw]", "[pwrx hw: c6 (c6)]", "[enabled, ip: +00]", "+00", "[disabled, at: +01]"],
        id="power events while tracing is off",
    ),
    pytest.param(
        NOPS,
        S + w.cbr(20) + w.mnt(0xABCD) + w.fup(B + 1) + END,
        ["[cbr: 14]", "[mnt: abcd]", "+00", "[disabled, at: +01]"],
        id="cbr and mnt",
    ),
    pytest.param(
        NOPS,
        S + w.fup(B + 1) + END + w.stop() + w.tip_pge(B + 4) + w.fup(B + 5) + END,
        ["+00", "[disabled, at: +01]", "[stopped]", "[enabled, ip: +04]", "+04", "[disabled, at: +05]"],
        id="stop",
    ),
    pytest.param(
        b"\xff\xe0" + NOPS,
        S + w.mode_exec(32) + w.tip(B + 4) + w.fup(B + 5) + END,
        ["+00", "[exec mode: 32-bit, ip: +04]", "+04", "[disabled, at: +05]"],
        id="mode.exec with a TIP",
    ),
    pytest.param(
        second(b"\x0f\x05"),
        S + w.pip(0x9000) + w.tip(B + 8) + w.fup(B + 9) + END,
        ["+00", "+01", "[paging, cr3: 0000000000009000]", "+08", "[disabled, at: +09]"],
        id="far call with paging",
    ),
    pytest.param(
        second(b"\x0f\x22\xd8"),
        S + w.pip(0x9000) + w.fup(B + 6) + END,
        ["+00", "+01", "[paging, cr3: 0000000000009000]", "+04", "+05", "[disabled, at: +06]"],
        id="mov cr3",
    ),
    pytest.param(
        second(b"\x0f\x01\xc2"),
        S + w.vmcs(0x3000) + w.pip(0x9000, True) + w.tip(B + 8) + w.fup(B + 9) + END,
        [
            "+00",
            "+01",
            "[vmcs, base: 0000000000003000]",
            "[paging, cr3: 0000000000009000, nr]",
            "+08",
            "[disabled, at: +09]",
        ],
        id="vmlaunch",
    ),
    pytest.param(
        IND,
        S + w.evd(0, 0xDEAD000) + w.cfe(1, 14, True) + w.fup(B + 1) + w.tip(B + 8) + w.fup(B + 9) + END,
        ["+00", "[interrupt 14, cr2: 000000000dead000, ip: +01]", "+01", "+02", "+08", "[disabled, at: +09]"],
        id="cfe: interrupt with a page fault address",
    ),
    pytest.param(
        IND,
        S + w.cfe(1, 32, True) + w.fup(B + 1) + END,
        ["+00", "[interrupt 32, ip: +01]", "+01", "+02", "[disabled]"],
        id="cfe: interrupt, tracing ends",
    ),
    pytest.param(
        second(b"\xcf"),
        S + w.cfe(2, 0, True) + w.fup(B + 1) + w.tip(B + 8) + w.fup(B + 9) + END,
        ["+00", "+01", "[iret, ip: +01]", "+08", "[disabled, at: +09]"],
        id="cfe: iret",
    ),
    pytest.param(
        second(b"\xcf"),
        S + w.cfe(2, 0, False) + w.tip(B + 8) + w.fup(B + 9) + END,
        ["+00", "+01", "[iret]", "+08", "[disabled, at: +09]"],
        id="cfe: iret without FUP",
    ),
    pytest.param(
        IND,
        S + w.cfe(3, 0, True) + w.fup(B + 1) + END,
        ["+00", "[smi, ip: +01]", "+01", "+02", "[disabled]"],
        id="cfe: smi",
    ),
    pytest.param(
        NOPS,
        header() + w.cfe(4, 0, False) + w.tip_pge(B + 2) + w.fup(B + 3) + END,
        ["[rsm]", "[enabled, ip: +02]", "+02", "[disabled, at: +03]"],
        id="cfe: rsm",
    ),
    pytest.param(
        IND,
        S + w.cfe(6, 0, True) + w.fup(B + 1) + END + w.cfe(5, 0x9A) + w.tip_pge(B + 4) + w.fup(B + 5) + END,
        [
            "+00",
            "[init, ip: +01]",
            "+01",
            "+02",
            "[disabled]",
            "[sipi: 9a]",
            "[enabled, ip: +04]",
            "+04",
            "[disabled, at: +05]",
        ],
        id="cfe: init and sipi",
    ),
    pytest.param(
        IND,
        S + w.evd(1, 0x55) + w.evd(2, 0x30) + w.cfe(8, 0, True) + w.fup(B + 1) + END,
        ["+00", "[vmexit, vmxr: 0000000000000030, vmxq: 0000000000000055, ip: +01]", "+01", "+02", "[disabled]"],
        id="cfe: vmexit with reasons",
    ),
    pytest.param(
        IND,
        S + w.cfe(9, 33, True) + w.fup(B + 1) + w.tip(B + 8) + w.fup(B + 9) + END,
        ["+00", "[vmexit, intr: 33, ip: +01]", "+01", "+02", "+08", "[disabled, at: +09]"],
        id="cfe: vmexit by interrupt",
    ),
    pytest.param(
        second(b"\x0f\x01\xc2"),
        S + w.cfe(7, 0, True) + w.fup(B + 1) + w.tip(B + 8) + w.fup(B + 9) + END,
        ["+00", "+01", "[vmentry, ip: +01]", "+08", "[disabled, at: +09]"],
        id="cfe: vmentry",
    ),
    pytest.param(
        IND,
        S + w.cfe(10, 0, True) + w.fup(B + 1) + END,
        ["+00", "[shutdown, ip: +01]", "+01", "+02", "[disabled]"],
        id="cfe: shutdown",
    ),
    pytest.param(
        second(b"\xf3\x0f\x01\xec"),
        S
        + w.cfe(12, 5, True)
        + w.fup(B)
        + w.tip(B)
        + w.cfe(13, 0, True)
        + w.fup(B + 1)
        + w.tip(B + 8)
        + w.fup(B + 9)
        + END,
        ["[uintr 5, ip: +00]", "+00", "+01", "+00", "+01", "[uiret, ip: +01]", "+08", "[disabled, at: +09]"],
        id="cfe: user interrupt and return",
    ),
    pytest.param(
        NOPS,
        S + w.mode_exec(64, True) + w.fup(B + 2) + w.mode_exec(64, False) + w.fup(B + 3) + w.fup(B + 4) + END,
        [
            "+00",
            "+01",
            "[interrupts enabled, ip: +02]",
            "+02",
            "[interrupts disabled, ip: +03]",
            "+03",
            "[disabled, at: +04]",
        ],
        id="mode.exec tells IF",
    ),
    pytest.param(
        NOPS,
        S + w.trig(0x5, 3) + w.fup(B + 6) + END,
        ["+00", "+01", "+02", "[trig 05, ip: +03]", "+03", "+04", "+05", "[disabled, at: +06]"],
        id="trig with a count",
    ),
    pytest.param(
        IND,
        S
        + w.bbp(4, 8)
        + w.bip(1, 0x1234)
        + w.cyc(5)
        + w.bip(2, 7)
        + w.bep(True)
        + w.fup(B + 1)
        + w.tip(B + 8)
        + w.fup(B + 9)
        + END,
        ["+00", "+01", "+02", "+08", "[disabled, at: +09]"],
        id="block packets",
    ),
    pytest.param(
        b"\xff\xe0\x90\x90\x75\xfe\x90\x90\xff\xe0" + NOPS,
        S + w.tnt8("..") + w.tip(B + 4) + w.tip(B + 2) + w.tip(B + 10) + w.fup(B + 11) + END,
        ["+00", "+04", "+06", "+07", "+08", "+02", "+03", "+04", "+06", "+07", "+08", "+0a", "[disabled, at: +0b]"],
        id="deferred TIPs",
    ),
    pytest.param(
        b"\xe8\x0b\x00\x00\x00" + b"\x90" * 11 + b"\xe8\x00\x00\x00\x00\x58\xc3",
        S + w.tnt8("!") + w.fup(B + 6) + END,
        ["+00", "+10", "+15", "+16", "+05", "[disabled, at: +06]"],
        id="call to the next instruction is not pushed",
    ),
    pytest.param(
        b"\xff\xd0" + NOPS,
        S + w.tip_pgd(B - 64, 3) + w.tip_pge(B + 2) + w.fup(B + 3) + END,
        ["+00", "[disabled, ip: 00007f000fffffc0]", "[resumed, ip: +02]", "+02", "[disabled, at: +03]"],
        id="tracing ends at a call and resumes behind it",
    ),
    pytest.param(NOPS, S + w.fup(0, 0) + END, ["[1b, 0: error: the address is suppressed]"], id="a suppressed FUP"),
]


@pytest.mark.parametrize(("code", "trace", "expected"), CASES)
def test_event(code: bytes, trace: bytes, expected: list[str]) -> None:
    """Addresses from BASE on are written +xx."""
    options = Options(mtc_shift=3, nominal=4, ctc_num=4, ctc_den=1, iflags=True)
    decoder = FlowDecoder(np.frombuffer(trace, np.uint8), CodeView.of([(B, code)]), options)
    text = [line for batch in decoder for line in lines(batch, TextOptions(event_ip=True))]
    assert [line.replace(f"{B:016x}"[:-2], "+") for line in text] == expected
