"""How control moves from one activation to another: the rules by which calls, returns and jumps are told apart.

Compiled code calls and returns by CALL and RET. HotSpot does much else by jumps, so where control arrives says what a
jump was (JDK: sharedRuntime_x86_64.cpp, templateTable_x86.cpp, stubGenerator_x86_64.cpp):

- at an entry of another method: a call by the interpreter (through an i2c adapter), else a tail call (the resolvers,
  adapters, method-handle linkers), which takes the place of the activation;
- elsewhere in a method, or in the interpreter: an exception's handler, in the frame nearest below;
- in a stub: the function goes on through it, until it returns or jumps. A stub that is called is an activation,
  until it goes on to a method.

A return goes to the nearest activation that was called from there. One that leads nowhere that is known leaves the part
of the stack that is: the code it leads to names the caller, which becomes a *skeleton*, a frame seen only by what
returned to it; the frames above are linked to its call. So after a hole the stack grows downwards as it is left.
"""

# ruff: noqa: SIM109 -- a tuple to search in costs a kernel more than comparisons

# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.cct.activations import SEARCHED, class_of, frame, root_of, same
from stages.cct.presumed import NOT_ASKED, presume, presume_outside
from stages.cct.tables import (
    A_BCI,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    AC,
    B_BCI,
    B_FLAGS,
    B_ITEM,
    B_PLACE,
    B_START,
    BC,
    BLOCK_HANDLER,
    BLOCK_STUB_START,
    BOTTOM,
    F_CLASS,
    F_METHOD,
    FC,
    FN_BOTTOM,
    FN_HOLE,
    FN_INTERPRETER,
    FN_LINKED,
    FN_NMETHOD,
    FN_OUTSIDE,
    FN_PENDING,
    FN_RESOLVES,
    FN_STUB,
    FN_THAWS,
    FN_UNPACKS,
    FN_UNWINDS,
    I_FLAGS,
    I_FN,
    IC,
    INTERPRETER,
    ITEM_ENTERS,
    LEFT,
    NO_RETURN,
    OUTSIDE,
    PENDING,
    RETURNED,
    SHARED,
    STUB_RETURNED,
    TO_INTERPRETER,
    TO_OUTSIDE,
    UNPACKED,
    UNWOUND,
    Z_STRANGE,
)
from stages.cct.unknowns import hole, linked, resumed_stack
from stages.cct.virtual import unknown_of_virtual


@inner
def _is_stub(kind):  # type: ignore[no-untyped-def]
    return kind == FN_STUB or kind == FN_UNPACKS or kind == FN_UNWINDS or kind == FN_THAWS or kind == FN_RESOLVES


@inner
def called(t, c, a, ret, caller, bci):  # type: ignore[no-untyped-def]
    """The activation of a call whose callee is not seen yet."""
    return frame(t, c, a, ret, np.int64(PENDING), caller, bci, False)


@inner
def _becomes(t, c, a, fn, enters):  # type: ignore[no-untyped-def]
    """`fn` takes the place of the activation's function: of one that the interpreter called, as part of its own."""
    row = AC * a
    parent, ret = t.activation[row + A_PARENT], t.activation[row + A_RETURN]
    if fn == INTERPRETER and ret == TO_INTERPRETER:
        return parent
    return frame(t, c, parent, ret, fn, t.activation[row + A_CALLER], t.activation[row + A_BCI], enters)


@inner
def _is_version(t, c, a, fn):  # type: ignore[no-untyped-def]
    """Whether activation `a` is of another version of the method of `fn`. Versions that take each other's place give
    the same packets for a while, so a call may have been taken for one of the other: where control comes back tells."""
    f = t.activation[AC * a + A_FN]
    compiled = c.fns[FC * f + F_CLASS] == FN_NMETHOD and c.fns[FC * fn + F_CLASS] == FN_NMETHOD
    return compiled and f != fn and c.fns[FC * f + F_METHOD] == c.fns[FC * fn + F_METHOD]


@inner
def _below(t, c, a, fn):  # type: ignore[no-untyped-def]
    """The nearest activation of `fn` from `a` on down, else of another version of its method; −1: none is known."""
    version = np.int64(-1)
    for _ in range(SEARCHED):
        if same(t, c, a, fn):
            return a
        if version < 0 and _is_version(t, c, a, fn):
            version = a
        kind = class_of(t, c, a)
        if kind == FN_HOLE or kind == FN_BOTTOM:
            break
        a = t.activation[AC * a + A_PARENT]
    return version


@inner
def _first(t, c, root, fn):  # type: ignore[no-untyped-def]
    """The first frame that is seen above `root`."""
    presume(t, c, root, fn, NOT_ASKED)
    return frame(t, c, root, np.int64(NO_RETURN), fn, t.activation[AC * root + A_NODE], np.int64(-1), True)


