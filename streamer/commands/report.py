"""`streamer report`: where the trace contradicted the code, of a running streamer or from a summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from jvm.inputfile import read_input
from streamer.cli import Failure
from streamer.client import fetch
from streamer.commands.top import render
from streamer.hub.text import contradictions_screen

MAX_SUMMARY = 1 << 28
WIDTH = 160  # where there is no terminal that has one


def _from_summary(path: Path, top: int) -> dict[str, Any]:
    try:
        view = json.loads(read_input(path, MAX_SUMMARY))["contradictions"]
        view["places"] = view["places"][:top]
        view["other"] = view["total"] - sum(place["times"] for place in view["places"])
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Failure(f"{path} is no summary of this version (streamer run --summary FILE)") from None
    assert isinstance(view, dict)
    return view


@click.command()
@click.option("--url", default="http://127.0.0.1:9464", show_default=True, help="Where the streamer serves.")
@click.option("--summary", type=click.Path(path_type=Path, dir_okay=False), help="Read FILE of run --summary instead.")
@click.option("--top", type=click.IntRange(1, 500), default=20, show_default=True, help="How many places.")
@click.option("--pid", type=click.IntRange(0, 999_999_999), help="One process only; default: all together.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with exact counts.")
def command(url: str, summary: Path | None, top: int, pid: int | None, as_json: bool) -> None:
    """Where the trace contradicted the code, most frequent places first.

    The trace says which way each branch went, not which branch it was: to follow it, the code must be known exactly
    as it was. Where it was not (patched, replaced, never told of), sooner or later the trace says something that the
    code cannot do. Then the walk is broken off, counted here, and goes on at the next address in the trace. The places
    here are those where that showed: the fault may lie some instructions before. Code passed since the trace last had
    an address is in doubt, and not counted as observed.

    \b
    code      the blob: compiled method (compiler, compilation number), stub, interpreter
    offset    of the last instruction that was reached, from the blob's start
    bytecode  method and bytecode index of that instruction, inlined ones too, as far as known

    An address without code is a place where nothing was known. Counts are since the start.

    \b
    Examples:
      streamer report                              of the streamer on this machine
      streamer replay --summary s.json dir/trace.json && streamer report --summary s.json --top 50
    """
    if summary is not None:
        if pid is not None:
            raise Failure("--pid is for a running streamer: a summary has all processes together")
        view, source = _from_summary(summary, top), str(summary)
    else:
        view, source = fetch(url, {"top": top, "pid": pid}, "report"), url
    if view.get("fidelity") == "ip":
        raise Failure("nothing to report: at fidelity ip no code is followed; trace with --fidelity flow")
    if as_json:
        click.echo(json.dumps(view, indent=1))
        return
    screen = render(view, source, contradictions_screen)
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH)).print(screen)
