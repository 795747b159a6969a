"""`streamer --help`: the list of commands is the one that click would make of the imported commands."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

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


def commands(group: click.Group, name: str = "streamer") -> Iterator[tuple[str, click.Command]]:
    yield name, group
    context = click.Context(group)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {each}")
        else:
            yield f"{name} {each}", command


def examples(command: click.Command) -> list[str]:
    """Lines of its help that are commands of ours; what stands behind two spaces, or in the shell's words, is not."""
    found = re.findall(r"^ +(streamer .*)$", command.help or "", re.MULTILINE)
    return [re.split(r"  | \| | && | > ", line)[0] for line in found]


def parse(line: str) -> None:
    """Raises click's UsageError."""
    words = shlex.split(line)[1:]
    command: click.Command = cli
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    command.make_context(line, words)


def test_each_command_teaches_with_examples_that_parse() -> None:
    assert isinstance(cli, click.Group)
    for name, command in commands(cli):
        found = examples(command)
        assert found, f"{name} has no example"
        for line in found:
            parse(line)
        assert name == "streamer" or any(line.startswith(name) for line in found)
