"""A stack that the agent read takes the place of what the matcher believes, where it belongs (`stacks.py`).

It is laid beside each candidate, from the top down. A candidate that it continues is the right one: its way is followed
back as if it had been left alone, and its frames go on below. Where it continues none, what was believed is wrong, and
nothing before is counted. The bytecode on top must be of the kind that was dispatched last; else the stack belongs
elsewhere, and is not used.
"""

# mypy: disable-error-code="assignment"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from jvm.bytecode.cfg import NOWHERE
from jvm.bytecode.opcodes import KIND, Kind
from jvm.code.image import CALL_STUB, CodeImage
from jvm.code.version import Kind as CodeKind
from jvm.export import records as export
from jvm.kernels import apart, near
from stages.columns import pointers_to
from stages.messages.bytecodes import STACK_DTYPE, FrameEvent
from stages.messages.columns import joined
from stages.reconstruct.candidates import (
    AT,
    COUNT,
    E_NONE,
    ENTERED,
    FALLBACK,
    LAST,
    NEXT,
    PHASE,
    RUN,
    SCANNED,
    TOLD,
    WAITED,
    emit,
    is_bottom,
    is_boundary,
    is_compiled,
    is_native,
    pushed,
)
from stages.reconstruct.classes import Classes
from stages.reconstruct.compiled import Compiled
from stages.reconstruct.frontier import LAST_AT
from stages.reconstruct.stacks import Placed
from stages.reconstruct.state import BOUNDARY, COMPILED, COMPILED_AT, EMPTY, FORWARD, NATIVE, UNKNOWN
from stages.reconstruct.window import E_LOST, STEP, drop_window, keep, remember, resolve, tell, tell_stack

E_STACK = int(FrameEvent.STACK)
AGREED, CONTINUED, REPLACED, REFUSED = range(4)
CALLED, HERE = AT["CALLED"], AT["HERE"]


class ReadStacks(NamedTuple):
    """Of a thread in one message, by position in the order: the frames of stack k are [first[k], first[k + 1]) of
    `node`, outermost first; its number in `Bytecodes.stacks`."""

    order: NDArray[np.int64]
    first: NDArray[np.int64]
    node: NDArray[np.int32]
    number: NDArray[np.int64]


stacks_at = pointers_to(ReadStacks)
NO_STACKS = ReadStacks(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int64))


def read_stacks(
    placed: list[Placed], number: int, classes: Classes, image: CodeImage, compiled: Compiled
) -> tuple[ReadStacks, NDArray[np.void]]:
    """Of the stacks of one thread, at least one, numbered from `number` on; and their rows of STACK_DTYPE."""
    nodes, counts, rows = list[int](), [0], list[NDArray[np.void]]()
    for k, (_, stack) in enumerate(placed):
        row = np.zeros(len(stack.frames), STACK_DTYPE)
        frames = stack.frames[::-1]
        methods = [classes.method(id_) if id_ else -1 for id_ in frames["method"].tolist()]
        row["stack"], row["tsc"], row["pc"], row["bci"] = number + k, stack.before, frames["pc"], frames["bci"]
        row["method"], row["interpreted"] = methods, frames["method"] != 0
        rows.append(row)
        nodes += _nodes(stack, row, classes, image, compiled)
        counts.append(len(nodes))
    order = np.array([p.order for p in placed], np.int64)
    numbers = number + np.arange(len(placed), dtype=np.int64)
    of = ReadStacks(order, np.array(counts, np.int64), np.array(nodes, np.int32), numbers)
    return of, joined(rows)


def _nodes(
    stack: export.Stack, row: NDArray[np.void], classes: Classes, image: CodeImage, compiled: Compiled
) -> list[int]:
    """The frames as the matcher has them: of compiled code one, however many there are."""
    last = row["pc"] - np.uint64(1)
    versions = image.versions_of(last, np.full(len(row), stack.before, np.uint64)).tolist()
    out, in_code, before_upcall = (
        list[int](),
        False,
        0,
    )  # `frontier.packed`, if the frame is in the middle of a bytecode
    for k, (method, bci, id_) in enumerate(zip(row["method"].tolist(), row["bci"].tolist(), versions, strict=True)):
        version = image.version(id_)
        if row["interpreted"][k]:
            node, kind = _interpreted(method, bci, classes)
            out.append(node)
            in_code, before_upcall = False, kind << LAST_AT
        elif version is not None and version.name == CALL_STUB:
            out.append(BOUNDARY - before_upcall)
            in_code, before_upcall = False, 0
        else:
            node = COMPILED
            if version is not None and version.kind == CodeKind.NMETHOD and version.debug is not None:
                pc = int(version.debug.index(last[k : k + 1] - np.uint64(version.start))[0])
                node = COMPILED_AT - compiled.place(version.id, pc, version.debug)
            if not in_code:
                out.append(node)
            elif node != COMPILED:
                out[-1] = node
            in_code, before_upcall = True, 0
    return out


