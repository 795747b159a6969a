"""The code image of real JVMs, told by the agent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jvm.agent.build import library
from jvm.code.image import CodeImage
from jvm.code.sites import SiteKind
from jvm.code.version import FOREVER, Kind
from jvm.export.ring import RingReader
from tests.jdks import JDKS
from tests.jvm.agent.java_process import Subject, eventually

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("jvm-agent")]
NOW = FOREVER - 1
versions = pytest.mark.parametrize("version", JDKS)


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    (tmp_path / "session").mkdir(mode=0o700)
    return tmp_path / "session" / "jit.ring"


def read(code: CodeImage, reader: RingReader) -> CodeImage:
    while data := reader.drain():
        code.feed(data)
    return code


@versions
def test_compiled_code_is_found_by_name_and_a_replay_changes_nothing(version: int, ring: Path) -> None:
    options = [f"-agentpath:{library()}=ring={ring}", "-XX:-BackgroundCompilation"]
    with Subject(version, options) as jvm, RingReader(ring) as reader:
        jvm.tell("work 20000")
        code = CodeImage()

        def compiled() -> bool:
            return any(v.name == "Subject.outer" and v.level == 4 for v in read(code, reader).versions())

        eventually("Subject.outer is compiled by C2", compiled)
        eventually("all that was found at the start is told", lambda: read(code, reader).primed_at < FOREVER)
        (outer, *_) = (v for v in code.versions() if v.name == "Subject.outer" and v.level == 4)
        ips = np.arange(outer.start, outer.end, dtype=np.uint64)
        sites = code.sites_of(ips, np.full(len(ips), NOW, np.uint64))
        labels = {code.sites.label(int(s)) for s in sites}
        assert labels == {"Subject.outer", "Subject.inner"}  # inner is inlined
        assert {code.sites.kind_of[int(s)] for s in sites} == {SiteKind.C2}
        interpreted = {v.name for v in code.versions() if v.kind == Kind.CODELET}
        assert "[interpreter] invokevirtual" in interpreted
        assert len(interpreted) > 200
        before = {(v.id, v.start, v.end, v.name) for v in code.versions() if v.until == FOREVER}
        loads = code.counts["loads"]
        number = reader.request_replay()
        eventually("replay", lambda: (read(code, reader), reader.replay_done == number)[1])
        read(code, reader)
        after = {(v.id, v.start, v.end, v.name) for v in code.versions() if v.until == FOREVER}
        gone = {v for v in before - after if v not in {(x.id, x.start, x.end, x.name) for x in code.versions()}}
        assert not gone
        assert code.counts["repeated"] > 10
        assert len(after) - len(before) <= code.counts["loads"] - loads  # only methods compiled meanwhile
        assert code.counts["evicted"] == code.counts["bad_records"] == code.counts["bad_blobs"] == 0
        assert code.counts["unknown_methods"] == 0
        view = code.view()
        assert bool((view.end[:-1] <= view.start[1:]).all())


@versions
def test_addresses_are_used_again(version: int, ring: Path) -> None:
    options = ["-XX:ReservedCodeCacheSize=5m", "-XX:+UseSerialGC", "-XX:CompileThresholdScaling=0.02", "-Xmx64m"]
    with Subject(version, [f"-agentpath:{library()}=ring={ring}", *options]) as jvm, RingReader(ring) as reader:
        code = CodeImage()
        for _ in range(20):
            jvm.tell("churn 25")
            read(code, reader)
            if code.counts["unloads"] > 200:
                break
        assert code.counts["unloads"] > 200
        # Compiler threads post loads, the service thread posts unloads (nmethod.cpp, post_compiled_method_load_event,
        # post_compiled_method_unload), so now and then one overtakes the other: the unload comes before its load, or
        # after the load of the next nmethod there.
        assert code.counts["evicted"] <= code.counts["unloads"] // 20
        assert code.counts["unknown_unloads"] <= code.counts["unloads"] // 20
        assert code.counts["unknown_methods"] == 0
        retired = [v for v in code.versions() if v.until != FOREVER]
        again = [
            (old, new)
            for old in retired
            for new in code.versions()
            if new.kind == Kind.NMETHOD and new.id > old.id and new.start < old.end and old.start < new.end
        ]
        assert again
        for old, new in again:
            assert old.until <= new.since
            ip = max(old.start, new.start)
            assert code.at(ip, old.until - 1) is not new
        assert all(code.at(v.start, v.loaded) is v for v in code.versions() if v.kind == Kind.NMETHOD)
        bytes_before = code.statistics()["code_bytes"]
        code.forget_before(NOW)
        assert all(v.until == FOREVER for v in code.versions())
        assert code.statistics()["code_bytes"] < bytes_before
