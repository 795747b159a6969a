"""The calls of a round of Known.java, by context; and those of a tree, to be compared with them."""

from __future__ import annotations

from collections import Counter
from functools import cache

from stages.cct.tree import Tree
from stages.cct.views import View

Stack = tuple[str, ...]
Contexts = Counter[Stack]
Calls = list["tuple[str, Calls] | str"]


def _counted(calls: Calls, above: Stack, out: Contexts) -> Contexts:
    for call in calls:
        name, inside = (call, []) if isinstance(call, str) else call
        out[(*above, name)] += 1
        _counted(inside, (*above, name), out)
    return out


def _chain(names: list[str]) -> Calls:
    """Each calls the next."""
    return [(names[0], _chain(names[1:]))] if names else []


def _fib(n: int) -> Calls:
    return [("fib", ["leaf"] if n < 2 else _fib(n - 1) + _fib(n - 2))]


UNKNOWN = "[unknown caller]"
ROUND: Calls = [
    ("round", [
        *_chain(["down"] * 6 + ["leaf"]), *_chain(["even", "odd", "even", "odd", "even", "leaf"]), *_fib(5),
        ("caught", [*_chain(["thrower"] * 5 + ["leaf"]), "leaf"]),
        ("rethrown", [("passed", [*_chain(["thrower"] * 3 + ["leaf"]), "leaf"]), "leaf"]),
        ("fresh", ["made", "leaf"]),
        ("lambdas", [("applied", [("$$Lambda.applyAsInt", ["leaf"])]),
                     ("applied", [("$$Lambda.applyAsInt", [("lambda$lambdas$0", ["leaf"])])])]),
        *_chain(["privileged", "$$Lambda.run", "lambda$privileged$1", "leaf"]), ("reflected", ["leaf"]),
        ("handled", ["leaf", "leaf"]), ("opened", ["leaf"]),
        ("sorted", [("$Order.compare", [("$Order.compare", ["leaf"])])] * 8),
        *_chain(["constructed", "$Derived.<init>", "$Derived.<init>", "$Base.<init>", "leaf"]),
        ("sizes", [("$One.size", ["leaf"]), ("$Two.size", ["leaf"] * 2), ("$Three.size", ["leaf"]),
                   ("$Two.size", ["leaf"] * 2)]),
        ("locked", ["leaf"]),
    ]),
]  # fmt: skip


@cache
def of_a_round() -> Contexts:
    return _counted(ROUND, (), Counter())


def from_a_round_on(contexts: Contexts) -> Contexts:
    out = Contexts()
    for stack, n in contexts.items():
        out[stack[stack.index("round") if "round" in stack else 0 :]] += n
    return out


def folded(contexts: Contexts) -> Contexts:
    """A method that is called within itself, however indirectly, is one with that."""
    out = Contexts()
    for stack, n in contexts.items():
        path: Stack = ()
        for name in stack:
            path = path[: path.index(name) + 1] if name in path else (*path, name)
        out[path] += n
    return out


def found(tree: Tree, program: str, *, recursion: bool = True) -> dict[int, Contexts]:
    """Invocations of the program's methods by thread and context: the frames that are its own, without the program's
    name, and [unknown caller]. Constructors of lambdas are left out: whether they are called is the JDK's affair."""
    tree = View(sites=False, threads=True, recursion=recursion).of(tree)
    out: dict[int, Contexts] = {}
    stacks: list[Stack] = []
    tids: list[int] = []
    for row in tree.nodes:
        name, up = tree.names[row["method"]], int(row["parent"])
        own = name.startswith(program) or name == UNKNOWN
        stacks.append((*stacks[up], name.removeprefix(program).removeprefix(".")) if up >= 0 and own
                      else stacks[up] if up >= 0 else ())  # fmt: skip
        tids.append(tids[up] if up >= 0 else int(row["bci"]))
        if name.startswith(program) and row["observed_invocations"] and not name.endswith("$$Lambda.<init>"):
            out.setdefault(tids[-1], Counter())[stacks[-1]] += int(row["observed_invocations"])
    return out
