"""Below the frames that are known, and between them: the ground of a thread, unknowns behind holes, gaps. And how an
unknown is linked to its caller, once that is found."""


# mypy: disable-error-code="assignment"

from __future__ import annotations

import numpy as np

from jvm.kernels import inner
from stages.cct.activations import frame, new_activation
from stages.cct.nodes import child, inlined
from stages.cct.presumed import is_untold, named, presume, presume_named
from stages.cct.tables import (
    A_BEFORE,
    A_CALLER,
    A_FN,
    A_NODE,
    A_PARENT,
    A_RETURN,
    A_WHOLE,
    AC,
    BOTTOM,
    BY_BYTECODE,
    F_CLASS,
    FC,
    FN_NMETHOD,
    HOLE,
    INTERPRETER,
    LINKED,
    N_BCI,
    N_FLAGS,
    N_METHOD,
    N_PARENT,
    NC,
    NO_RETURN,
    NODE_LINK,
    OWN_GAP,
    SHARED,
    Z_GAPS,
    Z_HOLES,
    Z_LINKS,
    Z_OWN_HOLES,
    Z_SHARED_HOLES,
)
from stages.cct.tree import INTERPRETER_NAME, UNKNOWN_CALLER


@inner
def _of_thread(t, c, parent, fn, thread):  # type: ignore[no-untyped-def]
    """The activation of `fn`, below which nothing is, or nothing is known, that is the one of a thread's node."""
    return frame(t, c, parent, -1 - thread, fn, thread, np.int64(-1), True)


@inner
def bottom(t, c, thread):  # type: ignore[no-untyped-def]
    """Below a thread's first frame. `thread`: its node."""
    return _of_thread(t, c, np.int64(0), np.int64(BOTTOM), thread)


@inner
def _unknown(t, thread, before):  # type: ignore[no-untyped-def]
    """Below the first frame that is known: a node of its own, so that what is called from there can be moved when the
    caller is known. `before`: the stack that may lie below."""
    t.size[Z_HOLES] += 1
    n = child(t, thread, np.int64(UNKNOWN_CALLER), t.size[Z_HOLES])
    a = new_activation(t, np.int64(0), np.int64(NO_RETURN), np.int64(HOLE), n, thread, np.int64(-1))
    if a:
        t.activation[AC * a + A_BEFORE] = t.activation[AC * a + A_WHOLE] = before
    return a


@inner
def hole(t, c, thread, before):  # type: ignore[no-untyped-def]
    """Below the first frame that is seen after a hole, before which the stack was `before`. Each has an unknown of its
    own, but for the many more of a pane: these share one a thread, which stays where it is. For all that runs on an
    unknown of its own is worked out anew."""
    if t.size[Z_OWN_HOLES] > 0:
        t.size[Z_OWN_HOLES] -= 1
        return _unknown(t, thread, before)
    t.size[Z_SHARED_HOLES] += 1
    return _of_thread(t, c, np.int64(0), np.int64(SHARED), thread)


@inner
def gap(t, c, a):  # type: ignore[no-untyped-def]
    """Frames of the interpreter above `a` that are not known, and not how many. Each has a node of its own, that of one
    of its frames can be told later (`read_stacks`), as long as holes may have one; the others are one."""
    caller = t.activation[AC * a + A_NODE]
    if t.size[Z_OWN_HOLES] <= 0:
        return frame(t, c, a, np.int64(BY_BYTECODE), np.int64(INTERPRETER), caller, np.int64(-1), True)
    t.size[Z_OWN_HOLES] -= 1
    t.size[Z_GAPS] += 1
    node = child(t, caller, np.int64(INTERPRETER_NAME), OWN_GAP - t.size[Z_GAPS])
    return new_activation(t, a, np.int64(BY_BYTECODE), np.int64(INTERPRETER), node, caller, np.int64(-1))


@inner
def resumed_stack(t, c, a, thread):  # type: ignore[no-untyped-def]
    """The unknown below the first frame of a stack that goes on where it was left, while `thread`'s own frames are
    those from `a` on down: a virtual thread's, mounted again (JDK: continuationFreezeThaw.cpp, `thaw`). Which one it is
    the trace does not say. Control comes back to `a`, or below, when it is unmounted."""
    return _of_thread(t, c, a, np.int64(SHARED), thread)


@inner
def linked(t, c, root, fn, place, bci, ret):  # type: ignore[no-untyped-def]
    """The unknown `root` was called by `fn`, at that place and bci, and has returned to `ret`: the activation of that
    caller, below which there is another unknown."""
    new = _unknown(t, t.activation[AC * root + A_CALLER], np.int64(0))
    caller = frame(t, c, new, np.int64(NO_RETURN), fn, t.activation[AC * new + A_NODE], np.int64(-1), True)
    node = t.activation[AC * caller + A_NODE]
    if c.fns[FC * fn + F_CLASS] == FN_NMETHOD:
        node = inlined(t, c, node, place)
    if is_untold(c, fn) and t.node[NC * node + N_METHOD] == INTERPRETER_NAME:
        bci, before = presume_named(t, c, root, caller)
        t.activation[AC * caller + A_BEFORE] = root
    else:
        bci, before = named(t, root, node, bci)
    t.activation[AC * new + A_BEFORE] = t.activation[AC * new + A_WHOLE] = before
    presume(t, c, new, fn, ret)
    t.size[Z_LINKS] += 1
    _links(t, root, caller, node, bci, ret)
    return caller


@inner
def _links(t, root, caller, node, bci, ret):  # type: ignore[no-untyped-def]
    """The unknown `root` is a call of `caller`, by its node at `bci`, and returns to `ret`."""
    link = t.activation[AC * root + A_NODE]
    if t.node[NC * link + N_METHOD] == UNKNOWN_CALLER:
        row = NC * link
        t.node[row + N_PARENT], t.node[row + N_BCI] = node, bci
        t.node[row + N_FLAGS] |= NODE_LINK
    row = AC * root
    t.activation[row + A_FN], t.activation[row + A_PARENT], t.activation[row + A_RETURN] = LINKED, caller, ret


@inner
def links_to(t, root, caller, node, bci, ret):  # type: ignore[no-untyped-def]
    """As `linked`, of a caller of which the whole stack is known."""
    named(t, root, node, bci)
    t.size[Z_LINKS] += 1
    _links(t, root, caller, node, bci, ret)
