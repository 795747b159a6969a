"""Path frequencies as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stages.statements.statements import Executed

SHOWN = 24
"""Bytecode indices of a path."""


def text(executed: Iterable[Executed], top: int) -> Iterator[str]:
    """The paths that were taken most often, with the bytecode indices on them where control could go elsewhere."""
    rows = [(int(times), int(number), e) for e in executed for number, times in e.paths]
    rows.sort(key=lambda row: (-row[0], row[2].method.selector, row[1]))
    total = sum(times for times, _, _ in rows)
    yield f"{'times':>12} {'share':>7} {'path':>12}  method and bytecode indices"
    for times, number, e in rows[:top]:
        n, bcis = e.method.numbering, e.method.cfg.nodes.bci.tolist()
        assert n is not None, "it has numbers"
        nodes = n.nodes(number)
        forks = [k for k, node in enumerate(nodes) if n.edge[node + 1] - n.edge[node] > 1]
        told = sorted({0, len(nodes) - 1, *forks, *(k + 1 for k in forks)} & set(range(len(nodes))))
        way = [str(bcis[nodes[k]]) for k in told]
        if len(way) > SHOWN:
            way = [*way[: SHOWN - 1], "…", way[-1]]
        yield (f"{times:>12,} {times / total:>7.1%} {f'{number} of {n.paths}':>12}  {e.method.name} {' '.join(way)}")
    methods = len({id(e) for _, _, e in rows})
    yield f"{len(rows):,} paths of {methods:,} methods, taken {total:,} times by the interpreter"
