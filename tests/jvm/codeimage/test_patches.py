"""Code that is patched in place: the bytes at each place and time, against a plain account of the records."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.code import diff as codediff
from jvm.code.image import CodeImage
from jvm.code.revisions import SETTLED
from jvm.code.snapshot import CodeView
from jvm.code.version import FOREVER
from tests.jvm.exportwriter import Writer

BASE = 0x1000
REPLAYED = 1
CODE = bytes(range(16, 48))


def methods(writer: Writer) -> Writer:
    return writer.method(1, "La/A;", "outer").method(2, "La/B;", "inner").method(3, "La/C;", "other")


def loaded(*patches: tuple[int, int, int, bytes]) -> CodeImage:
    """An nmethod with `CODE` at BASE, loaded at 1000, and (offset, before, after, bytes) patches."""
    code = CodeImage()
    written = methods(Writer()).at(1000).nmethod_load(BASE, CODE, 1, compile_id=1)
    for offset, before, after, data in patches:
        written.code_patch(BASE + offset, before, after, data)
    code.feed(written.bytes())
    return code


def text(view: CodeView, address: int, size: int) -> bytes:
    """The bytes that stand there, all in one blob."""
    row = int(np.searchsorted(view.start, np.uint64(address), side="right")) - 1
    assert address + size <= int(view.end[row])
    at = int(view.data_at[row]) + address - int(view.start[row])
    return view.code[at : at + size].tobytes()


def test_a_patch_holds_from_the_middle_of_its_interval() -> None:
    code = loaded((4, 2000, 3000, b"\xaa\xbb"))
    old, new = CODE, CODE[:4] + b"\xaa\xbb" + CODE[6:]
    assert [text(code.view(t), BASE, 32) for t in (0, 2499, 2500, 9999)] == [old, old, new, new]
    assert text(code.view(), BASE, 32) == new
    assert code.counts["patches"] == 1
    assert [code.next_change(t) for t in (0, 2499, 2500, FOREVER)] == [2500, 2500, FOREVER, FOREVER]


def test_many_patches_are_put_into_time_in_steps() -> None:
    """As many as at a late attach; a question in between is answered as if they all had been."""
    count = 5 * SETTLED

    def told() -> CodeImage:
        code = CodeImage()
        written = Writer().at(1000)
        for k in range(count):
            written.dynamic_code(BASE + 64 * k, f"code {k}", CODE)
        for k in range(count):
            written.code_patch(BASE + 64 * k + 4, 20000, 30000, b"\xaa")
        code.feed(written.bytes())
        return code

    def right(code: CodeImage) -> bool:
        view = code.view(25000)
        new = CODE[:4] + b"\xaa" + CODE[5:]
        return all(text(view, BASE + 64 * k, 32) == new for k in range(count))

    code = told()
    assert [code._revisions.patches for _ in code.settling()] == [SETTLED * k for k in range(1, 6)]
    assert list(code.settling()) == []
    assert right(code)
    asked = told()
    next(asked.settling())
    assert right(asked)


def test_uncertain_sites() -> None:
    code = loaded((4, 2000, 3000, b"\xaa\xbb"), (4, 3000, 3100, b"\xcd\xef"), (20, 3000, 3100, b"\x90"))

    def sites(*times: int) -> list[tuple[int, bytes, bytes, int, int]]:
        found = code.uncertain(*times)
        return [
            (int(a) - BASE, found.old(i).tobytes(), found.new(i).tobytes(), int(found.before[i]), int(found.after[i]))
            for i, a in enumerate(found.address)
        ]

    def around(new: bytes) -> bytes:
        return CODE[:4] + new + CODE[6:14]

    first = (0, CODE[:14], around(b"\xaa\xbb"), 2000, 3000)
    second = (0, around(b"\xaa\xbb"), around(b"\xcd\xef"), 3000, 3100)
    third = (12, CODE[12:29], CODE[12:20] + b"\x90" + CODE[21:29], 3000, 3100)
    assert sites(1999) == sites(3101) == []
    assert sites(2000) == sites(2999) == [first]
    assert sites(3050) == [second, third]
    assert sites(2999, 3001) == [first, *sites(3050)]


def test_views_made_before_stay_as_they_were() -> None:
    code = loaded()
    old = code.view(5000)
    code.feed(Writer().code_patch(BASE, 2000, 3000, b"\xaa").bytes())
    assert text(old, BASE, 32) == CODE
    assert text(code.view(5000), BASE, 1) == b"\xaa"
    assert code.view(5000).epoch > old.epoch


def test_told_again_changes_nothing() -> None:
    written = methods(Writer()).at(1000).nmethod_load(BASE, CODE, 1, compile_id=1)
    written.code_patch(BASE + 4, 2000, 3000, b"\xaa").code_patch(BASE + 4, 3000, 4000, b"\xbb")
    code = CodeImage()
    for _ in range(2):
        code.feed(written.bytes())
        assert [text(code.view(t), BASE + 4, 1) for t in (2400, 2600, 3600)] == [CODE[4:5], b"\xaa", b"\xbb"]
    assert code.next_change(3600) == FOREVER


def test_a_replay_that_shows_other_bytes_is_a_patch_since_the_last_telling() -> None:
    code = loaded((4, 2000, 3000, b"\xaa"))
    code.feed(Writer().at(5000).nmethod_load(BASE, CODE, 1, compile_id=1, flags=REPLAYED).bytes())
    assert [text(code.view(t), BASE + 4, 1) for t in (2499, 2500, 3999, 4000)] == [
        CODE[4:5],
        b"\xaa",
        b"\xaa",
        CODE[4:5],
    ]


def test_the_load_wins_over_what_is_written_there_before_it() -> None:
    code = CodeImage()
    written = methods(Writer()).at(1000).nmethod_load(BASE, CODE, 1, compile_id=1)
    written.at(2000).nmethod_unload(BASE, 1).code_patch(BASE, 2500, 2600, b"\1\2\3")
    written.at(3000).nmethod_load(BASE, b"\7" * 32, 2, compile_id=2).code_patch(BASE, 2900, 2990, b"\1\2\3")
    code.feed(written.bytes())
    assert text(code.view(1500), BASE, 32) == CODE
    assert text(code.view(3000), BASE, 32) == text(code.view(), BASE, 32) == b"\7" * 32
    assert code.counts["patches_nowhere"] == 2


def test_code_where_filling_was_has_been_there_all_along() -> None:
    code = CodeImage()
    code.feed(Writer().at(1000).blob(BASE, "native signature handlers", b"\xc3" * 8 + bytes(56)).bytes())
    code.feed(Writer().code_patch(BASE + 24, 2000, 3000, b"\xe9\1\2\3\4").bytes())
    assert [text(code.view(t), BASE + 24, 5) for t in (0, 2999)] == [b"\xe9\1\2\3\4"] * 2
    assert code.next_change(1) == FOREVER
    assert not len(code.uncertain(0, FOREVER).address)
    # but a displacement that was zero is an operand
    code.feed(Writer().code_patch(BASE + 26, 4000, 5000, b"\5\6").bytes())
    assert [text(code.view(t), BASE + 24, 5) for t in (4499, 4500)] == [b"\xe9\1\2\3\4", b"\xe9\1\5\6\4"]


def test_much_code_right_behind_other_code_has_been_there_all_along() -> None:
    code = CodeImage()
    new = bytes(range(1, codediff.LONG + 1))
    code.feed(Writer().at(1000).blob(BASE, "native signature handlers", b"\xc3" * 8 + bytes(56)).bytes())
    code.feed(Writer().code_patch(BASE + 8, 2000, 3000, new).bytes())
    assert [text(code.view(t), BASE + 8, len(new)) for t in (0, 2999)] == [new] * 2
    code.feed(Writer().at(1000).blob(BASE + 0x100, "another", b"\xc3" * 8 + bytes(56)).bytes())
    code.feed(Writer().code_patch(BASE + 0x108, 2000, 3000, new[:-1]).bytes())  # so much could be operands
    assert text(code.view(2400), BASE + 0x108, 8) == bytes(8)


def test_a_patch_in_nested_stubs_is_seen_in_the_inner_one() -> None:
    code = CodeImage()
    written = Writer().blob(BASE, "StubRoutines (1)", bytes(range(64)))
    code.feed(written.dynamic_code(BASE + 16, "StubRoutines::a", bytes(range(16, 24))).bytes())
    code.feed(Writer().code_patch(BASE + 12, 2000, 3000, b"\xaa" * 8).bytes())
    assert code.counts["patches"] == 1
    assert text(code.view(2499), BASE + 16, 8) == bytes(range(16, 24))
    assert text(code.view(2500), BASE + 16, 8) == b"\xaa" * 4 + bytes(range(20, 24))
    assert text(code.view(2500), BASE + 12, 4) == b"\xaa" * 4


def test_the_mark_and_what_cannot_be() -> None:
    code = loaded((0, 500, 600, b""), (4, 3000, 3000, b"\xaa"), (40, 1, 2, b"\1"), (30, 2000, 3000, b"\1\2\3\4"))
    assert [code.read_until(tsc) for tsc in (499, 500, 1 << 63)] == [0, 500, 500]
    assert code.counts["bad_patches"] == code.counts["patches_nowhere"] == 1
    assert text(code.view(), BASE, 32) == CODE[:30] + b"\1\2"


def test_what_no_one_asks_for_is_given_back() -> None:
    code = loaded()
    for n in range(1000):
        tsc = 2000 + 100 * n
        code.feed(Writer().code_patch(BASE + n % 32, tsc, tsc + 50, bytes([n & 255])).bytes())
        expected = text(code.view(), BASE, 32)
        code.forget_before(tsc)
        assert text(code.view(), BASE, 32) == expected
    assert code._revisions._store.code.used < 3 * 4096
    assert len(code._revisions._store.revisions.rows) < 5
    assert len(code.uncertain(0, FOREVER).address) < 5


def test_runs_of_differences() -> None:
    old = np.zeros(64, np.uint8)
    new = old.copy()
    new[[3, 4, 11, 30]] = 1
    assert codediff.runs(old, new) == [(3, 12), (30, 31)]
    assert codediff.runs(old, old) == []


step = st.tuples(
    st.sampled_from(["load", "patch", "patch", "patch", "patch", "replay", "unload", "stub", "view"]),
    st.integers(0, 10),
    st.integers(1, 6),
    st.integers(1, 3),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(step, max_size=30))
def test_views_against_a_plain_account(steps: list[tuple[str, int, int, int]]) -> None:
    """Every byte of every version at every time: its first byte, overwritten by the patches in order, each from the
    middle of its interval on."""
    code = CodeImage(lateness=5)
    code.feed(methods(Writer(tsc=1)).bytes())
    patches: list[tuple[int, int, int, int, bytes]] = []  # told when, address, before, after, code
    first: dict[int, bytes] = {}
    tsc = 100
    for n, (what, at, size, method) in enumerate(steps):
        tsc += 10
        start, data = BASE + 4 * at, bytes([1 + n]) * (4 * size)
        writer = Writer(tsc)
        if what in ("load", "replay"):
            writer.nmethod_load(start, data, method, compile_id=n + 1, flags=what == "replay")
        elif what == "unload":
            writer.nmethod_unload(start, method)
        elif what == "stub":
            writer.dynamic_code(start, f"s{n}", data)
        elif what == "patch":
            writer.code_patch(start + size, tsc - 13, tsc, data)
            patches.append((n, start + size, tsc - 13, tsc, data))
        else:
            code.view(tsc)  # so that patches are not all made at once
        code.feed(writer.bytes())
        for v in code.versions():
            if v.id not in first:
                first[v.id] = data
    for v in code.versions():
        whole = bytearray(first[v.id])
        changes = [(v.since, bytes(whole))]
        for _, address, before, after, data in patches:
            if not v.loaded < after <= max(v.until, 0):
                continue
            old = bytes(whole)
            for i, byte in enumerate(data):
                if v.start <= address + i < v.end:
                    whole[address + i - v.start] = byte
            if bytes(whole) != old:
                at = max((max(before, v.loaded) + after) // 2, changes[-1][0])
                changes.append((at, bytes(whole)))
        assert code.code(v).tobytes() == whole
        for t in range(v.since, min(v.until, tsc + 20)):
            if code.at(v.start, t) is v:
                want = [state for since, state in changes if since <= t][-1]
                view = code.view(t)
                row = int(np.searchsorted(view.start, np.uint64(v.start), side="right")) - 1
                assert int(view.blob[row]) == v.id
                size = int(view.end[row]) - v.start
                assert text(view, v.start, size) == want[:size]
    times = list(itertools.takewhile(lambda t: t < FOREVER, _changes(code)))
    for t in range(tsc + 20):
        one, other = code.view(t), code.view(t + 1)
        same = all(
            np.array_equal(getattr(one, name), getattr(other, name)) for name in ("start", "end", "blob", "data_at")
        )
        assert same or t + 1 in times


def _changes(code: CodeImage) -> list[int]:
    times = [code.next_change(0)]
    while times[-1] < FOREVER:
        times.append(code.next_change(times[-1]))
        assert times[-1] > times[-2]
    return times


def call(at: int, to: int) -> bytes:
    return b"\xe8" + (to - at - 5).to_bytes(4, "little", signed=True)


def test_inline_cache_stubs_are_seen_through() -> None:
    """A call to a stub leads to the stub's target already: the stub is soon another's."""
    site, stubs, to, other, third = BASE + 8, 0x9000, 0x5000, 0x6000, 0x7000
    code = CodeImage()
    written = methods(Writer()).at(900).dynamic_code(stubs, "InlineCacheBuffer", b"\x90" * 256).at(1000)
    written.nmethod_load(BASE, CODE[:8] + call(site, other) + CODE[13:], 1, compile_id=1)
    before = [(2000, 3000, stubs + 0x20), (4000, 5000, to), (5000, 6000, stubs + 0x40), (6000, 7000, stubs + 0x60)]
    for since, until, leads in [*before, (7000, 8000, other)]:
        written.code_patch(site + 1, since, until, call(site, leads)[1:])
        if until == 6000:
            jump = stubs + 0x40 + 10
            written.code_patch(jump, 5500, 6050, b"\xe9" + call(jump, third)[1:])
            written.code_patch(jump, 6100, 6900, b"\xe9" + call(jump, to)[1:])
    code.feed(written.bytes())
    leads_to = {t: text(code.view(t), site, 5) for t in (1500, 3500, 4800, 5800, 6800, 7800)}
    (last,) = [v for v in code.versions() if v.start == BASE]
    assert code.code(last)[8:13].tobytes() == call(site, other)
    assert leads_to == {
        1500: call(site, other),
        3500: call(site, to),
        4800: call(site, to),
        5800: call(site, third),  # as the stub did then
        6800: call(site, other),
        7800: call(site, other),
    }


@pytest.mark.parametrize("read", [(2000, 2990), (2990, 3010)])
def test_a_call_through_a_stub_leads_to_a_method_since_there_is_one(read: tuple[int, int]) -> None:
    """Whether the stub was read before the call, or after it."""
    site, stub, second = BASE + 8, 0x9020, 0x6000
    code = CodeImage()
    written = methods(Writer()).at(900).dynamic_code(0x9000, "InlineCacheBuffer", b"\x90" * 256).at(1000)
    written.nmethod_load(BASE, CODE[:8] + call(site, 0x5000) + CODE[13:], 1, compile_id=1)
    written.at(2800).nmethod_load(second, CODE, 2, compile_id=2, verified_entry=second + 8)
    code.feed(written.bytes())
    assert code.next_change(2000) == FOREVER
    patches = Writer().code_patch(site + 1, 2000, 3000, call(site, stub)[1:])
    code.feed(patches.code_patch(stub + 10, *read, b"\xe9" + call(stub + 10, second + 8)[1:]).bytes())
    assert [text(code.view(t), site, 5) for t in (2799, 2800)] == [call(site, 0x5000), call(site, second + 8)]


def test_a_jump_that_ends_a_method_holds_since_the_next_version_of_it_was_there() -> None:
    jump = b"\xe9\x10\x00\x00\x00"
    code = CodeImage()
    written = methods(Writer()).at(1000).nmethod_load(BASE, CODE, 1, compile_id=1, verified_entry=BASE + 8)
    written.at(2900).nmethod_load(0x5000, CODE, 1, compile_id=2, verified_entry=0x5008)
    written.code_patch(BASE + 20, 2000, 3000, b"\xaa").code_patch(BASE + 8, 2000, 3000, jump)
    code.feed(written.bytes())
    assert [text(code.view(t), BASE + 8, 5) == jump for t in (2499, 2899, 2900)] == [False, False, True]
    assert [text(code.view(t), BASE + 20, 1) == b"\xaa" for t in (2499, 2500)] == [False, True]
    (_, last) = code.uncertain(0, FOREVER).after.tolist()
    assert last == 2900


def test_a_call_leads_to_a_method_since_there_is_one() -> None:
    site, first, second = BASE + 8, 0x5000, 0x6000
    code = CodeImage()
    written = methods(Writer()).at(900).nmethod_load(first, CODE, 2, verified_entry=first + 8).at(1000)
    written.nmethod_load(BASE, CODE[:8] + call(site, first + 8) + CODE[13:], 1)
    written.at(2800).nmethod_load(second, CODE, 2, verified_entry=second + 8)
    written.code_patch(site + 1, 2000, 3000, call(site, second + 8)[1:3])
    written.code_patch(site + 1, 3000, 4000, call(site, first + 8)[1:])
    code.feed(written.bytes())
    changes = [code.next_change(t) for t in (2000, 2800)]
    assert changes == [2800, 3500]
    assert text(code.view(2799), site, 5) == call(site, first + 8)
    assert text(code.view(2800), site, 5) == call(site, second + 8)


def test_revisions_lag_by_a_part_of_the_lateness() -> None:
    """Also if that is told later than the code at the beginning."""
    site, second = BASE + 8, 0x6000
    code = CodeImage(lateness=0)
    code.feed(methods(Writer()).at(1000).nmethod_load(BASE, CODE[:8] + call(site, 0x5000) + CODE[13:], 1).bytes())
    code.lateness = 160
    written = methods(Writer()).at(2800).nmethod_load(second, CODE, 2, verified_entry=second + 8)
    code.feed(written.code_patch(site + 1, 2000, 3000, call(site, second + 8)[1:]).bytes())
    assert code.next_change(2700) == 2810
    assert text(code.view(2810), site, 5) == call(site, second + 8)


def test_a_patch_changes_the_epoch_and_not_the_census() -> None:
    """Facts about versions need not be found anew because one's bytes have changed."""
    image = loaded()
    epoch, census = image.epoch, image.census
    image.feed(Writer().code_patch(BASE + 3, 2000, 2100, b"\x90").bytes())
    assert image.epoch > epoch
    assert image.census == census
    image.feed(methods(Writer()).at(3000).nmethod_load(BASE + 0x100, CODE, 2, compile_id=2).bytes())
    assert image.census > census
    census = image.census
    image.feed(Writer().at(4000).nmethod_unload(BASE, 1).bytes())
    assert image.census > census
    census = image.census
    image.forget_before(5000)
    assert image.census > census
