from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jvm.code.image import CodeImage
from jvm.code.sites import UNKNOWN_CODE, SiteKind
from jvm.code.version import FOREVER, Kind, Version
from stages.messages import CodeKind
from tests.jvm.exportwriter import Writer

REPLAYED = 1


def image(writer: Writer, lateness: int | None = None) -> CodeImage:
    made = CodeImage(lateness)
    made.feed(writer.bytes())
    return made


def methods(writer: Writer) -> Writer:
    return writer.method(1, "La/A;", "outer").method(2, "La/B;", "inner").method(3, "La/C;", "other")


def label(code: CodeImage, ip: int, tsc: int) -> tuple[str, SiteKind]:
    site = int(code.sites_of(np.array([ip], np.uint64), np.array([tsc], np.uint64))[0])
    return code.sites.label(site), code.sites.kind_of[site]


def test_kinds_are_those_of_the_messages() -> None:
    assert {k.name: int(k) for k in SiteKind} == {k.name: int(k) for k in CodeKind}


def test_an_address_belongs_to_the_innermost_inlined_method() -> None:
    pcs = [(4, [(2, 7), (1, 3)]), (8, [(1, 5)]), (12, [])]
    code = image(methods(Writer()).nmethod_load(0x1000, bytes(16), 1, pcs, level=4, blob=0xFC0))
    assert [label(code, ip, 5000)[0] for ip in (0x1000, 0x1003, 0x1004, 0x1007, 0x1008, 0x100C, 0x100F)] == [
        "a.B.inner", "a.B.inner", "a.A.outer", "a.A.outer", "a.A.outer", "a.A.outer", "a.A.outer",
    ]  # fmt: skip
    assert label(code, 0xFFF, 5000) == label(code, 0x1010, 5000) == (UNKNOWN_CODE, SiteKind.UNKNOWN)


@pytest.mark.parametrize(
    ("level", "blob", "kind"),
    [(1, 9, "C1"), (3, 0, "C1"), (4, 9, "C2"), (0, 9, "NATIVE_WRAPPER"), (0, 0, "UNKNOWN")],
)
def test_kind_of_compiled_code(level: int, blob: int, kind: str) -> None:
    code = image(methods(Writer()).nmethod_load(0x1000, bytes(16), 1, level=level, blob=blob))
    assert label(code, 0x1000, 5000) == ("a.A.outer", SiteKind[kind])


def begun() -> Writer:
    """The first records of an agent."""
    return methods(Writer(step=0)).at(1000).codelet(0x100, 0x110, 21, "iload").thread_start(7, "main", flags=REPLAYED)


def test_a_load_reaches_back_as_far_as_it_may_be_late() -> None:
    written = begun().at(10_000).nmethod_load(0x1000, bytes(16), 1)
    assert image(written, lateness=500).at(0x1000, 9_500)
    assert image(written, lateness=500).at(0x1000, 9_499) is None
    assert image(written).at(0x1000, 0)


def test_what_is_told_at_the_beginning_reaches_back_without_limit() -> None:
    code = image(begun().at(1500).nmethod_load(0x1000, bytes(16), 1).at(1501).nmethod_load(0x2000, bytes(8), 2), 500)
    assert code.at(0x1000, 0)
    assert code.at(0x2000, 1000) is None
    assert code.at(0x2000, 1001)
    assert not code.settled(1500)
    assert code.settled(1501)


def test_what_was_found_reaches_back_to_what_stood_there_before() -> None:
    written = begun().at(10_000).nmethod_load(0x1000, bytes(16), 1, flags=REPLAYED)
    written.codelet(0x2000, 0x2010, 21, "iload").blob(0x3000, "StubRoutines (1)", bytes(8))
    code = image(written, lateness=10)
    assert all(code.at(ip, 0) for ip in (0x1000, 0x2000, 0x3000))


