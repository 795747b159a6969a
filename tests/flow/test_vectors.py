"""Intel's decoder vectors through the fast path: the addresses that ran, the breaks, the times.

The exact decoder, which `tests/pt/test_vectors.py` compares with Intel's expectations, is the reference. The fast path
hands on less: whole blocks alone, so where it breaks off the beginning of one is missing; and where a packet leads to
code that is not known it waits for the next address without a word, since a trace without filter is full of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

from jvm.code.snapshot import CodeView
from stages.decode.stage import Decode
from stages.follow.cfg.graph import P_BREAK, P_DISABLED
from stages.follow.flow import Flow
from stages.follow.walk import path_sequence as orders
from stages.follow.walk.state import B_OFF_CODE, B_OTHER_MODE
from stages.messages import Break, Chunk, Decoded, MarkKind, PtConfig, Segment, StreamOpen
from stages.pt.events import event as e
from stages.pt.exact.decoder import AddressFilter, FlowDecoder, Options
from streamer.commands.pt import command
from streamer.hub.text import CAUSE_TEXTS
from tests.flow.helpers import STREAM, THREAD, decode
from tests.pt import ptwriter as w
from tests.pt.machine import BASE
from tests.pt.vectors import VECTORS, Vector, manifest

_ALL = manifest()
_FLOWS = [vector for vector in _ALL if vector.tool == "ptxed"]
_TIMED = [vector for vector in _ALL if vector.tool == "ptdump" and "--time" in vector.options["ptdump"].split()]
_ABSENT = pytest.mark.skipif(not _ALL, reason=f"no test vectors in {VECTORS}")

NOT_KNOWN = {
    "ptet-evd_cr2-evd_vmxq": "EVD and CFE packets change no flow: that two of them do not fit together is not seen",
    "ptet-evd_vmxr-cfe_rsm": "the same",
}


class Piece(NamedTuple):
    """The addresses that ran up to a mark."""

    ran: list[int]
    mark: str  # off, break, unknown (code), end
    at: int = 0  # of a break: where


def config_of(vector: Vector) -> PtConfig:
    options = vector.options[vector.tool].split()

    def number(name: str, default: int) -> int:
        return int(options[options.index(name) + 1], 0) if name in options else default

    lo, last = number("--filter:addr0_a", 0), number("--filter:addr0_b", -1)
    family, model = map(int, (vector.cpu or "0/0").split("/"))
    return PtConfig(
        family, model, lo, last + 1, number("--mtc-freq", -1), number("--cpuid-0x15.ebx", 0),
        number("--cpuid-0x15.eax", 0),
    )  # fmt: skip


def decoded(vector: Vector) -> Iterator[Decoded]:
    decode = Decode()
    decode.feed(StreamOpen(STREAM, config_of(vector), None))  # type: ignore[arg-type]
    data = np.fromfile(VECTORS / f"{vector.name}.pt", np.uint8)
    for message in (*decode.feed(Chunk(STREAM, 0, 0, data)), *decode.flush()):
        if isinstance(message, Decoded):
            yield message


def code_of(vector: Vector) -> CodeView:
    return CodeView.of([(vector.org, (VECTORS / f"{vector.name}.bin").read_bytes())])


def fast(vector: Vector) -> tuple[list[Piece], set[int]]:
    """Pieces, and causes of breaks."""
    flow = Flow(config_of(vector))
    flow.set_code(code_of(vector))
    pieces: list[Piece] = []
    causes: set[int] = set()
    ran: list[int] = []
    for number, m in enumerate(decoded(vector)):
        segment = Segment(THREAD, STREAM, 0, m.offset, m.data, m.marks, m.last_ip, m.tsc, m.tsc, number > 0)
        for out in flow.feed(segment):
            breaks = iter(out.breaks[["cause", "at"]].tolist())
            for path in orders.paths(orders.plain(out.tables, out.order)).tolist():
                if path == P_DISABLED:
                    pieces.append(Piece(ran, "off"))
                elif path == P_BREAK:
                    cause, at = next(breaks)
                    causes.add(cause)
                    pieces.append(Piece(ran, {B_OFF_CODE: "unknown", B_OTHER_MODE: ""}.get(cause, "break"), at))
                else:
                    ran += orders.addresses(out.tables, np.array([path], np.int32)).tolist()
                    continue
                ran = []
    return [*pieces, Piece(ran, "end")], causes


def exact(vector: Vector) -> tuple[list[Piece], bool]:
    """Pieces, without addresses in 16- and 32-bit code; and whether any did, or might have."""
    options, view = vector.options[vector.tool].split(), code_of(vector)
    config = config_of(vector)
    filters = (AddressFilter(config.filter_lo, config.filter_hi - 1),) if config.filter_hi else ()
    data = np.fromfile(VECTORS / f"{vector.name}.pt", np.uint8)
    given = Options(
        config.family, config.model, filters=filters, resync="--resync-on-error" in options,
        iflags="--event:iflags" in options,
    )  # fmt: skip
    pieces: list[Piece] = []
    ran: list[int] = []
    follows, other, last = True, False, 0
    for batch in FlowDecoder(data, view, given):
        begin = 0
        for event in (*batch.events, None):
            end = len(batch.ips) if event is None else int(event["index"])
            ran += batch.ips[begin:end].tolist() if follows else []
            begin = end
            if event is None:
                continue
            mark, at = "", 0
            if event["kind"] == e.EXEC_MODE:
                follows = event["flags"] == e.MODE_64
                other |= not follows
            elif event["kind"] == e.OVERFLOW:
                mark = "break"
            elif event["kind"] == e.ERROR:
                at = int(event["ip"])
                mark = "break" if at == 0 or view.start[0] <= at < view.end[0] else "unknown"
            elif event["kind"] in (e.DISABLED, e.ASYNC_DISABLED) and not event["status"]:
                mark = "off" if ran or last != e.ERROR else ""  # then no packet said so
            last = event["kind"]
            if mark:
                pieces.append(Piece(ran, mark, at))
                ran = []
    return [*pieces, Piece(ran, "end")], other


def joined(pieces: list[Piece]) -> list[Piece]:
    """Pieces that no mark divides as one. Tracing that is off, or lost, stays so: that is told once."""
    out: list[Piece] = []
    ran: list[int] = []
    for piece in pieces:
        ran = ran + piece.ran
        if piece.mark and not (piece.mark == "off" and not ran):
            out.append(piece._replace(ran=ran))
            ran = []
    return out


@_ABSENT
@pytest.mark.parametrize("vector", _FLOWS, ids=lambda vector: vector.id)
def test_what_ran(vector: Vector) -> None:
    got, causes = fast(vector)
    expected, other = exact(vector)
    assert (B_OTHER_MODE in causes) == (other or vector.bits == 32)
    if vector.bits == 32:
        assert not any(piece.ran for piece in got)
        return
    if vector.name in NOT_KNOWN:
        assert joined(got) != joined(expected)
        return
    if not any(piece.mark == "unknown" for piece in got):
        expected = [piece._replace(mark="" if piece.mark == "unknown" else piece.mark) for piece in expected]
    assert len(joined(got)) == len(joined(expected))
    for mine, right in zip(joined(got), joined(expected), strict=True):
        assert mine.mark == right.mark
        assert mine.ran == right.ran[: len(mine.ran)]
        missing = right.ran[len(mine.ran) :]
        if missing:  # the beginning of the block that was broken off, up to its last instruction
            assert mine.mark in ("break", "unknown")
            assert missing[-1] <= mine.at < missing[-1] + 15


@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("mode_first", [True, False])
def test_16_and_32_bit_code_is_refused_in_plain_words(bits: int, mode_first: bool) -> None:
    """Once, however long it goes on; the way before it, to the branch that leads there, is handed on."""
    other = [w.mode_exec(bits), w.fup(BASE + 2)]
    back = w.mode_exec(64) + w.tip(BASE) + w.tip_pgd()
    for trace, ran in (
        (w.psb() + b"".join(other if mode_first else other[::-1]) + w.psbend() + w.tnt8("!!") + w.tip(BASE), []),
        (w.psb() + w.mode_exec(64) + w.fup(BASE) + w.psbend() + w.mode_exec(bits) + w.tip(BASE + 2), [BASE]),
    ):
        flow = Flow(PtConfig())
        flow.set_code(CodeView.of([(BASE, b"\xff\xe0\x74\x00\xc3")]))
        assert decode(flow, trace + w.tip(BASE) + w.tip(BASE) + back) == ([*ran, BASE], [Break.OTHER_MODE])
    assert CAUSE_TEXTS[Break.OTHER_MODE.name.lower()] == "16- or 32-bit code, which is not followed"
    assert Break.OTHER_MODE == B_OTHER_MODE


@_ABSENT
@pytest.mark.parametrize("vector", _TIMED, ids=lambda vector: vector.id)
def test_times(vector: Vector) -> None:
    """At TSC and MTC packets; CYC is not used, and time does not go back."""
    options = [o for o in vector.options["ptdump"].split() if o != "--time-delta"]
    output = CliRunner().invoke(command, ["dump", str(VECTORS / f"{vector.name}.pt"), *options]).output
    rows = [line.split() for line in output.splitlines()]
    right = {int(row[0], 16): int(row[-1], 16) for row in rows if row[1:2] in (["tsc"], ["mtc"]) and "tsc" in row[2:]}
    marks = [mark for m in decoded(vector) for mark in m.marks if mark["kind"] == MarkKind.TIME]
    got = {int(mark["offset"]): int(mark["tsc"]) for mark in marks}
    latest = np.maximum.accumulate([right[at] for at in sorted(got)]).tolist() if got else []
    assert [got[at] for at in sorted(got)] == latest
    kinds = [row[1] for row in rows]
    behind = int(rows[kinds.index("psbend")][0], 16)
    assert bool(got) == ("tsc" in kinds and max(right, default=0) > behind)
