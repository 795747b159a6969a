"""`streamer flow`: control flow in bytecodes, statement coverage, path frequencies of a recording."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

import click

from jvm.private import output_file
from stages.messages import Bytecodes, Paths, StreamOpen
from stages.statements.statements import Executed
from streamer.cli import Failure
from streamer.statements import coverage, paths
from streamer.statements.listing import Line, Listing
from streamer.statements.source import Recording

_RECORDING = click.argument("path", metavar="RECORDING", type=click.Path(path_type=Path))
_INCLUDE = click.option("--include", multiple=True, metavar="PATTERN", help="Only these methods; repeatable.")
_OUT = click.option(
    "-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write to FILE instead."
)


@click.group()
def command() -> None:
    """Bytecodes that a recording executed: in their order, as coverage, as paths.

    The interpreter's are known one by one. Of compiled code the compiler's debug info tells some positions. Only what
    was observed is told: where trace was lost nothing is.

    \b
    Examples:
      streamer flow trace dir/trace.json --thread 4711 | less     what a thread did, step by step
      streamer flow coverage dir/trace.json --include 'shop.*'    what of these methods has run
      streamer flow coverage dir/trace.json --lcov -o shop.info   for genhtml and editors
      streamer flow paths dir/trace.json --top 50                 the ways that are taken most often
    """


@command.command()
@_RECORDING
@click.option("--thread", "tids", type=int, multiple=True, metavar="TID", help="Only these threads; repeatable.")
@click.option("--limit", type=click.IntRange(1), default=100_000, show_default=True, help="Lines at most.")
@_OUT
def trace(path: Path, tids: tuple[int, ...], limit: int, file: Path | None) -> None:
    """Each thread's bytecodes in the order in which they ran: a line a stretch of one method.

    \b
    12.345678  29318  I   Shop.page 0 3 6 9             interpreted, each bytecode
    12.345680  29318  C2  Shop.escape 4 19 < Shop.page 9  compiled, as debug info tells; < inlined in
    12.345691  29318  --  aux_full                      lost from here on

    \b
    Examples:
      streamer flow trace dir/trace.json | less
      streamer flow trace dir/trace.json --thread 29318 --limit 1000000 -o 29318.txt
    """
    lines = _lines(Recording(path, _say), frozenset(tids))
    _write((str(line) for line in islice(lines, limit)), file)
    if next(lines, None) is not None:
        _say(f"stopped at {limit:,} lines: --limit shows more")


@command.command("coverage")
@_RECORDING
@_INCLUDE
@click.option("--lcov", is_flag=True, help="A trace file of lcov, with source lines.")
@click.option("--below", type=click.FloatRange(0, 1), default=1.0, show_default=True,
              help="Only methods of which at most this share ran.")  # fmt: skip
@_OUT
def coverage_(path: Path, include: tuple[str, ...], lcov: bool, below: float, file: Path | None) -> None:
    """Which bytecodes of the methods that ran did run: those seen, and those that must have run for these to be seen.

    A method that never ran is not listed. Counts of lines are lower bounds where code is compiled.

    \b
    Examples:
      streamer flow coverage dir/trace.json --include 'shop.*' --below 0.9
      streamer flow coverage dir/trace.json --lcov -o shop.info && genhtml shop.info
    """
    covered = [coverage.Covered.of(e) for e in _executed(path, include)]
    _write(coverage.lcov(covered) if lcov else coverage.text(covered, below), file)


@command.command("paths")
@_RECORDING
@_INCLUDE
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Paths listed.")
@_OUT
def paths_(path: Path, include: tuple[str, ...], top: int, file: Path | None) -> None:
    """How often the interpreter took each acyclic path through each method (Ball and Larus).

    A path ends at a return, and at a loop's end, where the next one begins. Listed are the bytecode indices at which it
    could have gone elsewhere, and those where it went.

    \b
    Examples:
      streamer flow paths dir/trace.json --top 50
      streamer flow paths dir/trace.json --include '*.Parser.*'
    """
    _write(paths.text(_executed(path, include), top), file)


def _executed(path: Path, include: tuple[str, ...]) -> list[Executed]:
    """Raises Failure if there is none."""
    every = Recording(path, _say).statements().executed()
    found = [e for e in every if not include or any(fnmatchcase(e.method.name, pattern) for pattern in include)]
    if not found:
        patterns = " or ".join(include)
        raise Failure(f"{path}: no method like {patterns} ran" if every else f"{path}: no bytecode is known of it")
    return found


def _lines(recording: Recording, tids: frozenset[int]) -> Iterator[Line]:
    hz, listings = 1e9, dict[tuple[str, int], Listing]()
    for message in recording.messages():
        if isinstance(message, StreamOpen):
            hz = message.clock.hz
        elif isinstance(message, Bytecodes | Paths):
            key = message.host, message.pid
            if key not in listings:
                listings[key] = Listing(hz, tids)
            yield from listings[key].take(message)


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
