"""`streamer export`: a calling-context tree in the formats of other tools."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jvm.private import output_file
from streamer.cli import Failure
from streamer.exports.formats import FORMATS, Export, TooLargeError
from streamer.trees.options import source_options, view_options, weight_options

if TYPE_CHECKING:
    from stages.cct.views import View


@click.command()
@click.argument("source", metavar="RECORDING|FILE|live")
@click.option("--format", "kind", type=click.Choice(list(FORMATS)), default="pprof", show_default=True)
@click.option("-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False),
              help="Where to; default: standard output.")  # fmt: skip
@source_options
@view_options
@weight_options
@click.option("--experimental", is_flag=True, help="Formats that may change: otlp.")
@click.option("--share", type=click.FloatRange(0, 1), default=0.0, help="Contexts with less of all are put together.")
def command(
    source: str,
    kind: str,
    file: Path | None,
    url: str,
    window: str | None,
    pid: int | None,
    host: str | None,
    view: View,
    weight: str,
    observed: bool,
    share: float,
    experimental: bool,
) -> None:
    """Write the calling-context tree of a recording, a running streamer or a file for another tool.

    \b
    pprof        go tool pprof, Grafana, many others; all weights, threads as labels (with --threads)
    collapsed    stacks by line, as flamegraph.pl reads them; the weight of --weight
    speedscope   www.speedscope.app; all weights
    cct          the streamer's own file, whole: streamer cct, streamer diff, the page
    otlp         OpenTelemetry's ProfilesData, a protocol in development; with --experimental

    \b
    Examples:
      streamer export live --window 1m -o now.pb.gz && go tool pprof -http : now.pb.gz
      streamer export dir/trace.json --format collapsed | flamegraph.pl > flame.svg
    """
    if FORMATS[kind].experimental and not experimental:
        raise click.UsageError(f"{kind} is experimental and may change: ask for it with --experimental too")
    from streamer.trees.chosen import loaded, seen  # with numba, as all that trees are made with

    saved = loaded(source, url, window, pid, host)
    if kind != "cct":  # which is whole, whatever the view
        seen(saved, view, source)
    try:
        body = FORMATS[kind].write(Export(saved, view, weight, observed, share))
    except TooLargeError as error:
        raise Failure(str(error)) from None
    if file is None:
        if sys.stdout.isatty() and not FORMATS[kind].media_type.startswith("text"):
            raise Failure(f"{kind} is not for a terminal: give a file with -o")
        sys.stdout.buffer.write(body)
        return
    try:
        with os.fdopen(output_file(file), "wb") as out:
            out.write(body)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror or error}") from None
