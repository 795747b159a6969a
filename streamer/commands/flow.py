"""`streamer flow`: control flow in bytecodes, statement coverage, path frequencies; of a recording or a running
streamer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import click

from jvm.private import output_file
from streamer.cli import Failure
from streamer.statements import live, text
from streamer.trees.options import LIVE, source_options

_SOURCE = click.argument("source", metavar="RECORDING|live")
_RECORDING = click.argument("path", metavar="RECORDING", type=click.Path(path_type=Path))
_INCLUDE = click.option("--include", multiple=True, metavar="PATTERN", help="Only these methods; repeatable.")
_OUT = click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write to FILE instead."
)


@click.group()
def command() -> None:
    """Bytecodes that were executed: in their order, as coverage, as paths.

    The interpreter's are known one by one. Of compiled code the compiler's debug info tells some positions. Only what
    was observed is told: where trace was lost nothing is. Of a running streamer coverage and paths are told of a
    window, if it was started with --statements.

    \b
    Examples:
      streamer flow trace dir/trace.json --thread 4711 | less     what a thread did, step by step
      streamer flow coverage dir/trace.json --include 'shop.*'    what of these methods has run
      streamer flow coverage dir/trace.json --lcov -o shop.info   for genhtml and editors
      streamer flow paths dir/trace.json --top 50                 the ways that are taken most often
      streamer run --statements -- java -jar app.jar              tell it live
      streamer flow coverage live --window 5m                     of the streamer on this machine
    """


@command.command()
@_RECORDING
@click.option("--thread", "tids", type=int, multiple=True, metavar="TID", help="Only these threads; repeatable.")
@click.option("--limit", type=click.IntRange(1), default=100_000, show_default=True, help="Lines at most.")
@_OUT
def trace(path: Path, tids: tuple[int, ...], limit: int, file: Path | None) -> None:
    """Each thread's bytecodes in the order in which they ran: a line a stretch of one method.

    Of a recording alone: a running streamer keeps which bytecodes ran, not in which order. `streamer run --record DIR`
    records beside it, and `streamer flow coverage live` and `paths live` tell the rest of its windows.

    \b
    12.345678  29318  I   Shop.page 0 3 6 9             interpreted, each bytecode
    12.345680  29318  C2  Shop.escape 4 19 < Shop.page 9  compiled, as debug info tells; < inlined in
    12.345691  29318  --  aux_full                      lost from here on

    \b
    Examples:
      streamer flow trace dir/trace.json | less
      streamer flow trace dir/trace.json --thread 29318 --limit 1000000 -o 29318.txt
    """
    if str(path) == LIVE:
        raise Failure("each bytecode in its order is told of a recording alone: streamer run --record DIR makes one")
    from streamer.statements.recorded import lines_of  # with numba, as all that reads recordings

    lines = lines_of(path, frozenset(tids), _say)
    _write((str(line) for line in islice(lines, limit)), file)
    if next(lines, None) is not None:
        _say(f"stopped at {limit:,} lines: --limit shows more")


@command.command("coverage")
@_SOURCE
@source_options
@_INCLUDE
@click.option(
    "--lcov",
    is_flag=True,
    help="A trace file of lcov, with source lines; without --below. Live, 1 says that a line ran.",
)
@click.option("--below", type=click.FloatRange(0, 1), default=1.0, show_default=True,
              help="Only methods of which at most this share ran.")  # fmt: skip
@_OUT
def coverage_(
    source: str, url: str, window: str | None, pid: int | None, host: str | None, include: tuple[str, ...],
    lcov: bool, below: float, file: Path | None,
) -> None:  # fmt: skip
    """Which bytecodes of the methods that ran did run: those seen, and those that must have run for these to be seen.

    A method that never ran is not listed. Counts of lines are lower bounds where code is compiled. live: of a window of
    a streamer that runs with --statements.

    \b
    Examples:
      streamer flow coverage dir/trace.json --include 'shop.*' --below 0.9
      streamer flow coverage dir/trace.json --lcov -o shop.info && genhtml shop.info
      streamer flow coverage live --window 1m --include 'shop.*'
      streamer flow coverage live --window 5m --lcov -o shop.info
    """
    if (which := _live(source, url, window, pid, host)) is not None:
        _write(live.lcov(which, include) if lcov else text.coverage(*live.coverage(which, include, below)), file)
        return
    from streamer.statements.coverage import Covered
    from streamer.statements.lcov import lcov as as_lcov
    from streamer.statements.recorded import executed

    covered = [Covered.of(e) for e in executed(Path(source), include, _say)]
    sums = [c.sums() for c in covered]
    told = text.coverage(text.rest_first(sums, below), text.whole(sums))
    _write(as_lcov(m for c in covered if (m := c.lined()) is not None) if lcov else told, file)


@command.command("paths")
@_SOURCE
@source_options
@_INCLUDE
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Paths listed.")
@_OUT
def paths_(
    source: str, url: str, window: str | None, pid: int | None, host: str | None, include: tuple[str, ...], top: int,
    file: Path | None,
) -> None:  # fmt: skip
    """How often the interpreter took each acyclic path through each method (Ball and Larus).

    A path ends at a return, and at a loop's end, where the next one begins. Listed are the bytecode indices at which it
    could have gone elsewhere, and those where it went.

    \b
    Examples:
      streamer flow paths dir/trace.json --top 50
      streamer flow paths dir/trace.json --include '*.Parser.*'
      streamer flow paths live --window 1m
    """
    if (which := _live(source, url, window, pid, host)) is not None:
        _write(text.paths(live.paths(which, include, top)), file)
        return
    from streamer.statements.paths import most
    from streamer.statements.recorded import executed

    _write(text.paths(most(executed(Path(source), include, _say), top)), file)


def _live(source: str, url: str, window: str | None, pid: int | None, host: str | None) -> live.Which | None:
    """None: a recording. Raises Failure."""
    if source == LIVE:
        return live.Which(url, window, pid, host)
    if (window, pid, host) != (None, None, None):
        raise Failure(f"--window, --pid and --host choose from a running streamer (live): {source} is taken whole")
    return None


def _write(lines: Iterable[str], file: Path | None) -> None:
    if file is None:
        for line in lines:
            click.echo(line)
        return
    try:
        with os.fdopen(output_file(file), "w", encoding="utf-8", errors="replace") as out:
            out.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror or error}") from None


def _say(text: str) -> None:
    click.echo(f"streamer: {text}", err=True)