def test_unload_and_reuse_of_the_address() -> None:
    written = methods(Writer()).at(1000).nmethod_load(0x1000, bytes(16), 1, compile_id=1)
    written.at(2000).nmethod_unload(0x1000, 1).at(3000).nmethod_load(0x1008, b"\1" * 16, 2, compile_id=2)
    code = image(written)
    assert [label(code, 0x1008, t)[0] for t in (1999, 2000, 2500)] == ["a.A.outer", "a.B.inner", "a.B.inner"]
    assert label(code, 0x1000, 1500)[0] == "a.A.outer"
    assert label(code, 0x1000, 2500)[0] == UNKNOWN_CODE
    assert code.counts["evicted"] == 0
    code.forget_before(2000)
    assert code.at(0x1008, 1500) is None
    assert len(list(code.versions())) == 1


def test_between_unload_and_the_next_load_nothing_stands_there() -> None:
    written = methods(Writer()).at(1000).nmethod_load(0x1000, bytes(16), 1).at(2000).nmethod_unload(0x1000, 1)
    code = image(written)
    assert code.at(0x1000, 1999)
    assert code.at(0x1000, 2000) is None


def test_a_lost_unload_is_evicted_and_counted() -> None:
    written = methods(Writer()).at(1000).nmethod_load(0x1000, bytes(16), 1, compile_id=1)
    written.at(2000).nmethod_load(0x0FF8, bytes(16), 2, compile_id=2)
    code = image(written)
    assert code.counts["evicted"] == 1
    assert [label(code, 0x1000, t)[0] for t in (1500, 2000)] == ["a.A.outer", "a.B.inner"]
    view = code.view()
    assert (view.start.tolist(), view.end.tolist()) == ([0xFF8], [0x1008])


def test_posted_late_behind_what_was_found_is_the_same_version() -> None:
    """Calls in it have been patched between the two; its compile id says that it is no other."""
    patched = bytes(8) + b"\xe8" + bytes(7)
    written = methods(Writer()).at(1000).nmethod_load(0x1000, bytes(16), 1, compile_id=1, flags=REPLAYED)
    code = image(written.at(2000).nmethod_load(0x1000, patched, 1, compile_id=1))
    (version,) = code.versions()
    assert (version.loaded, version.until) == (1000, FOREVER)
    assert code.code(version).tobytes() == patched
    assert (code.counts["loads"], code.counts["repeated"], code.counts["evicted"]) == (1, 1, 0)


def test_told_again_is_the_same_version() -> None:
    written = methods(Writer(step=0)).at(1000).nmethod_load(0x1000, bytes(16), 1, compile_id=5)
    written.at(1500).dynamic_code(0x5000, "vtable stub", bytes(8)).at(2000).nmethod_unload(0x1000, 1)
    written.at(2500).nmethod_load(0x1000, bytes(16), 2, compile_id=6)
    code = image(written)
    before = [(v.id, v.start, v.since, v.until) for v in code.versions()]
    code.feed(written.bytes())  # a spool that is read again
    code.feed(methods(Writer()).at(9000).nmethod_load(0x1000, bytes(16), 2, compile_id=6, flags=REPLAYED).bytes())
    assert [(v.id, v.start, v.since, v.until) for v in code.versions()] == before
    assert code.counts["loads"] == 2
    assert code.counts["evicted"] == 0


def test_bytes_that_differ_in_a_replay_were_patched() -> None:
    written = methods(Writer()).at(1000).nmethod_load(0x1000, bytes(16), 1, compile_id=5)
    code = image(written)
    old = code.view()
    code.feed(Writer().at(2000).nmethod_load(0x1000, b"\7" * 16, 1, compile_id=5, flags=REPLAYED).bytes())
    new = code.view()
    assert new.epoch > old.epoch
    assert old.code[old.data_at[0]] == 0
    assert new.code[new.data_at[0]] == 7
    assert old.blob[0] == new.blob[0]
    assert code.counts["patched"] == 1


