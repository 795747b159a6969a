"""The matcher's kernel against every way through small graphs, and against the bytecodes that really ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from numba.core import config

from jvm.bytecode.icfg import ByOpcode, Graph
from jvm.bytecode.opcodes import NAMES, OPCODE
from stages.messages.bytecodes import FrameEvent
from stages.messages.paths import BREAK_DTYPE, FIRST_PATH, LINK_DTYPE, PATH_DTYPE
from stages.reconstruct.compiled import Places, Scopes
from stages.reconstruct.layout import Layout, OfBlocks
from stages.reconstruct.matcher import Found, Matcher, Parts, Thread
from stages.reconstruct.state import BOTTOM, BOUNDARY, NATIVE, SURE, UNKNOWN
from stages.reconstruct.tokens import Token
from stages.reconstruct.window import Blocks
from tests.reconstruct import naive
from tests.reconstruct.programs import Instruction, Program, Tokens, run, whole

TEMPLATES = np.array([(opcode, 0xFF) for opcode in range(len(NAMES))], np.uint8)
PAIR_OF = {OPCODE["nop"]: OPCODE["iconst_0"], OPCODE["iconst_0"]: OPCODE["pop"]}
"""By the first of two bytecodes that have a template together, the second."""
PAIRS = np.array([*TEMPLATES.tolist(), *PAIR_OF.items()], np.uint8)
TID = 7
Compiled = tuple[Places, Scopes]


def compiled_code(*places: tuple[int, list[tuple[int, int]]]) -> Compiled:
    """Calls: version of the nmethod; scopes, innermost first: method, bci. The last place, of version 1, is no call."""
    counts = np.array([len(scopes) for _, scopes in places] + [0], np.int32)
    scopes = np.array([scope for _, scopes in places for scope in scopes], np.int64).reshape(-1, 2)
    called = np.array([1] * len(places) + [0], np.uint8)
    versions = np.array([version for version, _ in places] + [1], np.int64)
    place = Places(np.cumsum(counts, dtype=np.int32) - counts, counts, called, versions)
    return place, Scopes(scopes[:, 0].copy(), scopes[:, 1].astype(np.int32))


UNKNOWN_CALLS = compiled_code(*[(1, [])] * 4)


def by_opcode(graph: Graph) -> ByOpcode:
    opcode = graph.nodes.opcode
    order = np.argsort(opcode, kind="stable").astype(np.int32)
    return ByOpcode(np.searchsorted(opcode[order], np.arange(257)).astype(np.int64), order)


def blocks_of(tokens: Tokens, graph: Graph, compiled: Compiled) -> Blocks:
    """A block and a path for each token."""
    n = len(tokens)
    paths, links = np.zeros(FIRST_PATH + n, PATH_DTYPE), np.zeros(n, LINK_DTYPE)
    paths["link"][FIRST_PATH:], paths["links"][FIRST_PATH:], links["number"] = np.arange(n), 1, np.arange(n)
    weight = np.array([-1 if token == Token.COMPILED else 1 for token, _ in tokens], np.int32)
    of = OfBlocks(
        np.arange(n, dtype=np.int32), np.ones(n, np.int32), weight,
        np.array([token for token, _ in tokens], np.uint8), np.array([a for _, a in tokens], np.int32),
    )  # fmt: skip
    place = compiled[0]
    path, passage = whole(Layout().growing(paths, links, of, TEMPLATES, place.called))
    number = np.arange(len(graph.methods.entry), dtype=np.int32)
    return Blocks(of, path, passage, TEMPLATES, by_opcode(graph), *compiled, number)


def match(
    matcher: Matcher, graph: Graph, tokens: Tokens, begin: int = 0, end: int | None = None, fresh: bool = True,
    compiled: Compiled = UNKNOWN_CALLS,
) -> Found:  # fmt: skip
    """The tokens [begin, end) as a piece of a thread."""
    blocks = blocks_of(tokens, graph, compiled)
    order = np.arange(FIRST_PATH, FIRST_PATH + len(tokens), dtype=np.int32)
    nothing = np.zeros(1, np.int64)
    ends = np.array([[begin, len(tokens) if end is None else end]], np.int64)
    parts = Parts(ends, np.array([fresh]), nothing, nothing, nothing)
    (found,) = [
        out for out in matcher.group(0, TID, parts, graph, blocks, order, np.zeros(0, BREAK_DTYPE)) if out is not None
    ]
    return found


def counts(found: Found) -> tuple[Counter[int], Counter[int]]:
    """Bytecodes and invocations by method."""
    rows = found.methods[["method", "bytecodes", "invocations"]].tolist()
    return +Counter({m: n for m, n, _ in rows}), +Counter({m: n for m, _, n in rows})


def entered_by(tokens: Tokens, of: list[int]) -> Counter[int]:
    """How often each method was entered while it was watched."""
    ops = [k for k, (token, _) in enumerate(tokens) if token == Token.OP]
    pairs = zip(ops, ops[1:], of[1:], strict=False)
    return Counter(m for before, here, m in pairs if (Token.ENTER, 0) in tokens[before:here])


PLAIN = ("nop", "iconst_0", "pop")


@st.composite
def programs(draw: st.DrawFn) -> Program:
    size = draw(st.integers(1, 4))
    methods = list[list[Instruction]]()
    for _ in range(size):
        length = draw(st.integers(1, 7))
        code = list[Instruction]()
        for i in range(length):
            name = draw(st.sampled_from((*PLAIN, "ifeq", "goto", "invokestatic", "tableswitch")))
            if name == "invokestatic":
                callees = draw(st.sets(st.integers(0, size - 1), max_size=2))
                code.append((name, tuple(sorted(callees))))
            elif name == "tableswitch":
                code.append((name, tuple(draw(st.lists(st.integers(0, length), min_size=1, max_size=3)))))
            else:
                code.append((name, () if name in PLAIN else (draw(st.integers(i + 1, length)),)))
        methods.append([*code, ("return", ())])
    return Program(methods, [draw(st.integers(0, 1)) for _ in range(size)], {})


@settings(max_examples=300, deadline=None)
@given(programs(), st.integers(0, 1 << 30), st.integers(1, 60))
def test_what_is_sure_is_what_every_explanation_says(program: Program, seed: int, steps: int) -> None:
    random, graph = Random(seed), program.graph()
    method = random.randrange(len(program.methods))
    tokens, of = run(program, random.randrange, steps, method, random.randrange(len(program.methods[method])))
    try:
        possible = naive.methods(graph, tokens)
    except naive.TooManyError:
        reject()
    assert all(m in may for m, may in zip(of, possible, strict=True))
    found = match(Matcher(executed=True), graph, tokens)
    known = set(found.known["block"].tolist())
    ops = [k for k, (token, _) in enumerate(tokens) if token == Token.OP]
    sure = [m for k, m in zip(ops, of, strict=True) if k in known]
    assert all(len(may) == 1 for k, may in zip(ops, possible, strict=True) if k in known)
    bytecodes, invocations = counts(found)
    assert bytecodes == Counter(sure)
    executed = [row for part in found.executed for row in part.tolist()]
    assert [int(graph.nodes.method[node]) for _, node, _ in executed if node >= 0] == sure
    assert [order for order, _, _ in executed] == sorted(order for order, _, _ in executed)
    pairs = pairwise(node for _, node, _ in executed)
    assert sum(node == -FrameEvent.ENTER and then >= 0 for node, then in pairs) == invocations.total()
    entered = entered_by(tokens, of)
    assert all(n <= entered[m] for m, n in invocations.items())


def blocks_with_pairs(tokens: Tokens, graph: Graph) -> tuple[Blocks, list[int]]:
    """As `blocks_of`, one for two bytecodes where a template is both, and for a jump with the next bytecode; how many
    bytecodes each dispatches."""
    of_blocks = list[Tokens]()
    for token, argument in tokens:
        before = of_blocks[-1] if of_blocks else []
        if token == Token.OP and before and before[-1][0] == Token.OP and PAIR_OF.get(before[-1][1]) == argument:
            before[-1] = Token.OP, len(TEMPLATES) + list(PAIR_OF).index(before[-1][1])
        elif token == Token.OP and before == [(Token.TAKEN, 0)]:
            before.append((token, argument))
        else:
            of_blocks.append([(token, argument)])
    n = len(of_blocks)
    paths, links = np.zeros(FIRST_PATH + n, PATH_DTYPE), np.zeros(n, LINK_DTYPE)
    paths["link"][FIRST_PATH:], paths["links"][FIRST_PATH:], links["number"] = np.arange(n), 1, np.arange(n)
    counts = np.array([len(block) for block in of_blocks], np.int32)
    flat = [token for block in of_blocks for token in block]
    of = OfBlocks(
        np.cumsum(counts, dtype=np.int32) - counts, counts, np.ones(n, np.int32),
        np.array([token for token, _ in flat], np.uint8), np.array([a for _, a in flat], np.int32),
    )  # fmt: skip
    path, passage = whole(Layout().growing(paths, links, of, PAIRS, UNKNOWN_CALLS[0].called))
    number = np.arange(len(graph.methods.entry), dtype=np.int32)
    blocks = Blocks(of, path, passage, PAIRS, by_opcode(graph), *UNKNOWN_CALLS, number)
    ops = [sum(1 + (argument >= len(TEMPLATES)) for token, argument in block if token == Token.OP)
           for block in of_blocks]  # fmt: skip
    return blocks, ops


@settings(max_examples=10 if config.DISABLE_JIT else 300, deadline=None)  # type: ignore[attr-defined]
@given(programs(), programs(), st.integers(0, 1 << 30), st.integers(1, 60), st.data())
def test_a_bytecode_is_counted_with_its_block_or_not_at_all(
    ran: Program, known: Program, seed: int, steps: int, data: st.DataObject
) -> None:
    """For the profile takes the blocks that are known from the templates, and puts methods' bytecodes in their place:
    whichever classes have been told, in rows, behind holes, and in pieces."""
    random, graph = Random(seed), known.graph()
    tokens = [token for k in range(3) for token in run((known, ran)[k % 2], random.randrange, steps, 0, 0)[0]]
    blocks, ops = blocks_with_pairs(tokens, graph)
    n = len(ops)
    matcher, order = Matcher(executed=True), np.arange(FIRST_PATH, FIRST_PATH + n, dtype=np.int32)
    pieces = [0, *sorted(data.draw(st.sets(st.integers(1, n), max_size=2), "pieces")), n]
    for first, last in pairwise(pieces):
        cuts = [first, *sorted(data.draw(st.sets(st.integers(first, last), max_size=2), "cuts")), last]
        fresh = np.array([k > 0 and data.draw(st.booleans(), "hole") for k in range(len(cuts) - 1)])
        nothing = np.zeros(len(fresh), np.int64)
        parts = Parts(np.column_stack((cuts[:-1], cuts[1:])), fresh, nothing, nothing, nothing)
        found = [out for out in matcher.group(0, TID, parts, graph, blocks, order, np.zeros(0, BREAK_DTYPE)) if out][-1]
        known_ops = sum(ops[block] * times for _, block, times in found.known.tolist())
        assert all(times == 1 for _, _, times in found.known.tolist())
        executed = [int(node) for part in found.executed for _, node, _ in part.tolist() if node >= 0]
        by_events = sum(int(part["bytecodes"].sum()) for part in found.events)
        assert counts(found)[0].total() == known_ops == len(executed) == by_events
        assert counts(found)[0] == Counter(graph.nodes.method[executed].tolist())


@settings(max_examples=10 if config.DISABLE_JIT else 300, deadline=None)  # type: ignore[attr-defined]
@given(programs(), programs(), st.integers(0, 1 << 30), st.integers(1, 60))
def test_events_name_a_frame_only_while_it_is_known(ran: Program, known: Program, seed: int, steps: int) -> None:
    """Also of a program whose classes are not those that are known: what fits none of them is nobody's."""
    random, graph = Random(seed), known.graph()
    first, second = (run(ran if k else known, random.randrange, steps, 0, 0)[0] for k in range(2))
    tokens = [*first, *second]
    found = match(Matcher(executed=True), graph, tokens)
    executed = {int(order): int(graph.nodes.method[node])
                for part in found.executed for order, node, _ in part.tolist() if node >= 0}  # fmt: skip
    ops = [k for k, (token, _) in enumerate(tokens) if token == Token.OP]
    assert on_top(found, ops) == [executed.get(k, -1) for k in ops]


