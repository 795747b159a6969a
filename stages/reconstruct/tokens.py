"""What a block of machine code says of the interpreter: found once, from the landmarks that it passes."""

from __future__ import annotations

from enum import IntEnum


class Token(IntEnum):
    """In the order of the block's code."""

    OP = 1  # a bytecode is dispatched: argument: its row in `templates`
    TAKEN = 2  # the bytecode pointer is set by an offset in the code: a branch jumps
    ENTER = 3  # a method's entry; `Entry`
    CLEAR = 4  # a local is cleared in it
    BEHIND = 5  # a call has returned to the interpreter
    THROW = 6  # an exception is thrown in the frame on top
    RETHROW = 7  # one comes from the frame above, or from the VM
    UPCALL = 8  # the VM calls Java
    UPRETURN = 9  # Java returns to the VM
    COMPILED = 10  # compiled code
    LOST = 11  # frames change in a way that is not followed: continuations
    DEOPTIMISED = 12  # frames of the interpreter take the place of one of compiled code


class Entry(IntEnum):
    """What a method entry of the interpreter is for."""

    PLAIN = 0
    SYNCHRONIZED = 1
    NATIVE = 2
    INTRINSIC = 3  # the interpreter has code of its own for this method, or goes on to one of the others
    ABSTRACT = 4  # an error
