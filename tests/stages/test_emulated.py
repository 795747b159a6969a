"""The whole chain on a JVM under the emulated PT: every byte has its fate, and the table does not depend on how the
trace was cut or on whether it was live."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from capture.emulator.launch import command
from capture.emulator.options import EmulatorError, EmulatorOptions
from capture.live.drain import Drain
from capture.live.ring import PerfRing
from capture.live.source import ring_name
from jvm.agent.build import library
from jvm.cbuild import BuildError
from stages.messages import Account, Chunk, CodeKind, Loss, PaneReport, StreamKey
from stages.messages.accounts import joined
from tests.jdks import java
from tests.jvm.agent.java_process import classes
from tests.stages import chains

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("emulator")]
DEADLINE = 500.0
TIMES_FULL = 4  # word of a ring's counters (docs/emulator.md)


def has_been_full(session: Path) -> bool:
    for path in session.glob("pt/*.ring"):
        with closing(PerfRing.open(path)) as ring:
            if ring.counter(TIMES_FULL):
                return True
    return False


def run(version: int, session: Path, options: EmulatorOptions, *java_options: str, late: bool = False) -> list[object]:
    """Everything that capture says of a run of Subject.java; `late`: it begins when a ring has been full."""
    session.mkdir(mode=0o700)
    words = [java(version), f"-agentpath:{library()}=dir={session}", *java_options, "-cp", str(classes()), "Subject"]
    try:
        argv = command(words, session / "pt", options)
    except (EmulatorError, BuildError) as error:
        pytest.skip(str(error))
    said: list[object] = []
    drain = Drain(session, host="h")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as jvm:
        try:
            assert jvm.stdin is not None
            jvm.stdin.write(b"work 3000\nbrief x\n")
            jvm.stdin.close()
            end = time.monotonic() + DEADLINE
            while not drain.ended:
                assert time.monotonic() < end, "the JVM does not come to its end"
                if late:
                    late = not has_been_full(session)
                    time.sleep(0.005)
                    continue
                messages = drain.poll()
                said += messages
                if not messages:
                    time.sleep(0.005)
            assert jvm.wait(200) == 0
        finally:
            jvm.kill()
            drain.close()
    return said


def chain(messages: Iterable[object]) -> list[PaneReport]:
    stages = chains.ip()
    out: list[object] = []
    for message in messages:
        passed = [message]
        for stage in stages:
            passed = [m for before in passed for m in stage.feed(before)]
        out += passed
    return [m for m in out if isinstance(m, PaneReport)]


def table(reports: list[PaneReport]) -> Counter[tuple[int, int, str, int, str]]:
    names: dict[int, str] = {}
    sums: Counter[tuple[int, int, str, int, str]] = Counter()
    for report in reports:
        names |= dict(report.names)
        for row in report.profile:
            key = report.pane, int(row["tid"]), names[int(row["method"])], int(row["kind"])
            sums[*key, "hits"] += int(row["hits"])
            sums[*key, "ticks"] += int(row["ticks"])
    return sums


def accounts(reports: list[PaneReport]) -> dict[StreamKey, Account]:
    parts: dict[StreamKey, list[Account]] = {}
    for report in reports:
        for account in report.accounts:
            parts.setdefault(account.stream, []).append(account)
    return {key: joined(found) for key, found in parts.items()}


def cut_otherwise(messages: list[object]) -> Iterable[object]:
    draw = random.Random(1)
    for message in messages:
        if isinstance(message, Chunk) and len(message.data) > 1:
            at = draw.randrange(1, len(message.data))
            yield replace(message, data=message.data[:at])
            yield replace(message, data=message.data[at:], offset=message.offset + at, losses=())
        else:
            yield message


def ends(reports: list[PaneReport], session: Path) -> dict[StreamKey, Account]:
    """The accounts, which end where the emulator ended, and add up."""
    total = accounts(reports)
    streams = json.loads((session / "pt/emulator.json").read_text())["streams"]
    told = {ring_name(key): account.end for key, account in total.items()}
    assert told == {s["name"]: s["aux_head"] for s in streams if s["aux_head"]}
    for account in total.values():
        assert account.start == 0
        assert account.decoded + sum(size for _, size in account.holes) == account.end
    return total


def test_losses_have_their_holes(tmp_path: Path) -> None:
    session = tmp_path / "session"
    said = run(17, session, EmulatorOptions(aux_kib=64, ovf_mb_s=0.5), "-Xint", late=True)
    live = chain(said)
    total = ends(live, session)
    events = Counter[Loss]()
    for account in total.values():
        events.update(dict(account.events))
    assert events[Loss.AUX_FULL] > 0
    assert events[Loss.OVERFLOW] > 0
    again = chain(cut_otherwise(said))
    assert table(again) == table(live)
    assert accounts(again) == total


@pytest.mark.parametrize(
    ("version", "per_thread", "java_options"), [(17, False, ("-XX:TieredStopAtLevel=4",)), (25, True, ("-Xint",))]
)
def test_a_whole_run(version: int, per_thread: bool, java_options: tuple[str, ...], tmp_path: Path) -> None:
    session = tmp_path / "session"
    said = run(version, session, EmulatorOptions(per_thread=per_thread, aux_kib=32768), *java_options)
    live = chain(said)
    sums, total = table(live), ends(live, session)
    holes = Counter[Loss]()
    for account in total.values():
        holes.update(dict(account.holes))
    everything = sum(account.end for account in total.values())
    assert holes[Loss.UNKNOWN_THREAD] < 0.05 * everything
    assert sum(holes.values()) - holes[Loss.UNKNOWN_THREAD] - holes[Loss.AUX_FULL] - holes[Loss.NO_SYNC] == 0

    hits: Counter[tuple[str, int]] = Counter()
    for (_, _, name, kind, what), n in sums.items():
        if what == "hits":
            hits[name, kind] += n
    assert hits["[unknown code]", CodeKind.UNKNOWN] < 0.001 * sum(hits.values())
    interpreted = sum(n for (_, kind), n in hits.items() if kind == CodeKind.INTERPRETED)
    if "-Xint" in java_options:
        assert interpreted > 0.8 * sum(hits.values())
    else:
        compiled = {name for (name, kind) in hits if kind in (CodeKind.C1, CodeKind.C2)}
        assert {"Subject.inner", "Subject.outer", "Subject.work"} & compiled

    assert table(chain(said)) == sums
    again = chain(cut_otherwise(said))
    assert table(again) == sums
    assert accounts(again) == total
