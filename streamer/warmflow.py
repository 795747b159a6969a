"""Has numba compile the flow kernels, which takes as long as all others twice: a process of its own, beside the rest.

Needs numpy and numba only, so that set-up can start it before everything else is there (Makefile). Who comes second
waits for the first and finds the kernels on disk.
"""

from __future__ import annotations

import fcntl

import numpy as np

from jvm.cbuild import cache_dir
from jvm.codeimage import CodeImage
from jvm.codeview import CodeView
from stages.messages import MARK_DTYPE, PtConfig, Segment, StreamKey, ThreadKey


def compile_flow() -> None:
    """By a segment of padding, and a search that finds nothing."""
    from stages.flow.choice import Position, choose
    from stages.flow.chooser import Chooser
    from stages.flow.effort import Effort
    from stages.flow.flow import Flow

    flow = Flow(PtConfig(), context=False)
    for code in (b"\x90\xc3", b"\x90\x90\xc3"):
        flow.set_code(CodeView.of([(0x1000, code)]))
    thread, stream = ThreadKey("", 1, 1), StreamKey("", 1, -1, 1)
    flow.feed(Segment(thread, stream, 0, 0, np.zeros(16, np.uint8), np.zeros(0, MARK_DTYPE), 0, 0, 1, False))
    image = CodeImage()
    known = Chooser(flow, image, 0).known(0)
    position = Position(0, 0, 0x1000, False, np.zeros(0, np.int64), 0)
    choose(np.zeros(64, np.uint8), 16, 8, position, flow.code.words(), (0, 0), known, 0, 0, Effort())


def main() -> None:
    with (cache_dir() / "warm.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until this process ends
        compile_flow()


if __name__ == "__main__":
    main()
