"""Integers in arguments."""

from __future__ import annotations


def number(text: str) -> int:
    """An integer as C writes it. Raises ValueError."""
    if len(text) > 1 and text[0] == "0" and text.isdigit():
        return int(text, 8)
    return int(text, 0)
