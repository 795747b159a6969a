"""Faults that the user can act on."""

from __future__ import annotations


class ExpectedError(Exception):
    """Its message is one clear line for the user, with the cause and, if there is one, the remedy. Each part of the
    program has its own kinds; a command that one of them ends prints the line, not a traceback (`streamer.errors`)."""
