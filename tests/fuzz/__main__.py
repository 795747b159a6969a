"""Throw bytes at the readers of bytes from outside.

    python -m tests.fuzz packets --inputs 10000000            own mutations of good inputs (repeat with --seed N)
    python -m tests.fuzz export --atheris -runs=1000000 DIR   guided by coverage (pip install atheris)
    python -m tests.fuzz export --corpus DIR                  mutations of its finds
    python -m tests.fuzz flow --replay input.bin              one input again

Targets stand in `tests.fuzz.targets`; several run one after the other. Inputs lie between forbidden pages (FENCE=low:
their beginnings do, else their ends), so a read outside is a SIGSEGV; with NUMBA_BOUNDSCHECK=1 (and a NUMBA_CACHE_DIR
of its own) kernels over arrays raise IndexError besides. --last FILE keeps the input under way, behind 4 bytes of
length, to be found when the process dies. An input that takes longer than 20 s is a hang, and ends by SIGALRM.

Coverage is seen in Python code only, and numba does not compile instrumented code: so under atheris all kernels run as
Python (NUMBA_DISABLE_JIT). That finds paths, slowly; the mutations, on compiled kernels, are fast.
"""

from __future__ import annotations

import argparse
import faulthandler
import mmap
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tests.fuzz.mutate import mutated

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

HANG_SECONDS = 20
GUIDED = ("jvm.export.parse", "jvm.export.seal", "capture.recording.export_reader", "capture.perf.compressed",
          "jvm.code.image", "jvm.code.revisions", "jvm.code.revision_store", "jvm.code.standing",
          "capture.perf.perf_data", "capture.perf.records", "capture.recording.replay", "capture.live.ring",
          "jvm.export.ring", "streamer.transport.codec", "stages.pt", "stages.decode.stage")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="+", help="or all")
    parser.add_argument("--inputs", type=int, default=1000, help="for each target")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each target, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--last", type=Path)
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--atheris", action="store_true")
    given, rest = parser.parse_known_args()
    faulthandler.enable()
    if given.atheris:
        _guided(given.targets[0], [*rest, *given.targets[1:]])
    from tests.fuzz.targets import TARGETS

    names = list(TARGETS) if given.targets == ["all"] else given.targets
    if rest or not set(names) <= set(TARGETS):
        parser.error(f"targets are {', '.join(TARGETS)}")
    for name in names:
        target = TARGETS[name]
        if given.replay:
            target.run(given.replay.read_bytes())
            continue
        corpus = target.corpus()
        if given.corpus:
            corpus = corpus + [file.read_bytes() for file in sorted(given.corpus.iterdir())]
        for good in corpus[:3]:  # compiles kernels before the clock runs
            target.run(good[: target.size])
        began = time.monotonic()
        n = _random(target, corpus, given, began)
        print(f"{name}: {n} inputs in {time.monotonic() - began:.0f} s, nothing found", flush=True)


def _random(target: Target, corpus: list[bytes], given: argparse.Namespace, began: float) -> int:
    rng = random.Random(given.seed)
    note = _note(given.last, target.size)
    for n in range(given.inputs):
        if n % 100 == 0:
            signal.alarm(HANG_SECONDS)
            if time.monotonic() - began > given.seconds:
                break
        data = mutated(rng, corpus, target.size)
        if note is not None:
            note[: 4 + len(data)] = len(data).to_bytes(4, "little") + data
        try:
            target.run(data)
        except BaseException:
            print(f"input {n} of seed {given.seed}: {data.hex()}", flush=True)
            raise
    else:
        n = given.inputs
    signal.alarm(0)
    return n


def _note(path: Path | None, size: int) -> mmap.mmap | None:
    """Shared memory that outlives the process."""
    if path is None:
        return None
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.ftruncate(fd, 4 + size)
    try:
        return mmap.mmap(fd, 4 + size)
    finally:
        os.close(fd)


def _guided(name: str, options: list[str]) -> NoReturn:
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    warnings.simplefilter("ignore")  # numpy warns where kernels count modulo 2^64
    import atheris  # type: ignore[import-untyped]

    with atheris.instrument_imports(include=list(GUIDED)):
        from tests.fuzz.targets import TARGETS
    target = TARGETS[name]
    for folder in (o for o in options if not o.startswith("-")):
        Path(folder).mkdir(parents=True, exist_ok=True)
        for k, good in enumerate(target.corpus()):
            (Path(folder) / f"good-{k}").write_bytes(good[: target.size])
    atheris.Setup([sys.argv[0], *options], target.run)
    atheris.Fuzz()
    sys.exit(0)


if __name__ == "__main__":
    main()