@inner
def _named(t, c, a, b, fn):  # type: ignore[no-untyped-def]
    """A return from `a` to block `b`, of `fn`, leaves all that is known: `fn` was the caller of the frames above the
    hole. Its own caller is not known."""
    root = root_of(t, c, a)
    if root == 0:
        t.size[Z_STRANGE] += 1
        return _first(t, c, root, fn)
    if t.activation[AC * root + A_FN] == BOTTOM:
        if class_of(t, c, a) == FN_THAWS:
            return _first(t, c, unknown_of_virtual(t, c, a), fn)
        t.size[Z_STRANGE] += 1
        return _first(t, c, resumed_stack(t, c, a, t.activation[AC * root + A_NODE]), fn)
    if t.activation[AC * root + A_FN] == SHARED:
        to = _returned_to(t, c, t.activation[AC * root + A_PARENT], c.block[BC * b + B_START])
        return _as(t, c, to, fn) if to >= 0 else _first(t, c, root, fn)
    if class_of(t, c, a) == FN_THAWS:  # its frames are not the callers of those of the carrier
        return _first(t, c, unknown_of_virtual(t, c, a), fn)
    return linked(t, c, root, fn, c.block[BC * b + B_PLACE], c.block[BC * b + B_BCI], c.block[BC * b + B_START])


@inner
def _returned_to(t, c, a, address):  # type: ignore[no-untyped-def]
    """The activation that called the nearest one which returns to `address`; −1: none is known."""
    for _ in range(SEARCHED):
        if t.activation[AC * a + A_RETURN] == address:
            return t.activation[AC * a + A_PARENT]
        kind = class_of(t, c, a)
        if kind == FN_HOLE or kind == FN_BOTTOM:
            break
        a = t.activation[AC * a + A_PARENT]
    return np.int64(-1)


@inner
def _as(t, c, a, fn):  # type: ignore[no-untyped-def]
    """The activation as one of `fn`: code that was told of anew is another version."""
    f = t.activation[AC * a + A_FN]
    other = f != fn and c.fns[FC * f + F_CLASS] == FN_NMETHOD and c.fns[FC * fn + F_CLASS] == FN_NMETHOD
    return _becomes(t, c, a, fn, True) if other else a


@inner
def _caller(t, c, a):  # type: ignore[no-untyped-def]
    """The activation that called `a`, or the stubs that it was called through."""
    a = t.activation[AC * a + A_PARENT]
    while _is_stub(class_of(t, c, a)):
        a = t.activation[AC * a + A_PARENT]
    return a


@inner
def _returned(t, c, a, behind, b, fn):  # type: ignore[no-untyped-def]
    if t.activation[AC * a + A_RETURN] == c.block[BC * b + B_START]:
        return _as(t, c, t.activation[AC * a + A_PARENT], fn)
    f, kind = t.activation[AC * a + A_FN], c.fns[FC * fn + F_CLASS]
    if behind == UNPACKED and kind == FN_INTERPRETER:
        of = t.activation[AC * a + A_PARENT] if _is_stub(c.fns[FC * f + F_CLASS]) else a
        if class_of(t, c, of) == FN_NMETHOD:
            return _becomes(t, c, of, fn, False)
    if behind == STUB_RETURNED and same(t, c, a, fn):
        return a
    if kind == FN_THAWS and c.block[BC * b + B_FLAGS] & BLOCK_STUB_START:
        return a  # the return barrier, in the place of the caller's address: it brings that frame, and goes on there
    if t.activation[AC * a + A_RETURN] == NO_RETURN:  # behind a call that was not seen, or taken for another one
        up = t.activation[AC * a + A_PARENT]
        if t.activation[AC * up + A_RETURN] == c.block[BC * b + B_START]:
            return t.activation[AC * up + A_PARENT]
        if t.activation[AC * up + A_FN] == fn:
            return up
    if _is_stub(c.fns[FC * f + F_CLASS]) and same(t, c, t.activation[AC * a + A_PARENT], fn):
        return t.activation[AC * a + A_PARENT]  # to an exception's handler
    to = _returned_to(t, c, a, c.block[BC * b + B_START])
    if to < 0 and (kind == FN_INTERPRETER or (kind == FN_NMETHOD and c.block[BC * b + B_FLAGS] & BLOCK_HANDLER)):
        to = _below(t, c, t.activation[AC * a + A_PARENT] if same(t, c, a, fn) else a, fn)
    if to < 0 and _is_version(t, c, _caller(t, c, a), fn):
        to = _caller(t, c, a)
    return _as(t, c, to, fn) if to >= 0 else _named(t, c, a, b, fn)


