"""Trees that stand for themselves: rows of TREE_DTYPE and names, to be sent, kept, merged (`stages.cct.merging`) and
compared. No kernels here: who only shows a tree need not load them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.messages.trees import TREE_DTYPE

COLUMNS = tuple(name for name in TREE_DTYPE.names or () if name not in ("parent", "method", "bci", "_"))


@dataclass(frozen=True, slots=True)
class Tree:
    nodes: NDArray[np.void]  # (n,) TREE_DTYPE
    names: tuple[str, ...]

    def total(self, column: str) -> int:
        return int(self.nodes[column].sum())


EMPTY = Tree(np.zeros(0, TREE_DTYPE), ())

# names that are no method's, and of methods that mean something
THREAD, UNKNOWN_CALLER, OVERFLOW_NAME, INTERPRETER_NAME, VIRTUAL_NAME, ENTERS_NAME, YIELDS_NAME = range(7)
NAMES = (
    "[thread]", "[unknown caller]", "[overflow]", "[interpreter]", "[thread] virtual threads",
    "jdk.internal.vm.Continuation.enterSpecial", "jdk.internal.vm.Continuation.doYield",
)  # fmt: skip
"""VIRTUAL_NAME: of the root of all virtual threads; ENTERS_NAME, YIELDS_NAME: methods between a carrier and a virtual
thread."""


def thread_method(name: str) -> str:
    """In the place of a method's name, of a thread's root: "[thread]", then the thread's name where it is known."""
    return f"{NAMES[THREAD]} {name}".rstrip()


def thread_name(method: str) -> str:
    """Of a root of `thread_method`; "" where it is not known."""
    return method.removeprefix(NAMES[THREAD]).strip()


def method_totals(tree: Tree, column: str) -> dict[str, int]:
    """What was spent in each method, wherever it was called from."""
    sums = np.zeros(len(tree.names), np.uint64)
    np.add.at(sums, tree.nodes["method"], tree.nodes[column])
    return {name: int(n) for name, n in zip(tree.names, sums.tolist(), strict=True)}
