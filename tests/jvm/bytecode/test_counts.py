"""The findings of one pass over a method's bytecode."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.bytecode.counts import CALL, JUMP, LEAVE, STEP, steps

PLAIN = [bytes.fromhex(code) for code in ("00", "107f", "110102", "b20001", "c4150100", "b900010200", "c5000102")]

KINDS = ["plain", "jump", "wide jump", "leave", "step", "call", "table", "lookup"]


def signed(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


@st.composite
def code(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Bytecode, and its rows."""
    out, rows = b"", list[tuple[int, int, int]]()
    for kind in draw(
        st.lists(st.sampled_from(["plain", "jump", "wide jump", "leave", "step", "call", "table", "lookup"]))
    ):
        at, by = len(out), draw(st.integers(-100, 100))
        match kind:
            case "plain":
                out += draw(st.sampled_from(PLAIN))
            case "jump":
                out += bytes([draw(st.sampled_from([0x99, 0xA6, 0xA7, 0xC6, 0xC7]))]) + signed(by, 2)
                rows.append((at, JUMP, at + by))
            case "wide jump":
                out += b"\xc8" + signed(by, 4)
                rows.append((at, JUMP, at + by))
            case "leave":
                out += bytes([draw(st.sampled_from([0xAC, 0xB1, 0xBF]))])
                rows.append((at, LEAVE, 0))
            case "step":
                out += draw(st.sampled_from([b"\x84\x03" + signed(by, 1), b"\xc4\x84\x00\x03" + signed(by, 2)]))
                rows.append((at, STEP, by))
            case "call":
                out += bytes([draw(st.sampled_from([0xB7, 0xB8]))]) + b"\x00\x09"
                rows.append((at, CALL, 0))
            case _:
                targets = draw(st.lists(st.integers(-100, 100), min_size=1, max_size=3))
                out += b"\xaa" if kind == "table" else b"\xab"
                out += bytes(-len(out) % 4) + signed(by, 4)
                if kind == "table":
                    out += signed(7, 4) + signed(6 + len(targets), 4) + b"".join(signed(t, 4) for t in targets)
                else:
                    out += signed(len(targets), 4) + b"".join(
                        signed(k, 4) + signed(t, 4) for k, t in enumerate(targets)
                    )
                rows += [(at, JUMP, at + t) for t in (by, *targets)]
    return out, rows


@settings(deadline=None)  # kernels are compiled at the first
@given(code())
def test_jumps_exits_counts_and_calls_are_found(made: tuple[bytes, list[tuple[int, int, int]]]) -> None:
    found = steps(made[0])
    assert found is not None
    assert [tuple(row) for row in found.tolist()] == made[1]


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_read_within_their_bounds(data: bytes) -> None:
    found = steps(data)
    assert found is None or len(found) <= len(data)


@settings(deadline=None)
@given(code(), st.integers(0, 200))
def test_code_that_is_cut_is_none_or_ends_there(made: tuple[bytes, list[tuple[int, int, int]]], end: int) -> None:
    found = steps(made[0][:end])
    assert found is None or [tuple(row) for row in found.tolist()] == [row for row in made[1] if row[0] < end]
