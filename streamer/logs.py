"""Structured logs on stderr: key=value lines for people, JSON lines for collectors (`log_json`).

With JSON every line of ours is such a line: also messages for people (`console`), faults that end a command (`fault`),
and logs of libraries.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import IO, cast

import structlog
from rich.console import Console

from streamer.config import Settings

_WIDEST = 100_000  # of a message on one line
_json = False


def configure(settings: Settings, **context: object) -> None:
    """Set up logging for this process; `context` (e.g. process="worker-0") stands on every line."""
    global _json
    _json = settings.log_json
    renderer: structlog.typing.Processor
    if settings.log_json:
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    if settings.log_json:
        handler = logging.StreamHandler(sys.stderr)
        formatter = structlog.stdlib.ProcessorFormatter
        handler.setFormatter(
            formatter(foreign_pre_chain=shared, processors=[formatter.remove_processors_meta, renderer])
        )
        logging.basicConfig(handlers=[handler], level=settings.log_level.upper(), force=True)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.log_level.upper())),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # sys.stderr as it is at each line
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**context)


class _Lines(io.TextIOBase):
    """A file whose lines are events of the log."""

    def __init__(self) -> None:
        self._begun = ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            if line := line.strip():
                structlog.get_logger().info(line)
        return len(text)


def console() -> Console:
    """For messages to people, on stderr."""
    return Console(file=cast(IO[str], _Lines()), width=_WIDEST) if _json else Console(stderr=True)


def fault(line: str) -> bool:
    """Logs the fault that ends a command; False: logs are for people, who are told otherwise."""
    if _json:
        structlog.get_logger().error(line)
    return _json
