from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamer.cli import Failure
from streamer.lossy import never_fail
from streamer.options import budget_option, pipeline_options, summary_option, target_options

if TYPE_CHECKING:
    from streamer.config import Settings


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@target_options
@budget_option
@click.option(
    "--record", type=click.Path(path_type=Path, file_okay=False), help="Also keep the trace, in this directory."
)
@click.option("--live/--no-live", default=None, help="Show a live table.  [default: on a terminal]")
@click.argument("java", nargs=-1, required=True, type=click.UNPROCESSED)
@summary_option
@pipeline_options
def command(
    settings: Settings,
    emulate: bool,
    record: Path | None,
    live: bool | None,
    summary_file: Path | None,
    java: tuple[str, ...],
) -> None:
    """Start a JVM, trace it, and serve its hot methods until it ends.

    The page and /metrics are at http://127.0.0.1:9464; at the end a summary is printed. The exit status is the
    JVM's. Without --emulate the machine must have Intel PT: see `streamer doctor`.

    \b
    Examples:
      streamer run --emulate -- java -cp app.jar Main
      streamer run --emulate --record traces -- java -Xint -jar app.jar    and keep the trace
      streamer run --cpu-budget 25% -- java -jar app.jar                   for a quarter of a CPU, in all
      streamer run --emulate --port 0 --summary s.json -- java -jar app.jar
    """
    from streamer import logs
    from streamer.pipeline.runner import Runner
    from streamer.pipeline.topology import topology
    from streamer.running import idle_workers, one_line, run_to_the_end, session_for, tell_on
    from streamer.target import launch as target
    from streamer.target.process import TargetProcess

    never_fail("stdout")
    console = logs.console()
    options: dict[str, Any] = {"live": True}
    if record is not None:
        options["record"] = str(record.absolute())
    with one_line(), session_for(java, settings, tell_on(console)) as directory:
        argv = target.emulated(java, directory, settings) if emulate else target.native(java, directory, settings)
        options["hardware"] = not emulate
        plan = topology(settings, **options)
        if (line := idle_workers(settings, emulate)) is not None:
            tell_on(console)(line)
        with TargetProcess(argv, tell_on(console), settings.target.stop_seconds) as jvm:
            runner = Runner(settings, plan, directory, target=jvm, console=console,
                            live=console.is_terminal if live is None else live)  # fmt: skip
            outcome = run_to_the_end(runner, console, summary_file)
            if not outcome.books_balance:
                raise Failure("bytes written, decoded and in holes do not add up: see above")
    sys.exit(jvm.status)