def test_a_whole_replay_ends_what_it_does_not_mention() -> None:
    written = methods(Writer()).at(1000).nmethod_load(0x1000, bytes(16), 1).nmethod_load(0x2000, bytes(16), 2)
    replay: Callable[[Writer], Writer] = lambda w: w.nmethod_load(0x2000, bytes(16), 2, flags=REPLAYED)  # noqa: E731
    whole = image(replay(written.at(5000).replay_begin(1)).at(6000).replay_end(1))
    assert whole.at(0x1000, 5999)
    assert whole.at(0x1000, 6000) is None
    assert whole.at(0x2000, 7000)
    cut = image(methods(Writer()).at(1000).nmethod_load(0x1000, bytes(16), 1))
    cut.feed(replay(Writer(tsc=5000).replay_begin(1)).overflow(1, 1).replay_end(1).bytes())
    assert cut.at(0x1000, 9000)


def test_nested_stubs_the_inner_one_answers() -> None:
    written = Writer().blob(0x1000, "StubRoutines (1)", bytes(64)).dynamic_code(0x1010, "StubRoutines::a", bytes(8))
    code = image(written)
    assert [label(code, ip, 1 << 40)[0] for ip in (0x100F, 0x1010, 0x1017, 0x1018)] == [
        "[stub] StubRoutines", "[stub] StubRoutines::a", "[stub] StubRoutines::a", "[stub] StubRoutines",
    ]  # fmt: skip
    view = code.view()
    assert list(zip(view.start.tolist(), view.end.tolist(), view.data_at.tolist(), strict=True)) == [
        (0x1000, 0x1010, 0), (0x1010, 0x1018, 64), (0x1018, 0x1040, 0x18),
    ]  # fmt: skip


def test_codelets_name_the_bytecode() -> None:
    written = Writer().interpreter(0x1000, bytes(64)).codelet(0x1000, 0x1010, 182, "invokevirtual")
    written.codelet(0x1010, 0x1020, -1, "slow signature  handler")
    code = image(written, lateness=0)
    assert code.primed_at == FOREVER
    code.feed(Writer().thread_start(7, "main", flags=REPLAYED).bytes())
    assert code.primed_at == 1000
    assert label(code, 0x1008, 1) == ("[interpreter] invokevirtual", SiteKind.INTERPRETED)
    assert label(code, 0x1010, 1)[0] == "[interpreter] slow signature handler"
    assert label(code, 0x1020, 1) == ("[interpreter]", SiteKind.INTERPRETED)
    assert code.codelets.bytecode(0x100F) == 182
    assert code.codelets.bytecode(0x1020) == -1
    assert code.view().start.tolist() == [0x1000]


def test_a_method_whose_name_was_lost_gets_it_by_a_replay() -> None:
    code = image(Writer().at(1000).nmethod_load(0x1000, bytes(8), 1, [(4, [(2, 0), (1, 0)])]))
    assert label(code, 0x1000, 2000)[0] == "[unknown method]"
    code.feed(methods(Writer(tsc=3000)).nmethod_load(0x1000, bytes(8), 1, [(4, [(2, 0), (1, 0)])], flags=1).bytes())
    assert label(code, 0x1000, 2000)[0] == "a.B.inner"
    assert label(code, 0x1004, 2000)[0] == "a.A.outer"


def test_what_cannot_be_is_counted() -> None:
    code = image(Writer().nmethod_load(0x1000, b"", 1).dynamic_code(FOREVER - 8, "x", bytes(64)))
    assert code.counts["bad_blobs"] == 2
    code.feed(b"\1\2\3")
    assert code.counts["bad_records"] == 1
    code.feed(Writer().nmethod_unload(0x1000, 1).nmethod_state(0x5000, 1, 1).bytes())
    assert code.counts["unknown_unloads"] == 1
    assert code.counts["unknown_states"] == 1


def test_not_entrant() -> None:
    code = image(methods(Writer()).nmethod_load(0x1000, bytes(8), 1, compile_id=3).at(5000).nmethod_state(0x1000, 3, 1))
    assert [v.not_entrant for v in code.versions()] == [5000]


