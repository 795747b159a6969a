"""A path as text: the bytecode indices on it where control could go elsewhere, and those where it went."""

from __future__ import annotations

from stages.statements.methods import Method

SHOWN = 24
"""Bytecode indices of a path."""


def way(method: Method, number: int) -> str:
    """Raises IndexError if the method has no such path."""
    n, bcis = method.numbering, method.cfg.nodes.bci.tolist()
    if n is None:
        raise IndexError(number)
    nodes = n.nodes(number)
    forks = [k for k, node in enumerate(nodes) if n.edge[node + 1] - n.edge[node] > 1]
    told = sorted({0, len(nodes) - 1, *forks, *(k + 1 for k in forks)} & set(range(len(nodes))))
    found = [str(bcis[nodes[k]]) for k in told]
    if len(found) > SHOWN:
        found = [*found[: SHOWN - 1], "…", found[-1]]
    return " ".join(found)
