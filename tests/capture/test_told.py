"""The records of a ring that are kept, in memory and in a file, while trace that they explain has not been taken."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capture.live import sideband_journal as told_module
from capture.live.sideband_journal import Told
from capture.perf.records import Side, Words, parse
from stages.messages import Clock, SideKind
from tests.capture import perfwriter as w

CLOCK = Clock(1, 0, 0, 0)
IN, AUX = SideKind.SWITCH_IN, SideKind.AUX


def batch(*records: bytes) -> tuple[Side, Words]:
    words = np.frombuffer(b"".join(records), np.uint64)
    return parse(words, CLOCK), words


def times(told: Told) -> list[int]:
    return [int(tsc) for tsc in told.rows["tsc"]]


def test_what_has_been_taken_needs_only_who_runs() -> None:
    told = Told()
    told.add(*batch(w.switch(7, 8, ns=1)))
    told.add(*batch(w.switch(7, 9, ns=2)))
    told.add(*batch(w.comm(7, 9, "x", ns=3)))
    told.add(*batch(w.aux(0, 100, ns=4), w.switch(7, 8, ns=5)))
    told.add(*batch(w.aux(100, 50, ns=6)))
    told.taken(99)
    assert times(told) == [1, 2, 3, 4, 5, 6]
    told.taken(100)
    assert times(told) == [2, 4, 5, 6]
    told.taken(150)
    assert times(told) == [4, 5, 6]


def test_a_successor_finds_what_was_told(tmp_path: Path) -> None:
    path = tmp_path / "told"
    first = Told(path)
    assert (len(first.left), first.left_end) == (0, 0)
    rows, words = batch(w.switch(7, 8, ns=1))
    first.add(rows, words, words.nbytes)
    more_rows, more = batch(w.aux(0, 100, ns=2))
    first.add(more_rows, more, words.nbytes + more.nbytes)
    first.close()
    second = Told(path)
    assert (second.left.tobytes(), second.left_end) == ((words.tobytes() + more.tobytes()), words.nbytes + more.nbytes)
    assert times(second) == []  # until it is told again
    rows, all_words = batch(second.left.tobytes(), w.switch(7, 9, ns=3))
    second.restart(rows, all_words, 1000)
    second.close()
    third = Told(path)
    assert (third.left.tobytes(), third.left_end) == (all_words.tobytes(), 1000)


def test_records_that_were_skipped_leave_no_wrong_position(tmp_path: Path) -> None:
    told = Told(tmp_path / "told")
    rows, words = batch(w.switch(7, 8, ns=1))
    told.add(rows, words, words.nbytes)
    told.add(rows, words, 4096)  # bytes that were no records lay between
    told.close()
    assert Told(tmp_path / "told").left_end == 4096


@pytest.mark.parametrize("content", [b"", b"x", bytes(24), bytes(100), b"\xff" * 1000])
def test_a_file_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "told").write_bytes(content)
    told = Told(tmp_path / "told")
    assert (len(told.left), told.left_end) == (0, 0)


def test_a_file_that_cannot_be_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(tmp_path / "told")
    rows, words = batch(w.switch(7, 8, ns=1))
    told.add(rows, words, words.nbytes)

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    told.add(rows, words, 2 * words.nbytes)
    assert not (tmp_path / "told").exists()
    told.add(rows, words, 3 * words.nbytes)
    assert len(told.rows) == 3


steps = st.lists(st.tuples(st.sampled_from("stac"), st.integers(1, 40)), max_size=60)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps, st.integers(0, 400))
def test_a_killed_process_leaves_what_explains_the_rest(tmp_path: Path, steps: list[tuple[str, int]], cut: int) -> None:
    """Every record of trace that was not taken, and the thread switch before it, is in the file, or in the ring behind
    the position that the file tells; even if the last append was cut."""
    path = tmp_path / "told"
    path.unlink(missing_ok=True)
    grown, told_module.GROWN = told_module.GROWN, 64
    try:
        told, everything = Told(path), bytearray()  # `everything`: all that was ever in the ring
        aux = tail = last = time = 0
        for what, n in steps:
            time += 1
            if what == "t":
                tail = min(tail + 7 * n, aux)
                told.taken(tail)
                continue
            record = {
                "s": w.switch(7, 8 + n % 3, ns=time), "a": w.aux(aux, n, ns=time), "c": w.comm(7, 8, "c" * n, ns=time)
            }[what]  # fmt: skip
            aux += n if what == "a" else 0
            everything += record
            last = len(record)
            told.add(*batch(record), len(everything))
        told.close()
    finally:
        told_module.GROWN = grown
    if path.exists() and last and cut < last:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) - cut])
    found = Told(path)
    rows = parse(np.concatenate((found.left, np.frombuffer(everything[found.left_end :], np.uint64))), CLOCK)
    all_rows = parse(np.frombuffer(bytes(everything), np.uint64), CLOCK)
    closing = [i for i, row in enumerate(all_rows) if row["kind"] == AUX and row["a"] + row["b"] <= tail]
    needed = list(range(closing[-1], len(all_rows))) if closing else list(range(len(all_rows)))
    who = [i for i in range(needed[0] if needed else 0) if all_rows[i]["kind"] == IN]
    needed = who[-1:] + needed
    assert set(all_rows["tsc"][needed].tolist()) <= set(rows["tsc"].tolist())
    assert (np.diff(rows["tsc"].astype(np.int64)) > 0).all()


def three(path: Path) -> tuple[list[Words], list[int]]:
    """A file of three appends: their words, and where each begins in the file."""
    told, all_words, begins = Told(path), [], []
    for n in range(3):
        rows, words = batch(w.switch(7, 8 + n, ns=n), w.comm(7, 8, "x", ns=n))
        begins.append(path.stat().st_size if n else 8)
        told.add(rows, words, 1000 * (n + 1))
        all_words.append(words)
    told.close()
    return all_words, begins


def test_only_what_stands_behind_damage_is_believed(tmp_path: Path) -> None:
    """Before it a thread ran, but the thread that ran in between is not known."""
    path = tmp_path / "told"
    words, begins = three(path)
    good = path.read_bytes()
    for at in range(8, len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        found = Told(path)
        hit = max(n for n, begin in enumerate(begins) if begin <= at)
        kept = words[hit + 1 :]
        if hit == 2 and not found.damage:  # it looks like a cut one: the ring has its records
            kept = words[:2]
            assert found.left_end == 2000
        else:
            assert f"from byte {begins[hit]} on" in found.damage
            assert found.left_end == (3000 if kept else 0)
        assert found.left.tobytes() == b"".join(each.tobytes() for each in kept)


def test_an_append_that_was_cut_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "told"
    words, begins = three(path)
    good = path.read_bytes()
    for size in range(begins[2], len(good)):
        path.write_bytes(good[:size])
        found = Told(path)
        assert (found.left.tobytes(), found.left_end, found.damage) == (
            b"".join(each.tobytes() for each in words[:2]),
            2000,
            "",
        )
