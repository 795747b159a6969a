"""The accuracy program counts every error, and takes nothing for right that is not."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.accuracy.__main__ import show
from benchmarks.accuracy.align import GRAMS, aligned
from benchmarks.accuracy.clients import coverage, overlap, paths
from benchmarks.accuracy.executed import SEEN_UPCALL, Truth
from benchmarks.accuracy.figures import LOST, OTHER, UNKNOWN_METHOD, beside, by_method, control_flow, executed
from benchmarks.accuracy.losses import LossError, made
from benchmarks.accuracy.methods import BITS, I64, Methods
from benchmarks.accuracy.unseen import while_resolving
from benchmarks.flow_truth import FlowTruthError
from benchmarks.flow_truth.record import missing
from benchmarks.recovery.bursts import PSB
from benchmarks.recovery.compare import FAR
from capture.live.drain import Message
from stages.messages import Chunk, Clock, PtConfig, StreamKey, StreamOpen, Tick
from stages.messages.bytecodes import FrameEvent
from tests.benchmarks.kept import kept_run
from tests.benchmarks.test_recovery import longest_common_subsequence

ENTER, RETURN, EVENT_LOST = (-int(e) for e in (FrameEvent.ENTER, FrameEvent.RETURN, FrameEvent.LOST))
STREAM = StreamKey("h", 1, 0, -1)
MODEL_BUFFER = 4000


def keys(numbers: list[int]) -> I64:
    return np.array(numbers, np.int64)


def numbered(count: int) -> tuple[Methods, list[int]]:
    """Methods, and a bytecode of each in turn."""
    numbers = Methods()
    return numbers, [numbers.number("A", f"m{k % 7}", "()V") << BITS | k for k in range(count)]


def compared(truth: list[int], found: list[int], numbers: Methods, top: int) -> dict[str, Any]:
    entered = [x >> BITS for e, x in pairwise(truth) if e == ENTER]
    return control_flow(beside(Truth(keys(truth), keys(entered), 0), keys(found)), numbers, top)


# ---- the alignment

PARTS = st.lists(st.sampled_from([list(range(k, k + 40)) for k in (0, 100, 200)] + [[7], [8, 8]]), max_size=8)


@given(PARTS, PARTS)
@settings(deadline=None, max_examples=60)
def test_pairs_are_equal_in_order_and_no_more_than_a_longest_common_subsequence(
    a: list[list[int]], b: list[list[int]]
) -> None:
    one, other = [x for part in a for x in part], [x for part in b for x in part]
    pairs = aligned(keys(one), keys(other))
    assert [one[i] for i in pairs.one] == [other[j] for j in pairs.other]
    assert (np.diff(pairs.one) > 0).all()
    assert (np.diff(pairs.other) > 0).all()
    assert len(pairs.one) <= longest_common_subsequence(one, other)
    assert len(aligned(keys(one), keys(one)).one) == len(one)


def test_a_part_is_found_however_far_away() -> None:
    truth = list(range(60_000))
    assert len(aligned(keys(truth), keys(truth[50_000:])).one) == 10_000
    assert len(aligned(keys(truth), keys([*range(-90_000, 0), *truth[:100], *truth[50_000:]])).one) == 10_100
    swapped = [*truth[30_000:], *truth[:30_000]]
    assert len(aligned(keys(truth), keys(swapped)).one) == 30_000


@pytest.mark.parametrize("every", [2 * GRAMS[0], 100, 1000])
def test_each_planted_error_is_counted_and_no_other(every: int) -> None:
    numbers, truth = numbered(10_000)
    for change, wrong in (
        (lambda k: [], 0),  # left out
        (lambda k: [1 << 62], 1),  # another in its place
        (lambda k: [k, 1 << 62], 1),  # one too many
    ):
        found = [x for k in truth for x in (change(k) if k and k % every == 0 else [k])]
        errors = sum(k > 0 and k % every == 0 for k in truth)
        told = compared(truth, found, numbers, 3)
        missing = 0 if len(change(1)) == 2 else errors
        assert told["right"] == pytest.approx(1 - missing / len(truth), abs=1e-12)
        assert told["wrong"] == pytest.approx(wrong * errors / len(found), abs=1e-12)


def test_an_error_at_the_beginning_of_a_loop_is_not_one_in_each_round() -> None:
    rounds = [x for k in range(4000) for x in (1, 2, [3, 4, 5, 6][k % 4], [7, 8, 9, 10, 11][k % 5])]
    strange = list(range(100, 100 + 2 * FAR))
    pairs = aligned(keys([50, *rounds, 60]), keys([50, *rounds[:8], *strange, *rounds[8:], 60]))
    assert len(pairs.one) == len(rounds) + 2


def test_errors_in_loops_of_growing_rounds_do_not_shift_what_is_behind_them() -> None:
    def calls(first: int, last: int) -> list[int]:
        return [x for k in range(first, last) for _ in range(2) for x in (1, *[2, 3, 4, 5, 6, 7, 8, 9] * k, 10)]

    truth = [*calls(20, 60), *calls(20, 40), *calls(20, 60)]
    strange = list(range(100, 2100))
    found = [*truth[:5000], *strange, *truth[5000:20_000], *strange, *truth[20_300:]]
    pairs = aligned(keys([50, *truth, 60]), keys([50, *found, 60]))
    assert len(pairs.one) == len(truth) + 2 - 300


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40), st.integers(0, 3))
@settings(deadline=None, max_examples=200)
def test_where_little_differs_pairs_are_a_longest_common_subsequence(a: list[int], b: list[int], first: int) -> None:
    one, other = keys([9] * first + a), keys([9] * first + b)
    pairs = aligned(one, other)
    assert len(pairs.one) == longest_common_subsequence(one.tolist(), other.tolist())
    assert (one[pairs.one] == other[pairs.other]).all()


def test_gaps_in_a_loop_do_not_make_errors_count_more() -> None:
    turns = [x for k in range(20) for x in (1, 2, 10 + k % 2, 20 + k % 4, 30 + k % 5, *range(40, 90))]
    truth = turns * 60
    cut = [*truth[:9000], *truth[11_345:30_000], *truth[30_777:]]
    assert len(aligned(keys(truth), keys(cut)).one) == len(cut)
    wrong = [1 << 62 if k % 101 == 100 else x for k, x in enumerate(cut)]
    assert len(aligned(keys(truth), keys(wrong)).one) == len(cut) - len(cut) // 101


def test_of_two_that_change_places_one_is_missing_and_one_is_wrong() -> None:
    numbers, truth = numbered(1000)
    found = [*truth[:500], truth[501], truth[500], *truth[502:]]
    told = compared(truth, found, numbers, 3)
    assert told["right"] == pytest.approx(0.999)
    assert told["wrong"] == pytest.approx(0.001)


def test_differences_are_named_by_kind() -> None:
    numbers, truth = numbered(700)
    strange = numbers.number("B", "never", "()V") << BITS
    truth[600:600] = [strange, strange | 1]
    found = [x for x in truth if x >> BITS != strange >> BITS]
    found[100:110] = [EVENT_LOST]
    del found[300:303]
    told = compared(truth, found, numbers, 1)
    shares = {kind["kind"]: round(kind["share"] * len(truth)) for kind in told["differences"]}
    assert shares == {UNKNOWN_METHOD: 2, LOST: 10, OTHER: 3}
    assert told["differences"][0]["methods"] == [("B.never", 2)]


def test_bytecodes_are_no_errors_where_the_truth_has_methods_without_steps() -> None:
    numbers, truth = numbered(10_000)
    hidden = numbers.number("C", "load", "()V")
    silent = keys([*truth[:100], ENTER, RETURN, *truth[100:]])
    found = [*truth[:100], ENTER, hidden << BITS, hidden << BITS | 1, RETURN, *truth[100:9000], truth[0], *truth[9000:]]
    a = beside(Truth(silent, keys([hidden]), 0), keys(found))
    told = control_flow(a, numbers, 1)
    assert (told["right"], told["unseen"], told["found"]) == (1, 2, 10_001)
    assert told["wrong"] == pytest.approx(1 / 10_001)
    assert sum(executed(a, numbers)[1].values()) == 10_001


def test_upcalls_for_a_bytecode_are_unseen_and_those_of_native_methods_are_not() -> None:
    events = [-int(e) for e in (FrameEvent.UPCALL, FrameEvent.UPRETURN)]
    up, back = events
    loads = [up, ENTER, 20, 21, RETURN, ENTER, 30, RETURN, back]
    lost = [up, ENTER, 20, EVENT_LOST]
    sequence = [
        1,
        *lost,
        2,
        *loads,
        3,
        ENTER,
        *loads,
        22,
        *loads,
        23,
        RETURN,
        4,
        ENTER,
        40,
        *loads,
        41,
        RETURN,
        *loads,
        5,
    ]
    seen = keys(sequence)[~while_resolving(keys(sequence))]
    native = [20, 21, 30]
    assert [x for x in seen.tolist() if x >= 0] == [1, 2, 3, *native, 22, *native, 23, 4, 40, 41, 5]


def test_upcalls_that_hide_no_steps_are_seen() -> None:
    up, back = SEEN_UPCALL, -int(FrameEvent.UPRETURN)
    sequence = keys([1, up, ENTER, 20, RETURN, back, up, ENTER, 21, RETURN, back, 2])
    assert not while_resolving(sequence).any()


def test_it_begins_with_main() -> None:
    numbers, truth = numbered(3000)
    main = Truth(keys(truth), keys([]), 1000)
    told = control_flow(beside(main, keys([*truth[500:990], *truth[1010:]])), numbers, 1)
    assert (told["bytecodes"], told["found"]) == (2000, 1990)
    assert told["right"] == pytest.approx(1990 / 2000)


def test_it_begins_behind_the_launcher_if_that_was_found() -> None:
    numbers, truth = numbered(3000)
    launcher = numbers.number("L", "l", "()V")
    start = [launcher << BITS, *truth[1000:1400], launcher << BITS | 1]
    main = Truth(keys([*start, *truth[1000:]]), keys([]), len(start), keys([launcher]))
    found = [*start, *truth[1400:]]
    told = control_flow(beside(main, keys(found)), numbers, 1)
    assert told["right"] == pytest.approx(1600 / 2000)
    without = control_flow(beside(main, keys(found[402:])), numbers, 1)
    assert (without["right"], without["wrong"]) == (told["right"], 0)


def test_methods_are_compared_one_by_one() -> None:
    truth = {"a": 1000, "b": 500, "c": 10}
    told = by_method(truth, {"a": 991, "b": 490, "c": 10, "d": 5000}, 100, 0.01)
    assert (told["methods"], told["within"], told["off"], told["top_10"]) == (3, 2, [("b", 500, 490)], 3)


# ---- clients

CODE = st.lists(st.one_of(st.integers(0, 6), st.sampled_from([ENTER, RETURN])), max_size=60)


def naive_paths(sequence: list[int]) -> Counter[tuple[int, ...]]:
    out: Counter[tuple[int, ...]] = Counter()
    stack: list[list[int]] = []
    for x in sequence:
        if x == ENTER:
            stack.append([])
        elif x == RETURN:
            if stack and (path := stack.pop()):
                out[tuple(path)] += 1
        elif stack:
            if stack[-1] and stack[-1][-1] >= x:
                out[tuple(stack[-1])] += 1
                stack[-1] = []
            stack[-1].append(x)
    return out


@given(CODE)
@settings(deadline=None, max_examples=200)
def test_paths_end_at_jumps_back_and_returns(code: list[int]) -> None:
    depth, balanced = 0, list[int]()
    for x in code:
        depth += (x == ENTER) - (x == RETURN)
        if depth < 1:
            depth = 0 if x == RETURN else depth
            continue  # outside of any method
        balanced.append(x)
    _, times = paths(keys(balanced))
    assert sorted(times.tolist()) == sorted(naive_paths(balanced).values())


def test_a_frame_that_was_there_has_paths_from_its_first_jump_back_on() -> None:
    inside = [5, ENTER, 0, RETURN, 6, 2, 5, 6, 2, 3, RETURN]
    _, times = paths(keys(inside))
    assert sorted(times.tolist()) == [1, 1, 1]  # 0; 2 5 6; 2 3
    assert paths(keys([5, 6, ENTER, EVENT_LOST, 7, 8]))[1].tolist() == []


def test_path_frequencies_overlap_in_their_smaller_shares() -> None:
    straight, turned = [ENTER, 0, 1, 2, RETURN], [ENTER, 0, 2, RETURN]
    three, two = paths(keys(3 * straight + turned)), paths(keys(straight + turned))
    assert overlap(three, three) == 1
    assert overlap(three, two) == pytest.approx(0.75)


def test_coverage_has_precision_and_recall() -> None:
    told = coverage(keys([ENTER, 0, 1, 2, 3, 3]), keys([0, 1, 9]))
    assert told == (2 / 3, 2 / 4)


# ---- losses


HZ, SIZE, EACH = 1000, 1000, 40


def recorded() -> list[Message]:
    """A drain a tenth of a second, of a chunk with a PSB at its beginning."""
    clock = Clock(1_000_000, 0, 0, 0)
    assert clock.hz == HZ
    out: list[Message] = [StreamOpen(STREAM, PtConfig(), clock)]
    for k in range(EACH):
        data = np.frombuffer(PSB + bytes((k,)) * (SIZE - len(PSB)), np.uint8)
        out += [Chunk(STREAM, k, k * SIZE, data, (), 1000 + k * 100), Tick("h", 1, 1000 + k * 100)]
    return out


@pytest.mark.parametrize(
    ("loss", "kept"),
    [
        ("buffer=600", EACH * 600),
        ("buffer=1000", EACH * SIZE),
        # read at half the rate at which it is written: what goes in is what was read, and the buffer's size
        ("model=5000", 5000 * (EACH - 1) // 10 + MODEL_BUFFER),
        ("duty=50%", EACH // 2 * SIZE),
    ],
)
def test_a_loss_keeps_as_much_as_it_says_and_begins_again_at_a_psb(
    loss: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.accuracy.losses.MODEL_BUFFER", MODEL_BUFFER)
    make, messages = made(loss), recorded()
    assert make is not None
    whole = b"".join(bytes(m.data) for m in messages if isinstance(m, Chunk))
    chunks = [m for m in make(messages) if isinstance(m, Chunk)]
    assert sum(len(chunk.data) for chunk in chunks) == pytest.approx(kept, abs=SIZE)
    end = 0
    for chunk in chunks:
        assert bytes(chunk.data) == whole[chunk.offset : chunk.offset + len(chunk.data)]
        assert chunk.offset == end or bytes(chunk.data).startswith(PSB)
        end = chunk.offset + len(chunk.data)
    assert len([m for m in make(recorded()) if not isinstance(m, Chunk)]) == EACH + 1


@pytest.mark.parametrize("loss", ["half", "duty=0", "duty=150%", "model=-1", "buffer", "bursts=x"])
def test_a_loss_that_is_none_is_refused(loss: str) -> None:
    with pytest.raises(LossError, match="--loss"):
        made(loss)


def test_no_loss() -> None:
    assert made("none") is None


# ---- what the recording itself lacks


def test_bytes_that_found_no_room_or_were_not_read_are_missing_in_a_recording(tmp_path: Path) -> None:
    stream = {"aux_head": 1000, "aux_dropped": 0, "ovf_dropped": 0}
    kept_run(tmp_path, 2000, [stream, stream])
    assert missing(tmp_path) == 0
    kept_run(tmp_path, 1990, [stream, stream | {"aux_dropped": 300, "ovf_dropped": 7}])
    assert missing(tmp_path) == 317


@pytest.mark.parametrize("state", [{"refused": 1}, {"state": "running"}, {"state": None}])
def test_what_a_recording_lacks_is_not_guessed(state: dict[str, Any], tmp_path: Path) -> None:
    kept_run(tmp_path, 0, [], **state)
    with pytest.raises(FlowTruthError, match=re.escape(str(tmp_path))):
        missing(tmp_path)


def test_it_says_how_much_the_recording_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    show({"truth": {"bytecodes": 1}, "recording": {"bytes": 5000, "missing_bytes": 1234}})
    assert "recording: 5,000 bytes, and 1,234 are missing in it" in capsys.readouterr().out