def on_top(found: Found, ops: list[int]) -> list[int]:
    """By the events: the method in which each bytecode is executed, −1 where none is known."""
    events = [row for part in found.events for row in part[["order", "kind", "method"]].tolist()]
    stack, out = list[int](), list[int]()
    for k in ops:
        while events and events[0][0] <= k:
            _, kind, method = events.pop(0)
            match FrameEvent(kind):
                case FrameEvent.LOST:
                    stack.clear()
                case FrameEvent.FRAME | FrameEvent.ENTER:
                    stack.append(method)
                case FrameEvent.RETURN | FrameEvent.UNWIND:
                    stack.pop()
        out.append(stack[-1] if stack else -1)
    return out


LOOP = Program(
    [
        # 0: for (;;) { if (…) first(); else second(); }
        [("iconst_0", ()), ("ifeq", (4,)), ("invokestatic", (1,)), ("goto", (0,)), ("invokestatic", (2,)),
         ("goto", (0,))],
        [("nop", ()), ("nop", ()), ("invokestatic", (2, 3)), ("return", ())],
        [("pop", ()), ("return", ())],
        [("pop", ()), ("pop", ()), ("return", ())],
    ],
    [0, 0, 0, 0], {},
)  # fmt: skip


def test_all_is_counted_but_the_end_of_what_is_open() -> None:
    tokens, of = run(LOOP, Random(1).randrange, 5000)
    bytecodes, invocations = counts(match(Matcher(), LOOP.graph(), tokens))
    assert sum(bytecodes.values()) >= len(of) - SURE
    for m in range(4):
        assert 0 <= Counter(of)[m] - bytecodes[m] <= SURE
    entered = entered_by(tokens, of)
    assert all(0 <= entered[m] - invocations[m] <= SURE for m in (1, 2, 3))


