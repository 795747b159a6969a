"""Label selectors: `{pid="7", host=~"a|b.*"}`.

A pattern comes from whoever can reach the address, and one with nested repetitions keeps a backtracking matcher busy
for ever. So patterns are alternatives of literals with `.*` and `.+` in them, as Grafana's variables make them;
others are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_MATCHER = re.compile(r'\s*([A-Za-z_]\w{0,99})\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.){0,1000})"\s*(?:,|$)')
_MOST = 4000  # characters
MOST_SELECTORS = 64  # of a request
_SPECIAL = frozenset(".*+?()[]{}^$")
Labels = Mapping[str, str]


class Selector:
    """Raises ValueError."""

    def __init__(self, text: str) -> None:
        inner = text.strip()
        if len(inner) > _MOST:
            raise ValueError("a label selector is too long")
        if inner[:1] == "{" and inner[-1:] == "}":
            inner = inner[1:-1].strip()
        self._matchers: list[tuple[str, bool, frozenset[str] | list[list[str]]]] = []
        at = 0
        while at < len(inner):
            found = _MATCHER.match(inner, at)
            if found is None:
                raise ValueError(f"not a label selector: {text[:100]}")
            name, operator, value = found[1], found[2], re.sub(r"\\(.)", r"\1", found[3])
            wanted = _alternatives(value) if operator.endswith("~") else frozenset((value,))
            self._matchers.append((name, operator.startswith("!"), wanted))
            at = found.end()

    def __call__(self, labels: Labels) -> bool:
        """A label that is not there is empty."""
        return all(_matches(labels.get(name, ""), wanted) is not negated for name, negated, wanted in self._matchers)


def every(selectors: Iterable[str]) -> list[Selector]:
    """Raises ValueError."""
    texts = list(selectors)
    if len(texts) > MOST_SELECTORS:
        raise ValueError(f"at most {MOST_SELECTORS} selectors")
    return [Selector(text) for text in texts]


def _alternatives(pattern: str) -> list[list[str]]:
    """Of each its literals, with what may lie between as `.*`."""
    inner = pattern.removeprefix("^").removesuffix("$")
    if inner[:1] == "(" and inner[-1:] == ")":
        inner = inner[1:-1]
    out = []
    for alternative in inner.split("|"):
        parts = [p for p in re.split(r"(\.\*|\.\+|\\.)", alternative) if p]
        if any(_SPECIAL & set(p) for p in parts if p not in (".*", ".+") and p[0] != "\\"):
            raise ValueError(f"patterns here are alternatives with .* and .+ only, not {pattern[:100]}")
        out.append([p[1:] if p[0] == "\\" else p for p in parts])
    return out


def _matches(value: str, wanted: frozenset[str] | list[list[str]]) -> bool:
    return value in wanted if isinstance(wanted, frozenset) else any(_glob(value, parts) for parts in wanted)


def _glob(value: str, parts: list[str]) -> bool:
    """Places in the value that the parts so far can end at: linear in value and parts."""
    ends = {0}
    for part in parts:
        if part in (".*", ".+"):
            first = min(ends) + (part == ".+")
            ends = set(range(first, len(value) + 1))
        else:
            ends = {at + len(part) for at in ends if value.startswith(part, at)}
        if not ends:
            return False
    return len(value) in ends
