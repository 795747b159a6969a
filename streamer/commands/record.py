from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamer.options import pipeline_options, target_options

if TYPE_CHECKING:
    from streamer.config import Settings


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", type=click.Path(path_type=Path, file_okay=False), default=Path(), show_default=".",
              help="Directory of the recording.")  # fmt: skip
@click.option("--name", default="trace", show_default=True, help="NAME.json, NAME.perf.data, NAME-<pid>.export.")
@target_options
@click.option("--cpu-budget", "capture__cpu_budget", hidden=True)  # refused, with a word on `streamer run`
@click.option("--pack", is_flag=True, help="Pack the files with zstd when the JVM has ended.")
@click.argument("java", nargs=-1, required=True, type=click.UNPROCESSED)
@pipeline_options
def command(settings: Settings, output: Path, name: str, emulate: bool, pack: bool, java: tuple[str, ...]) -> None:
    """Start a JVM and keep its trace, without looking at it.

    `perf script --itrace=i0ns -i traces/trace.perf.data` reads it too. The exit status is the JVM's.

    \b
    Examples:
      streamer record --emulate -o traces -- java -cp app.jar Main
      streamer record --emulate -o traces --name shop --pack -- java -jar shop.jar
      streamer replay traces/trace.json                                    play it
    """
    from streamer.recording import record

    sys.exit(record(settings, java, output, name, emulate, pack))