@settings(max_examples=10 if config.DISABLE_JIT else 100, deadline=None)  # type: ignore[attr-defined]
@given(programs(), st.integers(0, 1 << 30), st.integers(2, 60), st.data())
def test_events_are_of_the_row_in_which_they_happened(
    program: Program, seed: int, steps: int, data: st.DataObject
) -> None:
    """However much later it is known what happened: rows that go on are as one."""
    random, graph = Random(seed), program.graph()
    tokens, _ = run(program, random.randrange, steps, 0, 0)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(0, len(tokens)), max_size=3))), len(tokens)]
    order = np.arange(FIRST_PATH, FIRST_PATH + len(tokens), dtype=np.int32)

    def events(bounds: list[int]) -> list[tuple[int, ...]]:
        """Row, order, kind, method, bci."""
        n, columns = len(bounds) - 1, ["row", "order", "kind", "method", "bci"]
        rows, nothing = 10 + np.arange(n), np.zeros(n, np.int64)
        parts = Parts(np.column_stack((bounds[:-1], bounds[1:])), np.arange(n) == 0, rows, nothing, nothing)
        blocks = blocks_of(tokens, graph, UNKNOWN_CALLS)
        group = Matcher().group(0, TID, parts, graph, blocks, order, np.zeros(0, BREAK_DTYPE))
        return [
            row for found in group if found for part in found.events for row in part[columns].tolist()
            if row[2] != FrameEvent.GOES_ON
        ]  # fmt: skip

    told = events(cuts)
    assert [row[1:] for row in told] == [row[1:] for row in events([0, len(tokens)])]
    assert all(cuts[row - 10] <= at < cuts[row - 9] for row, at, *_ in told)


