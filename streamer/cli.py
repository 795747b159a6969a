"""The command line: a group whose subcommands are the modules of `streamer.commands`, loaded when asked for."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import io
import os
import pkgutil
import sys
from pathlib import Path

import click

from streamer import commands
from streamer.lossy import never_fail


class Failure(click.ClickException):
    """A fault that the user can act on: one clear line and exit status 1, never a traceback."""

    exit_code = 1

    def show(self, file: object = None) -> None:
        click.echo(f"streamer: {self.format_message()}", err=True)


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(m.name.replace("_", "-") for m in pkgutil.iter_modules(commands.__path__) if m.name[0] != "_")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.replace("-", "_")
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"streamer.commands.{name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from their sources: to import them all takes two seconds."""
        names = self.list_commands(ctx)
        most = formatter.width - 6 - max(map(len, names))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, click.Command(name, help=_help(name)).get_short_help_str(most)) for name in names]
            )


def _help(name: str) -> str:
    """The docstring of a command's function."""
    spec = importlib.util.find_spec(f"{commands.__name__}.{name.replace('-', '_')}")
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_bytes()).body:
        if isinstance(node, ast.FunctionDef) and node.name == "command":
            return ast.get_docstring(node) or ""
    return ""


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="jvm-trace-streamer")
def cli() -> None:
    """An always-on profiler for JVMs that sees every branch.

    Intel PT (or an emulated PT) writes a branch trace of a running, stock HotSpot; streamer decodes it while
    it arrives and tells Prometheus which methods are hot and what shifted.

    \b
    First steps:
      streamer doctor                         what this machine has and lacks
      streamer run --emulate -- java -jar …   trace a JVM under the emulated PT
      streamer record --emulate -- java …     keep a trace
      streamer replay trace.json              play it again
      streamer top                            live table of hot methods
      streamer cct trace.json                 who called whom
      streamer flow coverage trace.json       which bytecodes ran; step by step; by path
      streamer diff a.cct b.cct               how two trees differ
      streamer export live -o now.pb.gz       a tree for pprof, speedscope or flamegraph.pl
      streamer report                         where the trace contradicted the code

    Each command has a --help with examples. Settings come from flags, STREAMER_… variables and a TOML file (--config):
    docs/configuration.md lists them.
    """


def main() -> None:
    _streams()
    try:
        status = _status()
        sys.stdout.flush()  # that the device has no room shows only now
    except (Exception, KeyboardInterrupt) as error:
        from streamer import errors  # knows all parts of the program, which --help need not load

        status = errors.end(error)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # not to be tried again, and told again, at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _streams() -> None:
    """Characters that a terminal cannot show become question marks; a reader that has closed our output does not want
    it."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 (to the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    never_fail("stderr")


def _status() -> int:
    try:
        cli.main(standalone_mode=False)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    return 0
