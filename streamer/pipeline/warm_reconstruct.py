"""Has numba compile the kernels of `stages.reconstruct`, and those that read its events."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamer.pipeline.warm_code import CLASS


def compile_reconstruct() -> None:
    for _ in _steps():
        pass


def _steps() -> Iterator[object]:
    """By a thread that ran nothing, in a process with one class."""
    from jvm.bytecode.class_file import ClassFile
    from jvm.bytecode.icfg import Icfg
    from jvm.code.image import CodeImage
    from stages.cct.interpreted import events_told
    from stages.messages.bytecodes import EVENT_DTYPE
    from stages.messages.paths import BLOCK_DTYPE, BREAK_DTYPE, LINK_DTYPE, PATH_DTYPE
    from stages.paths.dictionary import Dictionary
    from stages.reconstruct.blocks import TokensOfBlocks
    from stages.reconstruct.continuations import compile_kernels
    from stages.reconstruct.matcher import Matcher, Parts
    from stages.reconstruct.walk import compact

    compile_kernels()
    events_told(np.zeros(1, EVENT_DTYPE), np.zeros(2, np.int64))
    dictionary, icfg = Dictionary(), Icfg()
    icfg.add(1, 0, "A", ClassFile.of(CLASS))
    dictionary.blocks.append(np.zeros(1, BLOCK_DTYPE))
    dictionary.paths.append(np.zeros(1, PATH_DTYPE))
    dictionary.links.append(np.zeros(1, LINK_DTYPE))
    blocks = yield from TokensOfBlocks(CodeImage()).growing(dictionary, icfg.by_opcode(), np.zeros(0, np.int32))
    compact(np.zeros(0, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32), 1)
    nothing = np.zeros(0, np.int64)
    parts = Parts(np.zeros((0, 2), np.int64), np.zeros(0, np.bool_), nothing, nothing, nothing)
    yield from Matcher().group(0, 1, parts, icfg.graph(), blocks, np.zeros(0, np.int32), np.zeros(0, BREAK_DTYPE))
