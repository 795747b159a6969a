"""Options that the commands about trees have in common."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from streamer.trees.weights import WEIGHTS

LIVE = "live"
Command = Callable[..., Any]

_SOURCE = [
    click.option("--url", default="http://127.0.0.1:9464", show_default=True, help="live: where the streamer serves."),
    click.option("--window", help="live: 10s, 1m, … as configured; default: the shortest."),
    click.option("--pid", type=click.IntRange(0, 999_999_999), help="live: one process only; default: all together."),
    click.option("--host", metavar="NAME", help="live: the processes of one host together; with --pid: whose that is."),
]
_VIEW = [
    click.option("--include", multiple=True, metavar="PATTERN", help="Only within these methods; repeatable."),
    click.option("--exclude", multiple=True, metavar="PATTERN", help="Nothing within these methods; repeatable."),
    click.option("--thread", "tids", type=int, multiple=True, metavar="TID", help="Only these threads; repeatable."),
    click.option("--thread-name", "named", multiple=True, metavar="PATTERN",
                 help="Only threads with such a name ('pool-1-*'); repeatable."),
    click.option("--threads", is_flag=True, help="Threads apart."),
    click.option("--thread-names", "by_name", is_flag=True,
                 help="Threads apart whose names differ in more than numbers: pool-#-thread-#."),
    click.option("--merge-sites", is_flag=True, help="A caller's calls of one method as one node."),
    click.option("--fold-recursion", is_flag=True, help="A method that is called within itself as one node."),
    click.option("--stubs", is_flag=True, help="Stubs of the JVM as nodes, too."),
]  # fmt: skip
_WEIGHT = [
    click.option("--weight", type=click.Choice(list(WEIGHTS)), default="instructions", show_default=True,
                 help="bytecodes: those that the interpreter executed."),
    click.option("--observed", is_flag=True, help="Without suspect counts (of what the trace then contradicted)."),
]  # fmt: skip


def _with(options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


source_options = _with(_SOURCE)
weight_options = _with(_WEIGHT)


def view_options(command: Command) -> Command:
    """The command takes them as one `View`, `view`."""

    @functools.wraps(command)
    def made(
        include: tuple[str, ...], exclude: tuple[str, ...], tids: tuple[int, ...], named: tuple[str, ...],
        threads: bool, by_name: bool, merge_sites: bool, fold_recursion: bool, stubs: bool, **others: Any,
    ) -> Any:  # fmt: skip
        from stages.cct.views import View  # with numba, which --help does without

        if threads and by_name:
            raise click.UsageError("--threads has each thread apart, --thread-names each name: one of them")
        view = View(
            sites=not merge_sites, recursion=not fold_recursion, stubs=stubs, threads=threads, by_name=by_name,
            tids=tids, named=named, include=include, exclude=exclude,
        )  # fmt: skip
        return command(view=view, **others)

    return _with(_VIEW)(made)
