from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamer.cli import Failure
from streamer.options import pipeline_options, summary_option

if TYPE_CHECKING:
    from streamer.config import Settings


@click.command()
@click.argument("pid", type=click.IntRange(1), required=False)
@click.option("--live/--no-live", default=None, help="Show a live table.  [default: on a terminal]")
@summary_option
@pipeline_options
def command(settings: Settings, pid: int | None, live: bool | None, summary_file: Path | None) -> None:
    """Trace a JVM again whose `streamer run` was killed, until it ends.

    The JVM has gone on meanwhile. Its rings are read on from where they were; trace missed meanwhile is in holes, and
    the counts before are kept. PID may be left out where only one such JVM runs. Ctrl-C ends tracing, not the JVM: it
    can be taken up again.

    \b
    Examples:
      streamer resume          the one JVM that there is
      streamer resume 4711     that one
    """
    from streamer import logs
    from streamer.pipeline.runner import Runner
    from streamer.pipeline.topology import topology
    from streamer.running import one_line, run_to_the_end
    from streamer.session.session import resumed
    from streamer.target.adopted import AdoptedProcess

    console = logs.console()
    with one_line(), resumed(settings.runtime_dir, pid) as (directory, target):
        emulated = (directory / "pt" / "emulator.json").exists()
        plan = topology(settings, live=True, hardware=not emulated, resumed=True)
        runner = Runner(settings, plan, directory, target=AdoptedProcess(target), console=console,
                        live=console.is_terminal if live is None else live)  # fmt: skip
        outcome = run_to_the_end(runner, console, summary_file)
        if not outcome.books_balance:
            raise Failure("bytes written, decoded and in holes do not add up: see above")