def test_a_piece_goes_on_where_the_one_before_ended() -> None:
    tokens, of = run(LOOP, Random(2).randrange, 3000)
    matcher, graph = Matcher(), LOOP.graph()
    bytecodes = Counter[int]()
    for begin in range(0, len(tokens), 97):
        bytecodes += counts(match(matcher, graph, tokens, begin, min(begin + 97, len(tokens)), begin == 0))[0]
    assert Counter(of).total() - bytecodes.total() <= 2 * SURE + 2 * (len(tokens) // 97)
    matcher.forget(TID)
    assert not matcher.threads


def test_nothing_is_known_behind_a_hole() -> None:
    """Of the same tokens, behind a hole in the middle of a method that looks like another one."""
    same: list[Instruction] = [("iconst_0", ()), ("pop", ()), ("return", ())]
    program = Program([same, list(same)], [0, 0], {})
    tokens: Tokens = [(Token.OP, OPCODE[name]) for name, _ in same]
    assert counts(match(Matcher(), program.graph(), tokens))[0].total() == 0


def test_the_events_make_the_stack() -> None:
    tokens, of = run(LOOP, Random(3).randrange, 400)
    found = match(Matcher(), LOOP.graph(), tokens)
    (events,) = found.events
    stack, counted = list[int](), Counter[int]()
    for event in events:
        match FrameEvent(int(event["kind"])):
            case FrameEvent.LOST:
                stack.clear()
            case FrameEvent.FRAME | FrameEvent.ENTER:
                stack.append(int(event["method"]))
            case FrameEvent.RETURN:
                stack.pop()
        if stack:
            counted[stack[-1]] += int(event["bytecodes"])
    assert +counted == counts(found)[0]
    assert stack[0] == 0
    assert stack[-1] == of[-1]


THROWING = Program(
    [
        [("nop", ()), ("invokestatic", (1,)), ("pop", ()), ("goto", (0,)), ("dup", ()), ("pop2", ()), ("goto", (0,))],
        [("iconst_0", ()), ("iconst_1", ()), ("athrow", ())],
    ],
    [0, 0], {0: [(1, 2, 4)]},
)  # fmt: skip


def test_an_exception_goes_to_the_handler_of_the_frame_that_it_reaches() -> None:
    op = [(Token.OP, OPCODE[name]) for name in ("nop", "invokestatic")]
    inside = [(Token.OP, OPCODE[name]) for name in ("iconst_0", "iconst_1", "athrow")]
    behind = [(Token.OP, OPCODE[name]) for name in ("dup", "pop2", "goto")]
    tokens: Tokens = [*op, (Token.ENTER, 0), *inside, (Token.THROW, 0), (Token.RETHROW, 0), *behind] * 9
    bytecodes, invocations = counts(match(Matcher(), THROWING.graph(), tokens))
    assert bytecodes[0] == 9 * 5
    assert bytecodes[1] == 9 * 3
    assert invocations[1] == 9


# Methods 1 and 2 look alike; 0 calls 1 and then 2, 3 calls 0.
ALIKE = [("iconst_0", ()), ("pop", ()), ("return", ())]
CALLING = Program(
    [
        [("nop", ()), ("invokestatic", (1,)), ("pop", ()), ("invokestatic", (2,)), ("dup", ()), ("return", ())],
        [*ALIKE], [*ALIKE],
        [("nop", ()), ("invokestatic", (0,)), ("iconst_1", ()), ("goto", (0,))],
    ],
    [0, 0, 0, 0], {},
)  # fmt: skip


def ops(*names: str) -> Tokens:
    return [(Token.OP, OPCODE[name]) for name in names]


ENTERED = (Token.ENTER, 0)
BEHIND = (Token.BEHIND, 0)
CALL_OF_1, CALL_OF_2, NO_CALL = ((Token.COMPILED, k) for k in range(3))
IN_0 = compiled_code((1, [(0, 1)]), (1, [(0, 3)]))


def test_a_call_by_compiled_code_is_the_one_that_its_scope_names() -> None:
    called = [ENTERED, *ops("iconst_0", "pop", "return")]
    tokens = [CALL_OF_1, *called, CALL_OF_2, *called, NO_CALL, CALL_OF_2, *called, NO_CALL]
    bytecodes, invocations = counts(match(Matcher(), CALLING.graph(), tokens, compiled=IN_0))
    assert invocations == {1: 1, 2: 2}
    assert bytecodes == {1: 3, 2: 6}


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("mine", [True, False])
def test_deoptimised_frames_are_those_of_the_scopes(again: bool, mine: bool) -> None:
    """The bytecode of the innermost scope is executed again, or the next one. Not those of another nmethod's call."""
    scopes = [(0, 3 if again else 1), (3, 1)]
    code = compiled_code((1 if mine else 2, scopes))
    called = [ENTERED, *ops("iconst_0", "pop", "return"), BEHIND] if again else []
    rest = [*ops("invokestatic"), *called, *ops("dup", "return")] if again else [
        *ops("pop", "invokestatic"), ENTERED, *ops("iconst_0", "pop", "return"), BEHIND, *ops("dup", "return")
    ]  # fmt: skip
    tokens = [(Token.COMPILED, 0), (Token.COMPILED, 1), (Token.DEOPTIMISED, 0), *rest, BEHIND,
              *ops("iconst_1", "goto", "nop", "invokestatic")]  # fmt: skip
    found = match(Matcher(), CALLING.graph(), tokens, compiled=code)
    bytecodes, invocations = counts(found)
    if not mine:
        assert bytecodes[3] < 4
        return
    assert bytecodes == {0: 3 if again else 4, 2: 3, 3: 4}
    assert +invocations == {2: 1}
    (events,) = found.events
    kinds = [FrameEvent(kind) for kind in events["kind"].tolist()]
    frames = events["method"][events["kind"] == FrameEvent.FRAME].tolist()
    assert kinds[kinds.index(FrameEvent.LOST) :][:4] == [
        FrameEvent.LOST, FrameEvent.COMPILED, FrameEvent.FRAME, FrameEvent.FRAME
    ]  # fmt: skip
    assert frames[:2] == [3, 0]


def stacks(found: Found) -> Iterator[tuple[np.void, list[int]]]:
    """Each event, and the methods on the interpreter's stack behind it, −1 for compiled code."""
    stack = list[int]()
    for event in np.concatenate(found.events):
        match FrameEvent(int(event["kind"])):
            case FrameEvent.LOST:
                stack.clear()
            case FrameEvent.FRAME | FrameEvent.ENTER:
                stack.append(int(event["method"]))
            case FrameEvent.COMPILED:
                stack.append(-1)
            case FrameEvent.RETURN | FrameEvent.BACK:
                stack.pop()
        yield event, stack


def test_deoptimised_frames_return_to_the_interpreter_that_called_the_nmethod() -> None:
    """And the stack that is told has no compiled frame then."""
    tokens = [*ops("nop", "invokestatic"), CALL_OF_2, NO_CALL, (Token.DEOPTIMISED, 0), *ops("invokestatic"), ENTERED,
              *ops("iconst_0", "pop", "return"), BEHIND, *ops("dup", "return"), BEHIND,
              *ops("iconst_1", "goto", "nop")]  # fmt: skip
    short = [ENTERED, *ops("iconst_0", "pop", "return"), BEHIND]
    cycle = [*ops("iconst_1", "goto", "nop", "invokestatic"), ENTERED, *ops("nop", "invokestatic"), *short,
             *ops("pop", "invokestatic"), *short, *ops("dup", "return"), BEHIND]  # fmt: skip
    found = match(Matcher(), CALLING.graph(), [*cycle, *cycle, *ops("iconst_1", "goto"), *tokens], compiled=IN_0)
    bytecodes, _ = counts(found)
    assert bytecodes == {0: 6 + 6 + 3, 1: 6, 2: 6 + 3, 3: 4 + 4 + 2 + 2 + 3}
    *_, (_, stack) = stacks(found)
    assert stack == [3]


@pytest.mark.parametrize("first", [[NO_CALL], ops("dup", "return")])
def test_the_first_frame_below_all_that_are_known_is_told_when_it_is_found(first: Tokens) -> None:
    """The compiled code, or the method, that a thread begins in returns to one of which nothing was known."""
    short = [ENTERED, *ops("iconst_0", "pop", "return"), BEHIND]
    cycle = [*ops("iconst_1", "goto", "nop", "invokestatic"), ENTERED, *ops("nop", "invokestatic"), *short,
             *ops("pop", "invokestatic"), *short, *ops("dup", "return"), BEHIND]  # fmt: skip
    found = match(Matcher(), CALLING.graph(), [*first, BEHIND, *cycle, *cycle, *cycle], compiled=IN_0)
    stack, counted = list[int](), Counter[int]()
    for event in np.concatenate(found.events):
        match FrameEvent(int(event["kind"])):
            case FrameEvent.LOST:
                stack.clear()
            case FrameEvent.FRAME | FrameEvent.ENTER:
                stack.append(int(event["method"]))
            case FrameEvent.COMPILED:
                stack.append(-1)
            case FrameEvent.RETURN | FrameEvent.BACK:
                stack.pop()
        if stack:
            counted[stack[-1]] += int(event["bytecodes"])
    assert stack == [3]
    assert +counted == counts(found)[0]


@pytest.mark.parametrize("seed", range(20))
def test_tokens_that_make_no_sense_do_no_harm(seed: int) -> None:
    random = Random(seed)
    kinds = [int(token) for token in Token]
    tokens = [(token, random.randrange(len(NAMES) if token == Token.OP else 5))
              for token in random.choices(kinds, [40] + [3] * (len(kinds) - 1), k=3000)]  # fmt: skip
    bytecodes, _ = counts(match(Matcher(), LOOP.graph(), tokens))
    assert bytecodes.total() <= 3000


def test_frames_of_what_is_gone_are_unknown() -> None:
    matcher = Matcher()
    matcher.threads[TID] = thread = Thread()
    thread.node = np.array([7, 8, NATIVE - 2, NATIVE - 3, BOTTOM - 1 - 2, BOTTOM - 1 - 3, BOTTOM, BOUNDARY], np.int32)
    matcher.going(range(8, 10), range(3, 5))
    expected = [7, UNKNOWN, NATIVE - 2, UNKNOWN, BOTTOM - 1 - 2, BOTTOM, BOTTOM, BOUNDARY]
    assert thread.node.tolist() == expected
    matcher.going(range(0), range(0))
    assert thread.node.tolist() == expected
