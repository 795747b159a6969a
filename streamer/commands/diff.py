"""`streamer diff`: how two calling-context trees differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streamer.trees.options import LIVE, source_options, view_options, weight_options
from streamer.trees.weights import weighted

if TYPE_CHECKING:
    from stages.cct.views import View


@click.command()
@click.argument("first", metavar="RECORDING|FILE|live")
@click.argument("second", metavar="RECORDING|FILE|live")
@source_options
@view_options
@weight_options
@click.option("--top", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many methods.")
@click.option("--hot", type=click.FloatRange(0, 1),
              help="An edge is hot if it has this share of the hottest one's weight.  [default: 0.1]")  # fmt: skip
def command(
    first: str,
    second: str,
    url: str,
    window: str | None,
    pid: int | None,
    host: str | None,
    view: View,
    weight: str,
    observed: bool,
    top: int,
    hot: float | None,
) -> None:
    """How alike two trees are, and which methods' shares changed.

    \b
    overlap             sum over all contexts of the smaller of the two shares
    hot-edge coverage   share of the first tree's hot contexts that are hot in the second

    \b
    Examples:
      streamer cct dir/trace.json --save a.cct       a tree to compare with
      streamer diff yesterday.cct today.cct
      streamer diff a.cct live --weight time --include 'shop.*'
    """
    from stages.cct import measures  # with numba, as all that trees are made with
    from streamer.trees import text
    from streamer.trees.chosen import loaded, seen

    hot = measures.HOT if hot is None else hot
    live = LIVE in (first, second)
    a, b = (
        seen(loaded(name, url, *((window, pid, host) if name == LIVE or not live else (None,) * 3)), view, name)
        for name in (first, second)
    )
    pair = measures.paired(*(weighted(tree, weight, observed) for tree in (a, b)))
    click.echo(f"overlap by {weight}: {measures.overlap(pair):.2%}")
    click.echo(f"hot-edge coverage (T = {hot:g}): {measures.hot_edge_coverage(pair, hot):.2%}")
    for line in text.movers(pair, top):
        click.echo(line)
