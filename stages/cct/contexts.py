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

from jvm.kernels import inner, kernel
from stages.cct.tables import (
    A_BCI,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    B_BCI,
    B_FLAGS,
    B_ITEM,
    B_PLACE,
    B_START,
    BLOCK_HANDLER,
    BLOCK_STUB_START,
    BOTTOM,
    F_CLASS,
    F_METHOD,
    FN_BOTTOM,
    FN_HOLE,
    FN_INTERPRETER,
    FN_LINKED,
    FN_NMETHOD,
    FN_OUTSIDE,
    FN_PENDING,
    FN_STUB,
    FN_UNPACKS,
    FN_UNWINDS,
    HOLE,
    I_FLAGS,
    I_FN,
    INLINED,
    INTERPRETER,
    ITEM_ENTERS,
    LEFT,
    LINKED,
    N_BCI,
    N_FLAGS,
    N_METHOD,
    N_PARENT,
    NO_RETURN,
    NODE_LINK,
    NODE_OVERFLOW,
    OUTSIDE,
    OVERFLOW_NAME,
    P_BCI,
    P_METHOD,
    P_UP,
    PENDING,
    RETURNED,
    STUB_RETURNED,
    TO_INTERPRETER,
    TO_OUTSIDE,
    UNKNOWN_CALLER,
    UNPACKED,
    UNWOUND,
    Z_ACTIVATIONS,
    Z_HOLES,
    Z_LINKS,
    Z_NODES,
    Z_OVERFLOW,
    Z_STRANGE,
)
from stages.pointers import product

SEARCHED = 1 << 14
"""So many frames are looked through for the one that a return or an exception leads to."""


@inner
def mixed(a, b, c):  # type: ignore[no-untyped-def]
    """A hash of three numbers; the caller masks its low bits."""
    h = product(a ^ product(b, -4417276706812531889), -7046029254386353131)
    h = product(h ^ (h >> 29) ^ c, -7723592293110705685)
    return (h >> 40) ^ (h >> 20)


