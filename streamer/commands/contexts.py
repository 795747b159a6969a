"""`streamer contexts`: of which threads a running streamer keeps calling contexts."""

from __future__ import annotations

from pathlib import Path

import click

from stages.cct.selection import LONGEST, MOST, Selection
from streamer.cli import Failure
from streamer.hub.text import plain


@click.command()
@click.argument("what", metavar="[on|off]", type=click.Choice(["on", "off"]), required=False)
@click.option("--thread-name", "named", multiple=True, metavar="PATTERN", help="Threads with such a name; repeatable.")
@click.option("--thread", "tids", type=click.IntRange(0), multiple=True, metavar="TID", help="A thread; repeatable.")
@click.option("--pid", type=click.IntRange(1), help="Of this JVM, or of the streamer with this pid, where several run.")
def command(what: str | None, named: tuple[str, ...], tids: tuple[int, ...], pid: int | None) -> None:
    """Keep calling contexts of some threads only, of none, or of all again, while the streamer runs.

    A running streamer of this user on this machine takes it up within a second, from its next pane on. What a thread
    does while it is off stands in its tree as [not profiled], with its instructions and its time. It is followed all
    the same, so its stack is right when it is on again; hot methods (streamer top) are of all threads as before. Each
    call takes the place of the one before; without on or off it is shown what holds.

    \b
    Examples:
      streamer contexts off                            no contexts, of no thread
      streamer contexts on --thread-name 'http-*'      of these alone
      streamer contexts off --thread-name 'pool-9-*'   of all but these
      streamer contexts on                             of all threads, as at the start
      streamer contexts                                which hold now
    """
    from streamer import config
    from streamer.session import selected

    directory = _session(config.load().runtime_dir, pid)
    try:
        if what is None:
            if named or tids:
                raise click.UsageError("say whether these threads are on or off")
            click.echo(_told(Selection.of(selected.read(directory) or Selection().words())))
            return
        if len(named) + len(tids) > MOST or any(len(name) > LONGEST for name in named):
            raise Failure(f"at most {MOST} threads, each with a name of {LONGEST} characters")
        selection = Selection(what == "on", named, tids)
        selected.write(directory, selection.words())
        click.echo(_told(selection))
    except (OSError, ValueError) as error:
        raise Failure(f"{directory / selected.NAME}: {error}") from None


def _session(runtime_dir: Path, pid: int | None) -> Path:
    from streamer.session.session import running

    found = running(runtime_dir)
    chosen = [path for path, pids in found if pid in (None, *pids)]
    if not chosen:
        of = "" if pid is None else f" for process {pid}"
        raise Failure(f"no streamer runs here{of} (runtime_dir: {runtime_dir})")
    if len(chosen) > 1:
        raise Failure(f"several streamers run: name one of {', '.join(str(pids[-1]) for _, pids in found)} with --pid")
    return chosen[0]


def _told(selection: Selection) -> str:
    listed = ", ".join([*(plain(name) for name in selection.named), *map(str, selection.tids)])
    if not listed:
        return "contexts are kept of all threads" if selection.on else "contexts are kept of no thread"
    return f"contexts are kept of {'' if selection.on else 'all threads but '}{listed}"
