"""Values whose type says more than one thing, as the one that a test has: the test fails where it is another."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    assert value is not None
    return value


def of_type(kind: type[T], value: object) -> T:
    assert isinstance(value, kind), value
    return value
