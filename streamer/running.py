"""Common parts of the commands that run a pipeline: its session, its end, and errors as one line."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import trio
from rich.console import Console

from jvm.private import output_file
from streamer import config, errors
from streamer.cli import Failure
from streamer.pipeline.runner import Runner
from streamer.session.session import NoRoomError, session
from streamer.target.process import TargetProcess

if TYPE_CHECKING:
    from streamer.pipeline.outcome import Outcome


@contextmanager
def one_line() -> Iterator[None]:
    """An error that the user can act on becomes a `Failure`: one line and exit status 1."""
    try:
        yield
    except Exception as error:
        if (line := errors.one_line(error)) is None:
            raise
        raise Failure(line) from error


def tell_on(console: Console) -> Callable[[str], None]:
    """Shows a line, as it is."""
    return functools.partial(console.print, highlight=False, markup=False, soft_wrap=True)


def idle_workers(settings: config.Settings, emulate: bool) -> str | None:
    """A line for a user who asks for workers that one JVM cannot share."""
    per_cpu = not settings.emulator.per_thread if emulate else settings.hardware.per_cpu
    if settings.transport.workers == 1 or not per_cpu:
        return None
    more = "with --per-thread" if emulate else "without hardware.per_cpu"
    return f"the JVM writes a stream a CPU, which is one worker's: the others have nothing to do; {more} they share it"


@contextmanager
def session_for(java_argv: Sequence[str], settings: config.Settings, tell: Callable[[str], None]) -> Iterator[Path]:
    """`streamer.session.session`; but a full disk is no reason not to start a JVM: then the command runs as it is, and
    its exit status is ours. Raises SessionError, SystemExit."""
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(session(settings.runtime_dir))
        except NoRoomError as error:
            tell(f"streamer: {error}; the program runs without tracing")
            with TargetProcess(java_argv, tell, settings.target.stop_seconds) as process:
                process.start()
            sys.exit(process.status)
        yield directory


def run_to_the_end(runner: Runner, console: Console, summary_file: Path | None = None) -> Outcome:
    """Runs it; the first SIGINT, SIGTERM or SIGHUP begins the orderly end, a second one the abrupt one, unless they are
    for the target (`streamer.target.process`) or were ignored when we began (nohup). Prints the summary, and writes it
    to `summary_file` as JSON. Raises Failure for the faults that are known to be possible."""

    async def main() -> Outcome:
        async with trio.open_nursery() as nursery:
            if not isinstance(runner.target, TargetProcess):
                nursery.start_soon(_stop_on_signals, runner, console)
            outcome = await runner.run()
            nursery.cancel_scope.cancel()
        return outcome

    with one_line():
        try:
            outcome = trio.run(main)
        except BaseExceptionGroup as group:
            raise _only(group) from None
        from streamer.pipeline.outcome import figures, report  # which the runner has loaded by now

        click.echo(report(outcome, color=console.is_terminal))
        if summary_file is not None:
            with os.fdopen(output_file(summary_file), "w") as text:
                text.write(json.dumps(figures(outcome), indent=1) + "\n")
    if outcome.failed:
        raise Failure(f"did not work to the end: {', '.join(outcome.failed)}")
    return outcome


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that ended everything; nurseries wrap it."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        real = [e for e in error.exceptions if not isinstance(e, trio.Cancelled)]
        error = real[0]
    return error


async def _stop_on_signals(runner: Runner, console: Console) -> None:
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in ending if signal.getsignal(number) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*heard) as signals:
        first = True
        async for _ in signals:
            if not first:
                raise KeyboardInterrupt
            first = False
            console.print("stopping: counting what was drained (again: at once)", style="dim")
            runner.stop()