@inner
def _jumped(t, c, a, b, fn, enters):  # type: ignore[no-untyped-def]
    f = t.activation[AC * a + A_FN]
    if same(t, c, a, fn):
        return a
    kind, now = c.fns[FC * fn + F_CLASS], c.fns[FC * f + F_CLASS]
    if now == FN_PENDING:
        return _becomes(t, c, a, fn, enters)
    if now == FN_HOLE or now == FN_BOTTOM or now == FN_LINKED:
        if c.block[BC * b + B_FLAGS] & BLOCK_STUB_START:
            presume_outside(t, a)
        return _first(t, c, a, fn)
    if _is_stub(kind):
        return _becomes(t, c, a, fn, enters) if _is_stub(now) else a
    if now == FN_OUTSIDE:
        return frame(t, c, a, np.int64(TO_OUTSIDE), fn, t.activation[AC * a + A_NODE], np.int64(-1), True)
    if enters:
        if now == FN_INTERPRETER:
            return frame(t, c, a, np.int64(TO_INTERPRETER), fn, t.activation[AC * a + A_NODE], np.int64(-1), True)
        return _becomes(t, c, a, fn, True)
    to = _below(t, c, a, fn)  # an exception's handler
    if to >= 0:
        return _as(t, c, to, fn)
    if _is_stub(now):
        return _becomes(t, c, a, fn, False)
    return _named(t, c, a, b, fn)


@inner
def _unwound(t, c, a, b, fn):  # type: ignore[no-untyped-def]
    """A stub has left the frame that it came from, and jumped to a handler below."""
    if _is_stub(class_of(t, c, a)):
        a = t.activation[AC * a + A_PARENT]
    to = _below(t, c, t.activation[AC * a + A_PARENT], fn)
    return _as(t, c, to, fn) if to >= 0 else _named(t, c, a, b, fn)


@inner
def _resumed(t, c, a, b, fn, enters):  # type: ignore[no-untyped-def]
    """Tracing comes back from outside of the filter: a call out returns, or code there calls in."""
    if t.activation[AC * a + A_RETURN] == c.block[BC * b + B_START]:
        return _as(t, c, t.activation[AC * a + A_PARENT], fn)
    if c.block[BC * b + B_FLAGS] & BLOCK_STUB_START or t.activation[AC * a + A_FN] == BOTTOM:
        return frame(t, c, a, np.int64(TO_OUTSIDE), fn, t.activation[AC * a + A_NODE], np.int64(-1), True)
    to = _returned_to(t, c, a, c.block[BC * b + B_START])
    if to >= 0:
        return _as(t, c, to, fn)
    if class_of(t, c, a) == FN_HOLE:
        return _named(t, c, a, b, fn)
    if t.activation[AC * a + A_FN] == OUTSIDE:
        a = t.activation[AC * a + A_PARENT]
    if c.fns[FC * fn + F_CLASS] == FN_RESOLVES and class_of(t, c, a) == FN_NMETHOD:  # its code has changed
        a = called(t, c, a, np.int64(NO_RETURN), t.activation[AC * a + A_NODE], np.int64(-1))
        return _becomes(t, c, a, fn, enters)
    if _is_elsewhere(t, c, a, b, fn, enters):
        return _first(t, c, hole(t, c, t.activation[AC * root_of(t, c, a) + A_CALLER], a), fn)
    return _jumped(t, c, a, b, fn, enters)


@inner
def _is_elsewhere(t, c, a, b, fn, enters):  # type: ignore[no-untyped-def]
    """Whether tracing comes back in the middle of a method that is not on the stack: trace of the thread is missing, or
    was taken for another's."""
    if enters or c.fns[FC * fn + F_CLASS] != FN_NMETHOD or c.block[BC * b + B_FLAGS] & BLOCK_HANDLER:
        return False
    return class_of(t, c, a) == FN_NMETHOD and not same(t, c, a, fn) and _below(t, c, a, fn) < 0


@inner
def arrive(t, c, a, behind, b):  # type: ignore[no-untyped-def]
    """The activation in which block `b` begins, behind what the block before it did in `a`."""
    fn, enters = (
        c.item[IC * c.block[BC * b + B_ITEM] + I_FN],
        (c.item[IC * c.block[BC * b + B_ITEM] + I_FLAGS] & ITEM_ENTERS) != 0,
    )
    if behind == RETURNED or behind == STUB_RETURNED or behind == UNPACKED:
        return _returned(t, c, a, behind, b, fn)
    if behind == UNWOUND and not enters:
        return _unwound(t, c, a, b, fn)
    if behind == LEFT:
        return _resumed(t, c, a, b, fn, enters)
    return _jumped(t, c, a, b, fn, enters)


@inner
def goes_on(t, c, a, k, b):  # type: ignore[no-untyped-def]
    """The activation in which item `k` of block `b` runs, behind a direct jump or call."""
    return _jumped(t, c, a, b, c.item[IC * k + I_FN], (c.item[IC * k + I_FLAGS] & ITEM_ENTERS) != 0)


@inner
def left(t, c, a, behind):  # type: ignore[no-untyped-def]
    """Tracing goes off behind a call or a return: the activation outside."""
    if class_of(t, c, a) == FN_PENDING:
        return _becomes(t, c, a, np.int64(OUTSIDE), False)
    if behind == RETURNED or behind == STUB_RETURNED or behind == UNPACKED:
        to = _returned_to(t, c, a, TO_OUTSIDE)
        return to if to >= 0 else root_of(t, c, a)
    return a