def _interpreted(method: int, bci: int, classes: Classes) -> tuple[int, int]:
    """The node of the interpreter's frame, and the kind of its last bytecode, 0: not known."""
    if method < 0:
        return UNKNOWN, 0
    if bci < 0:
        return NATIVE - method, int(Kind.RETURN)  # as behind any that has returned
    node = classes.icfg.node(method, bci)
    return (UNKNOWN, 0) if node == NOWHERE else (node, int(KIND[classes.graph().nodes.opcode[node]]))


@near
def _of_interpreter(node):  # type: ignore[no-untyped-def]
    return node >= 0 or node == UNKNOWN or is_native(node)


@near
def _fits(node, told):  # type: ignore[no-untyped-def]
    if node == told:
        return True
    if is_compiled(told):
        return is_compiled(node)
    if is_boundary(told):
        return is_boundary(node)
    return node == UNKNOWN or (told == UNKNOWN and _of_interpreter(node))


@apart
def _beside(s, n, node, cell, first, last):  # type: ignore[no-untyped-def]
    """Frames [first, last) of `n.node` beside a candidate: 0: another stack; 1: it continues the candidate's; 2: they
    are the same."""
    same = True
    for k in range(last - 1, first - 1, -1):
        if is_bottom(node):
            return 1
        if not _fits(node, n.node[k]):
            return 0
        same = same and (node != UNKNOWN or n.node[k] == UNKNOWN)
        if cell == EMPTY:
            return 2 if same and k == first else 1
        node, cell = np.int64(s.cells.node[cell]), np.int64(s.cells.below[cell])
    return 1 if is_bottom(node) else 0


@apart
def _stack_of(s, n, first, last):  # type: ignore[no-untyped-def]
    """The cell of all frames but the one on top."""
    cell = np.int64(EMPTY)
    for k in range(first, last - 1):
        cell = pushed(s, np.int64(n.node[k]), cell)
    return cell


@apart
def take_stack(g, s, c, t, n, k, order):  # type: ignore[no-untyped-def]
    """Stack `k` of `n` is that of now, at position `order`."""
    first, last = n.first[k], n.first[k + 1]
    top, entered = np.int64(n.node[last - 1]), np.int64(s.at[PHASE] == ENTERED)
    if entered:  # the frame on top has dispatched nothing
        last -= 1
        if not _of_interpreter(top) or last <= first:
            return REFUSED
        top = np.int64(n.node[last - 1])
    elif top >= 0 and s.at[COUNT] and s.at[PHASE] == RUN and KIND[g.nodes.opcode[top]] != s.at[LAST]:
        return REFUSED
    place = COMPILED_AT - top if is_compiled(top) and top <= COMPILED_AT else np.int64(-1)
    found, fit = np.int64(-1), np.int64(0)
    for i in range(s.at[COUNT]):
        f = _beside(s, n, np.int64(s.front.node[i]), np.int64(s.front.cell[i]), first, last)
        if f > fit:
            found, fit = np.int64(i), f
        elif f and f == fit:
            found = np.int64(-1)
    certain = s.at[COUNT] == 1 and s.at[STEP] == 0 and s.at[SCANNED] < 0 and s.at[TOLD]
    said = 2 * n.number[k] + entered
    if certain and fit == 2:
        tell(s, E_STACK, np.int64(-1), said, order, 0)
        tell(s, E_NONE, np.int64(-1), np.int64(-1), order, 0)
        return AGREED
    cell = _stack_of(s, n, first, last)
    if is_compiled(top):
        top = COMPILED
    outcome = CONTINUED
    s.at[NEXT] = 0
    if found >= 0 and not is_bottom(s.front.node[found]):
        emit(s, top, cell, found, E_NONE)
    else:
        outcome = REPLACED
        keep(s, -E_LOST, order)
        drop_window(s, order, 0)
    s.front.node[0], s.front.cell[0], s.at[COUNT] = top, cell, 1
    s.at[SCANNED] = s.at[FALLBACK] = -1
    s.at[WAITED] = 0
    if outcome == CONTINUED and s.at[STEP]:
        remember(s, FORWARD if entered else 0, order, 0)
        resolve(g, s, c, t)
    if place >= 0:
        s.at[CALLED] = s.at[HERE] = place
    tell(s, E_STACK, np.int64(-1), said, order, 0)
    tell_stack(g, s, top, cell, order, 0)
    return outcome
