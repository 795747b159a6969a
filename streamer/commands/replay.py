from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamer.cli import Failure
from streamer.options import pipeline_options, summary_option

if TYPE_CHECKING:
    from streamer.config import Settings


@click.command()
@click.argument("recording", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--pace", default="1", show_default=True, metavar="N|max",
              help="1: as it was recorded; 2: twice as fast; max: as fast as possible.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Stop after so long.")
@click.option("--live/--no-live", default=None, help="Show a live table.  [default: on a terminal]")
@summary_option
@pipeline_options
def command(
    settings: Settings,
    recording: Path,
    pace: str,
    seconds: float | None,
    live: bool | None,
    summary_file: Path | None,
) -> None:
    """Play a recording through the pipeline, as if the JVM ran now.

    RECORDING is NAME.json or NAME.perf.data (or either with .zst), as `streamer record` wrote it; a perf.data of
    `perf record` works as far as JIT code is known beside it.

    \b
    Examples:
      streamer replay traces/trace.json                       at its own pace, with page and /metrics
      streamer replay traces/trace.json --pace max --top 10   as fast as possible, for the summary
      streamer replay traces/trace.json --seconds 30 --no-live
    """
    from capture.recording.replay import Replay
    from streamer import logs
    from streamer.pipeline.runner import Runner
    from streamer.pipeline.topology import topology
    from streamer.running import one_line, run_to_the_end, tell_on
    from streamer.session.session import session

    console = logs.console()
    try:
        speed = None if pace == "max" else float(pace)
        if speed is not None and not 0 < speed < 1e6:
            raise ValueError
    except ValueError:
        raise click.BadParameter("a positive number, or max", param_hint="--pace") from None
    with one_line(), session(settings.runtime_dir) as directory:
        with Replay(recording) as found:  # its faults are told before anything starts
            if found.incomplete:
                tell_on(console)(f"{recording} is incomplete: {found.incomplete}")
        plan = topology(settings, source="replay", path=str(recording.absolute()), pace=speed, seconds=seconds)
        runner = Runner(settings, plan, directory, console=console,
                        live=console.is_terminal if live is None else live)  # fmt: skip
        outcome = run_to_the_end(runner, console, summary_file)
    written, decoded = (sum(getattr(b, name) for b in outcome.balances) for name in ("aux_head", "decoded"))
    if written and not decoded:
        raise Failure(f"nothing of {recording} could be decoded: no Intel PT trace, or only pieces of one")
