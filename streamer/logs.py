"""Structured logs on stderr: key=value lines for people, JSON lines for collectors (`log_json`)."""

from __future__ import annotations

import logging
import sys

import structlog

from streamer.config import Settings


def configure(settings: Settings, **context: object) -> None:
    """Set up logging for this process; `context` (e.g. process="worker-0") stands on every line."""
    renderer: structlog.typing.Processor
    if settings.log_json:
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, settings.log_level.upper())),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # sys.stderr as it is at each line
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**context)