@inner
def _child(t, parent, method, bci, flags):  # type: ignore[no-untyped-def]
    mask = len(t.by_parent) - 1
    i = mixed(parent, method, bci) & mask
    while t.by_parent[i] != 0:
        n = np.int64(t.by_parent[i])
        if t.node[n, N_PARENT] == parent and t.node[n, N_METHOD] == method and t.node[n, N_BCI] == bci:
            return n
        i = (i + 1) & mask
    n = t.size[Z_NODES]
    if n >= (len(t.node) if flags & NODE_OVERFLOW else len(t.node) // 2):
        return np.int64(-1)
    t.size[Z_NODES] = n + 1
    t.by_parent[i] = n
    t.node[n, N_PARENT], t.node[n, N_METHOD], t.node[n, N_BCI], t.node[n, N_FLAGS] = parent, method, bci, flags
    return n


@inner
def child(t, parent, method, bci):  # type: ignore[no-untyped-def]
    """The node of `method`, called from `parent` at `bci`. With no room for it the parent's `overflow`, which takes all
    that is below it too."""
    if t.node[parent, N_FLAGS] & NODE_OVERFLOW:
        return parent
    n = _child(t, parent, method, bci, 0)
    if n < 0:
        t.size[Z_OVERFLOW] += 1
        n = _child(t, parent, np.int64(OVERFLOW_NAME), np.int64(-1), NODE_OVERFLOW)
    return n if n >= 0 else parent


@kernel
def child_of(t, parent, method, bci):  # type: ignore[no-untyped-def]
    return child(t, parent, method, bci)


@inner
def inlined(t, place, node, where):  # type: ignore[no-untyped-def]
    """The node of `where`, a place in the inline tree of the nmethod that has `node`."""
    if where == 0:
        return node
    i = mixed(node, where, 0) & (INLINED - 1)
    if t.inlined[i, 0] == node and t.inlined[i, 1] == where:
        return t.inlined[i, 2]
    of, depth = node, 0
    up = where
    while up:
        depth += 1
        up = place[up, P_UP]
    for k in range(depth, 0, -1):
        up = where
        for _ in range(k - 1):
            up = place[up, P_UP]
        node = child(t, node, place[up, P_METHOD], place[up, P_BCI])
    t.inlined[i, 0], t.inlined[i, 1], t.inlined[i, 2] = of, where, node
    return node


@inner
def _activation(t, parent, ret, fn, node, caller, bci):  # type: ignore[no-untyped-def]
    """A row; `by_call` is not looked at. With no room for it, its parent."""
    a = t.size[Z_ACTIVATIONS]
    if a >= len(t.activation):
        t.size[Z_OVERFLOW] += 1
        return parent
    t.size[Z_ACTIVATIONS] = a + 1
    t.activation[a, A_PARENT], t.activation[a, A_RETURN], t.activation[a, A_FN] = parent, ret, fn
    t.activation[a, A_NODE], t.activation[a, A_CALLER], t.activation[a, A_BCI] = node, caller, bci
    return a


@inner
def frame(t, fns, parent, ret, fn, caller, bci, enters):  # type: ignore[no-untyped-def]
    """The activation of `fn` called from `parent`, by node `caller` at `bci`, that returns to `ret`. Code outside of
    the filter has no node of its own; nor has a part that a function calls of its own, which is no inlined caller's: as
    the stub behind an nmethod's code through which it calls an interpreted method (compiledIC.hpp, static stubs)."""
    mask = len(t.by_call) - 1
    i = mixed(parent, ret, fn) & mask
    while t.by_call[i] != 0:
        a = np.int64(t.by_call[i])
        row = t.activation[a]
        if row[A_PARENT] == parent and row[A_RETURN] == ret and row[A_FN] == fn:
            return a
        i = (i + 1) & mask
    node = caller
    if fn == t.activation[parent, A_FN] and not enters:
        node = t.activation[parent, A_NODE]
    elif fn != PENDING and fn != OUTSIDE:
        node = child(t, caller, fns[fn, F_METHOD], bci)
    a = _activation(t, parent, ret, fn, node, caller, bci)
    if a != parent:
        t.by_call[i] = a
    return a


@inner
def _is_stub(c):  # type: ignore[no-untyped-def]
    return c == FN_STUB or c == FN_UNPACKS or c == FN_UNWINDS


@inner
def called(t, fns, a, ret, caller, bci):  # type: ignore[no-untyped-def]
    """The activation of a call whose callee is not seen yet."""
    return frame(t, fns, a, ret, np.int64(PENDING), caller, bci, False)


@inner
def _becomes(t, fns, a, fn, enters):  # type: ignore[no-untyped-def]
    """`fn` takes the place of the activation's function: of one that the interpreter called, as part of its own."""
    row = t.activation[a]
    if fn == INTERPRETER and row[A_RETURN] == TO_INTERPRETER:
        return row[A_PARENT]
    return frame(t, fns, row[A_PARENT], row[A_RETURN], fn, row[A_CALLER], row[A_BCI], enters)


@inner
def _below(t, fns, a, fn):  # type: ignore[no-untyped-def]
    """The nearest activation of `fn` from `a` on down; −1: none that is known."""
    for _ in range(SEARCHED):
        f = t.activation[a, A_FN]
        if f == fn:
            return a
        if fns[f, F_CLASS] == FN_HOLE or fns[f, F_CLASS] == FN_BOTTOM:
            break
        a = t.activation[a, A_PARENT]
    return np.int64(-1)


@inner
def _root(t, fns, a):  # type: ignore[no-untyped-def]
    """What lies below all that is known of the stack."""
    while fns[t.activation[a, A_FN], F_CLASS] != FN_HOLE and fns[t.activation[a, A_FN], F_CLASS] != FN_BOTTOM:
        a = t.activation[a, A_PARENT]
    return a


@inner
def bottom(t, thread):  # type: ignore[no-untyped-def]
    """Below a thread's first frame. `thread`: its node."""
    return _activation(t, np.int64(0), np.int64(NO_RETURN), np.int64(BOTTOM), thread, thread, np.int64(-1))


@inner
def hole(t, thread):  # type: ignore[no-untyped-def]
    """Below the first frame that is seen after a hole: a node of its own, so that what is called from there can be
    moved when the caller is known."""
    t.size[Z_HOLES] += 1
    n = child(t, thread, np.int64(UNKNOWN_CALLER), t.size[Z_HOLES])
    return _activation(t, np.int64(0), np.int64(NO_RETURN), np.int64(HOLE), n, thread, np.int64(-1))


@inner
def _first(t, fns, root, fn):  # type: ignore[no-untyped-def]
    """The first frame that is seen above `root`."""
    return frame(t, fns, root, np.int64(NO_RETURN), fn, t.activation[root, A_NODE], np.int64(-1), True)


@inner
def _named(t, fns, place, a, b, fn):  # type: ignore[no-untyped-def]
    """A return from `a` to block `b`, of `fn`, leaves all that is known: `fn` was the caller of the frames above the
    hole. Its own caller is not known."""
    root = _root(t, fns, a)
    if t.activation[root, A_FN] == BOTTOM or root == 0:
        t.size[Z_STRANGE] += 1
        return _first(t, fns, root, fn)
    new = hole(t, t.activation[root, A_CALLER])
    caller = _first(t, fns, new, fn)
    t.size[Z_LINKS] += 1
    node = t.activation[caller, A_NODE]
    if fns[fn, F_CLASS] == FN_NMETHOD:
        node = inlined(t, place, node, b[B_PLACE])
    link = t.activation[root, A_NODE]
    if t.node[link, N_METHOD] == UNKNOWN_CALLER:
        t.node[link, N_PARENT], t.node[link, N_BCI], t.node[link, N_FLAGS] = node, b[B_BCI], NODE_LINK
    t.activation[root, A_FN], t.activation[root, A_PARENT], t.activation[root, A_RETURN] = LINKED, caller, b[B_START]
    return caller


@inner
def _returned_to(t, fns, a, address):  # type: ignore[no-untyped-def]
    """The activation that called the nearest one which returns to `address`; −1: none is known."""
    for _ in range(SEARCHED):
        if t.activation[a, A_RETURN] == address:
            return t.activation[a, A_PARENT]
        c = fns[t.activation[a, A_FN], F_CLASS]
        if c == FN_HOLE or c == FN_BOTTOM:
            break
        a = t.activation[a, A_PARENT]
    return np.int64(-1)


@inner
def _as(t, fns, a, fn):  # type: ignore[no-untyped-def]
    """The activation as one of `fn`: code that was told of anew is another version."""
    f = t.activation[a, A_FN]
    other = f != fn and fns[f, F_CLASS] == FN_NMETHOD and fns[fn, F_CLASS] == FN_NMETHOD
    return _becomes(t, fns, a, fn, True) if other else a


@inner
def _returned(t, fns, place, a, behind, b, fn):  # type: ignore[no-untyped-def]
    if t.activation[a, A_RETURN] == b[B_START]:
        return _as(t, fns, t.activation[a, A_PARENT], fn)
    f, c = t.activation[a, A_FN], fns[fn, F_CLASS]
    if behind == UNPACKED and c == FN_INTERPRETER:
        of = t.activation[a, A_PARENT] if _is_stub(fns[f, F_CLASS]) else a
        if fns[t.activation[of, A_FN], F_CLASS] == FN_NMETHOD:
            return _becomes(t, fns, of, fn, False)
    if behind == STUB_RETURNED and f == fn:
        return a
    if _is_stub(fns[f, F_CLASS]) and t.activation[t.activation[a, A_PARENT], A_FN] == fn:
        return t.activation[a, A_PARENT]  # to an exception's handler
    to = _returned_to(t, fns, a, b[B_START])
    if to < 0 and (c == FN_INTERPRETER or (c == FN_NMETHOD and b[B_FLAGS] & BLOCK_HANDLER)):
        to = _below(t, fns, a if f != fn else t.activation[a, A_PARENT], fn)
    return _as(t, fns, to, fn) if to >= 0 else _named(t, fns, place, a, b, fn)


@inner
def _jumped(t, fns, place, a, b, fn, enters):  # type: ignore[no-untyped-def]
    f = t.activation[a, A_FN]
    if f == fn:
        return a
    c, now = fns[fn, F_CLASS], fns[f, F_CLASS]
    if now == FN_PENDING:
        return _becomes(t, fns, a, fn, enters)
    if now == FN_HOLE or now == FN_BOTTOM or now == FN_LINKED:
        return _first(t, fns, a, fn)
    if _is_stub(c):
        return _becomes(t, fns, a, fn, enters) if _is_stub(now) else a
    if now == FN_OUTSIDE:
        return frame(t, fns, a, np.int64(TO_OUTSIDE), fn, t.activation[a, A_NODE], np.int64(-1), True)
    if enters:
        if now == FN_INTERPRETER:
            return frame(t, fns, a, np.int64(TO_INTERPRETER), fn, t.activation[a, A_NODE], np.int64(-1), True)
        return _becomes(t, fns, a, fn, True)
    to = _below(t, fns, t.activation[a, A_PARENT], fn)  # an exception's handler
    if to >= 0:
        return to
    if _is_stub(now):
        return _becomes(t, fns, a, fn, False)
    return _named(t, fns, place, a, b, fn)


@inner
def _unwound(t, fns, place, a, b, fn):  # type: ignore[no-untyped-def]
    """A stub has left the frame that it came from, and jumped to a handler below."""
    if _is_stub(fns[t.activation[a, A_FN], F_CLASS]):
        a = t.activation[a, A_PARENT]
    to = _below(t, fns, t.activation[a, A_PARENT], fn)
    return to if to >= 0 else _named(t, fns, place, a, b, fn)


@inner
def _resumed(t, fns, place, a, b, fn, enters):  # type: ignore[no-untyped-def]
    """Tracing comes back from outside of the filter: a call out returns, or code there calls in."""
    if t.activation[a, A_RETURN] == b[B_START]:
        return _as(t, fns, t.activation[a, A_PARENT], fn)
    if b[B_FLAGS] & BLOCK_STUB_START or t.activation[a, A_FN] == BOTTOM:
        return frame(t, fns, a, np.int64(TO_OUTSIDE), fn, t.activation[a, A_NODE], np.int64(-1), True)
    to = _returned_to(t, fns, a, b[B_START])
    if to >= 0:
        return _as(t, fns, to, fn)
    if t.activation[a, A_FN] == HOLE:
        return _named(t, fns, place, a, b, fn)
    if t.activation[a, A_FN] == OUTSIDE:
        a = t.activation[a, A_PARENT]
    return _jumped(t, fns, place, a, b, fn, enters)


@inner
def arrive(t, fns, place, item, a, behind, b):  # type: ignore[no-untyped-def]
    """The activation in which block `b` begins, behind what the block before it did in `a`."""
    fn, enters = item[b[B_ITEM], I_FN], (item[b[B_ITEM], I_FLAGS] & ITEM_ENTERS) != 0
    if behind == RETURNED or behind == STUB_RETURNED or behind == UNPACKED:
        return _returned(t, fns, place, a, behind, b, fn)
    if behind == UNWOUND and not enters:
        return _unwound(t, fns, place, a, b, fn)
    if behind == LEFT:
        return _resumed(t, fns, place, a, b, fn, enters)
    return _jumped(t, fns, place, a, b, fn, enters)


@inner
def goes_on(t, fns, place, item, a, k, b):  # type: ignore[no-untyped-def]
    """The activation in which item `k` of block `b` runs, behind a direct jump or call."""
    return _jumped(t, fns, place, a, b, item[k, I_FN], (item[k, I_FLAGS] & ITEM_ENTERS) != 0)


@inner
def left(t, fns, a, behind):  # type: ignore[no-untyped-def]
    """Tracing goes off behind a call or a return: the activation outside."""
    if fns[t.activation[a, A_FN], F_CLASS] == FN_PENDING:
        return _becomes(t, fns, a, np.int64(OUTSIDE), False)
    if behind == RETURNED or behind == STUB_RETURNED or behind == UNPACKED:
        to = _returned_to(t, fns, a, TO_OUTSIDE)
        return to if to >= 0 else _root(t, fns, a)
    return a
