"""`streamer --help`: the list of commands is the one that click would make of the imported commands."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from streamer.cli import cli


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_list_is_that_of_the_commands(width: int) -> None:
    assert isinstance(cli, click.Group)
    context = click.Context(cli)
    ours, clicks = click.HelpFormatter(width=width), click.HelpFormatter(width=width)
    cli.format_commands(context, ours)
    click.Group.format_commands(cli, context, clicks)
    assert ours.getvalue() == clicks.getvalue()
    assert "  run " in ours.getvalue()


def test_it_imports_no_command() -> None:
    program = (
        "import sys\n"
        "from streamer.cli import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "print('loaded:', *sorted(m for m in sys.modules if m.startswith(('streamer.', 'stages', 'numba', 'numpy'))))"
    )
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "streamer run --emulate" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "loaded: streamer.cli streamer.commands streamer.lossy"
