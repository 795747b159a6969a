"""`streamer cct`: the calling-context tree of a recording, of a running streamer, or of a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jvm.private import output_file
from streamer.cli import Failure
from streamer.crossprofile.table import CostTableError, load, shipped
from streamer.hub.text import plain
from streamer.trees.options import LIVE, source_options, view_options, weight_options

if TYPE_CHECKING:
    from stages.cct.views import View
    from streamer.trees.text import Cut


@click.command()
@click.argument("source", metavar="RECORDING|FILE|live")
@source_options
@view_options
@weight_options
@click.option("--share", type=click.FloatRange(0, 1), default=0.005, show_default=True,
              help="Nodes with less than this share of all are left out of the text.")  # fmt: skip
@click.option("--depth", type=click.IntRange(0, 1_000_000), default=1000, show_default=True, help="Levels shown.")
@click.option("--collapsed", is_flag=True, help="A line a stack, as flame-graph tools read it; of all nodes.")
@click.option("--matrix", is_flag=True, help="Calls between application and JDK instead of the tree.")
@click.option(
    "--cost",
    metavar="TABLE",
    help="Of a recording: estimated cycles of another platform; a file, or "
    f"{', '.join(shipped())} (docs/cost-tables.md).",
)
@click.option("--save", "file", type=click.Path(path_type=Path, dir_okay=False), help="Keep the whole tree in FILE.")
def command(
    source: str,
    url: str,
    window: str | None,
    pid: int | None,
    host: str | None,
    view: View,
    weight: str,
    observed: bool,
    share: float,
    depth: int,
    collapsed: bool,
    matrix: bool,
    cost: str | None,
    file: Path | None,
) -> None:
    """Show the calling-context tree: calls between methods, how often, and at what cost.

    Each node is a method in the context of all its callers. Of compiled code all calls are nodes, inlined ones too, and
    native methods. Decoding a recording takes a while: keep the tree with --save.

    \b
    [interpreter]      what the interpreter runs from there on, where it is not known which methods these are
    [unknown caller]   where tracing began, and after each loss: callers are known when they are returned to
    threads pool-#     of --thread-names: all threads pool-1, pool-2 …
    @12                bytecode index of the call

    \b
    Examples:
      streamer cct dir/trace.json                        the tree of a recording
      streamer cct dir/trace.json --save a.cct           keep it
      streamer cct a.cct --include 'shop.Cart.*'         only what these methods do
      streamer cct a.cct --thread-names --depth 2        what each pool of threads does
      streamer cct a.cct --thread-name 'http-*'          of these threads alone
      streamer cct a.cct --collapsed | flamegraph.pl     as a flame graph
      streamer cct dir/trace.json --cost jop             estimated cycles of a Java processor
      streamer cct live                                  of the streamer on this machine
    """
    from streamer.trees import text  # with numba, as all that trees are made with
    from streamer.trees.chosen import loaded, seen
    from streamer.trees.file import packed

    if cost is not None:
        if matrix or file is not None:
            raise click.UsageError("--cost is of the tree alone: without --matrix and --save")
        _estimated(source, cost, view, observed, text.Cut(share, depth), collapsed)
        return
    saved = loaded(source, url, window, pid, host, kept=file is not None)
    if file is not None:
        try:
            with os.fdopen(output_file(file), "wb") as out:
                out.write(packed(saved))
        except OSError as error:
            raise Failure(f"cannot write {file}: {error.strerror or error}") from None
    tree = seen(saved, view, source)
    if matrix:
        shown = text.matrix(tree)
    elif collapsed:
        shown = text.collapsed(tree, weight, observed)
    else:
        shown = text.lines(tree, weight, observed, text.Cut(share, depth), saved.hz)
    for line in shown:
        click.echo(line)


def _estimated(source: str, cost: str, view: View, observed: bool, cut: Cut, collapsed: bool) -> None:
    """Raises Failure."""
    from streamer.crossprofile.estimate import COLUMN
    from streamer.crossprofile.recording import of
    from streamer.trees import source as sources
    from streamer.trees import text
    from streamer.trees.chosen import seen
    from streamer.trees.file import Saved

    if source == LIVE:
        raise Failure("--cost needs a recording: a running streamer does not tell which bytecodes were executed")
    try:
        table = load(cost)
    except CostTableError as error:
        raise Failure(f"{cost}: {error}") from None
    except OSError as error:
        there = f"shipped: {', '.join(shipped())}"
        raise Failure(f"cannot read the cost table {cost}: {error.strerror or error}; {there}") from None
    found = sources.read(source, lambda path: of(path, table, lambda line: click.echo(f"streamer: {line}", err=True)))
    tree = seen(Saved(found.tree, 1e9), view, source)
    if collapsed:
        for line in text.collapsed(tree, COLUMN, observed):
            click.echo(line)
        return
    whole = max(1, found.counted + found.invoked + found.loaded)
    lines = text.lines(tree, COLUMN, observed, cut, 1e9)
    click.echo(next(lines).replace(COLUMN, f"estimated cycles on {plain(table.name)}", 1))
    for line in lines:
        click.echo(line)
    click.echo(
        f"of the whole recording {found.counted / whole:.1%} counted by bytecode, {found.invoked / whole:.1%} by "
        f"invocation of compiled code, {found.loaded / whole:.1%} to load code; {found.unknown:,} invocations have no "
        "estimate (native, or never interpreted)"
    )