def _naive(versions: list[Version], ip: int, tsc: int) -> int:
    """Of those valid that with the last beginning, then the shortest, then that told last."""
    valid = [v for v in versions if v.start <= ip < v.end and v.since <= tsc < v.until]
    return max(valid, key=lambda v: (v.start, -v.end, v.id)).id if valid else -1


operation = st.tuples(
    st.sampled_from(["load", "load", "load", "unload", "stub", "blob", "forget", "replay"]),
    st.integers(0, 24),
    st.integers(1, 12),
    st.integers(1, 3),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(operation, max_size=40), st.sampled_from([None, 0, 25]))
def test_lookups_and_views_against_a_plain_search(
    operations: list[tuple[str, int, int, int]], late: int | None
) -> None:
    code = CodeImage(late)
    code.feed(methods(Writer(tsc=1)).bytes())
    tsc, floor = 100, 0
    for n, (what, at, size, method) in enumerate(operations):
        tsc += 10
        start, data = 0x1000 + 4 * at, bytes([n & 255]) * (4 * size)
        writer = Writer(tsc)
        if what == "load":
            writer.nmethod_load(start, data, method, [(4, [(method, 0)])], compile_id=n + 1)
        elif what == "replay":
            writer.nmethod_load(start, data, method, flags=REPLAYED)
        elif what == "unload":
            writer.nmethod_unload(start, method)
        elif what == "stub":
            writer.dynamic_code(start, f"s{method}", data)
        elif what == "blob":
            writer.blob(start, f"b{method}", data)
        else:
            floor = tsc - 30
            code.forget_before(floor)
        code.feed(writer.bytes())
    versions = list(code.versions())
    nmethods = [v for v in versions if v.kind == Kind.NMETHOD]
    for ip in range(0x0FFC, 0x10A0, 4):
        for t in range(max(0, floor), tsc + 20, 7):
            found = code.at(ip, t)
            assert (found.id if found else -1) == _naive(versions, ip, t)
            assert sum(v.valid(ip, t) for v in nmethods) <= 1
    for now in (None, floor + 5, tsc):
        view = code.view(now)
        assert bool((view.end[:-1] <= view.start[1:]).all())
        inside = np.searchsorted(view.start, np.arange(0x0FFC, 0x10A0, 4, dtype=np.uint64), side="right") - 1
        for ip, row in zip(range(0x0FFC, 0x10A0, 4), inside.tolist(), strict=True):
            hit = int(view.blob[row]) if row >= 0 and ip < int(view.end[row]) else -1
            assert hit == _naive(versions, ip, FOREVER - 1 if now is None else now)
            if hit >= 0 and now is None:
                version = code.version(hit)
                assert version is not None
                byte = view.code[int(view.data_at[row]) + ip - int(view.start[row])]
                assert byte == code.code(version)[ip - version.start]


def test_memory_is_given_back_under_churn() -> None:
    code = CodeImage(lateness=100)
    code.feed(methods(Writer()).bytes())
    for n in range(600):
        tsc = 1000 + 100 * n
        pcs = [(4 * k, [(2, k), (1, 0)]) for k in range(1, 60)]
        code.feed(Writer(tsc).nmethod_load(0x1000, bytes([n & 255]) * 256, 1, pcs, compile_id=n + 1).bytes())
        code.feed(Writer(tsc + 50).nmethod_unload(0x1000, 1).bytes())
        code.forget_before(tsc - 500)
        assert label(code, 0x1000, tsc + 10)[0] == "a.B.inner"
        version = code.at(0x1000, tsc)
        assert version is not None
        assert set(code.code(version).tolist()) == {n & 255}
    assert len(list(code.versions())) < 12
    assert code.statistics()["code_bytes"] < 12 * 256
    assert code._revisions._store.code.used < 3 * 4096 + 12 * 256
    assert code._register._pcs.used < 3 * 4096 + 12 * 60


def test_the_last_reading_of_all_code_before_a_time() -> None:
    code = CodeImage(0)
    code._read.extend((10, 20, 30))
    assert [code.read_until(tsc) for tsc in (9, 10, 29, 30, 99)] == [0, 10, 20, 30, 30]
