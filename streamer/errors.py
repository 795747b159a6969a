"""A fault that the user can act on becomes one clear line on stderr and an exit status; a traceback is for faults of
ours.

All commands end here (`streamer.cli`), with any exception.
"""

from __future__ import annotations

import errno
import sys
from contextlib import suppress

import click
from pydantic import ValidationError

from jvm.faults import ExpectedError
from streamer import logs
from streamer.config import ConfigError

_SETTING, _INTERRUPTED, _PIPE = 2, 130, 141  # 128 + signal


def one_line(error: BaseException) -> str | None:
    """The line for `error`; None: that is no error of the kind."""
    if isinstance(error, ExpectedError):
        return " ".join(str(error).split())
    if isinstance(error, OSError):
        what = f"{error.filename}: " if error.filename else ""
        if error.errno == errno.ENOSPC and not what:
            what = "output: "
        return what + (error.strerror or str(error))
    return None


def end(error: BaseException) -> int:
    """Prints the line for the error that ended a command, and returns the exit status. Raises unexpected errors
    again."""
    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.ClickException():
            with suppress(OSError):
                if not logs.fault(error.format_message()):
                    error.show()
            return error.exit_code
        case ValidationError():  # a setting, from whichever source
            for each in error.errors():
                name = ".".join(str(part) for part in each["loc"])
                _tell(f"setting {name}: {each['msg'].removeprefix('Value error, ')}")
            return _SETTING
        case ConfigError():
            _tell(str(error))
            return _SETTING
        case click.Abort() | KeyboardInterrupt():
            return _INTERRUPTED
        case BrokenPipeError():  # `streamer pt dump … | head`
            return _PIPE
        case _ if (line := one_line(error)) is not None:
            _tell(line)
            return 1
    raise error


def _tell(line: str) -> None:
    with suppress(OSError):  # no reader is left; the status says it
        if logs.fault(line):
            return
        print(f"streamer: {line}", file=sys.stderr, flush=True)
