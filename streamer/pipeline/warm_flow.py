"""Has numba compile the flow kernels, which takes as long as all others twice: a process of its own, beside the rest.

Needs numpy and numba only, so that set-up can start it before everything else is there (Makefile). A second process
waits for the first and finds the kernels on disk.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path
from typing import IO

import numpy as np

from jvm.bytecode.counts import stretches
from jvm.cbuild import cache_dir
from jvm.code.debug_info import DebugInfo
from jvm.code.image import CodeImage
from jvm.code.snapshot import CodeView
from jvm.code.version import Kind, Version
from stages.columns import table
from stages.messages import MARK_DTYPE, PtConfig, Segment, StreamKey, ThreadKey
from stages.messages.paths import BLOCK_DTYPE, RANGE_DTYPE
from stages.messages.trees import TREE_DTYPE

MOST_SECONDS = 120.0
LOOK_SECONDS = 0.2
_HELD: list[IO[str]] = []  # until this process ends


def compile_flow() -> None:
    """By a segment of padding, a search that finds nothing, an nmethod without code, and tables without entries."""
    from stages.cct.fold import TH
    from stages.cct.functions import Functions, rehash_places
    from stages.cct.merging import united
    from stages.cct.nodes import child_of, rename
    from stages.cct.panes import distinct
    from stages.cct.profiled import roots_of
    from stages.cct.rebuild import rebuilt
    from stages.cct.stage import Cct
    from stages.cct.tables import empty
    from stages.follow.batch import Batch
    from stages.follow.block_bytecode import Bytecode
    from stages.follow.cfg import block, rehash
    from stages.follow.cfg.graph import WC_WORDS
    from stages.follow.flow import Flow
    from stages.follow.repair.backtracking_search import Position, choose
    from stages.follow.repair.effort import Effort
    from stages.follow.repair.repair import Repair
    from stages.follow.walk import path_sequence
    from stages.inlining.inlining import Inlining
    from stages.profile.stage import Profile

    flow = Flow(PtConfig(), context=False)
    for code in (b"\x90\xc3", b"\x90\x90\xc3"):
        view = CodeView.of([(0x1000, code)])
        flow.set_code(view)
    flow.set_code(view)
    thread, stream = ThreadKey("", 1, 1), StreamKey("", 1, -1, 1)
    piece = Segment(thread, stream, 0, 0, np.zeros(16, np.uint8), np.zeros(0, MARK_DTYPE), 0, 0, 1, False)
    image = CodeImage()
    batch, profile = Batch(thread[:2], image), Profile()
    for output in flow.feed(piece):
        batch.add(piece, output, 0, ())
    paths, cct = batch.take(), Cct(images=profile.images)
    for stage in (cct, profile):
        stage.feed(paths)
    cct.flush()
    known = Repair(flow, image, 0).known(0)
    position = Position(0, 0, 0x1000, False, np.zeros(0, np.int64), 0)
    choose(np.zeros(64, np.uint8), 16, 8, position, flow.code.words(), (0, 0), known.raw(), 0, 0, Effort())
    frames = np.array([0, 2], np.int64), np.array([2, 1], np.uint32), np.zeros(2, np.int32)
    debug = DebugInfo(1, 1, np.ones(1, np.uint32), *frames, 0.0)
    nmethod = Version(0, Kind.NMETHOD, 0x1000, 0x1001, "", 0, 0, verified_entry=0x1000, debug=debug)
    inlining = Inlining(image)
    inlining.of(nmethod, np.zeros(0, np.uint64))
    functions = Functions(image, inlining)
    functions.describe(nmethod, 1)
    rehash_places(functions.place, 1, np.zeros(2, np.int32))
    rebuilt(empty(2, 2, 2), functions, empty(2, 2, 2), functions, np.zeros((1, TH), np.int64), np.zeros(1, np.int64))
    united(np.zeros(1, TREE_DTYPE), ("",))
    trees = empty(2, 2, 2)
    contexts = table(trees)
    rename(contexts, child_of(contexts, 0, 1, 0), 2)
    distinct(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int32))
    roots_of(np.zeros(0, np.int64), np.zeros(0, np.int64))
    block.intern_all(flow.tables.raw(), np.zeros(0, np.int64))
    image.at(0x1000, 0)
    rehash.tnt_cache(np.zeros(0, np.int32), 1)
    rehash.pairs(np.zeros(0, np.int64), 1)
    rehash.windows(np.zeros(0, np.int64), np.zeros(WC_WORDS, np.int64))
    path_sequence.paths(np.zeros(1, np.int32))
    rows = np.zeros(0, BLOCK_DTYPE), np.zeros(0, np.int64), np.zeros(0, RANGE_DTYPE), np.zeros(0, np.uint8)
    Bytecode(image).describe(*rows, (0, 0), nmethod.start, debug)
    stretches(b"\xb1")


def _wait_for_others(directory: Path) -> None:
    """Until no other process compiles the same, to find it on disk then; `MOST_SECONDS` at most: a lock may be held by
    a process that is stopped. The lock is this process's until it ends, and its file names it."""
    lock = (directory / "warm.lock").open("a+")
    end = time.monotonic() + MOST_SECONDS
    while time.monotonic() < end:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_SECONDS)
            continue
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        _HELD.append(lock)
        return
    lock.seek(0)
    print(f"streamer: process {lock.read(20).strip() or '?'} has compiled for {MOST_SECONDS:.0f} s; compiling it again",
          file=sys.stderr)  # fmt: skip


def main() -> None:
    try:
        _wait_for_others(cache_dir())
    except OSError as error:  # no lock to be had: it is compiled twice at worst
        print(f"streamer: {error}", file=sys.stderr)
    compile_flow()


if __name__ == "__main__":
    main()
