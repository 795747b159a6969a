"""The command line: a group whose subcommands are the modules of `streamer.commands`, loaded when asked for."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import click
from pydantic import ValidationError

from streamer import commands
from streamer.config import ConfigError


class Failure(click.ClickException):
    """What a user can act on: one clear line and exit status 1, never a traceback."""

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
      streamer record / streamer replay       keep a trace, play it again
      streamer top                            live table of hot methods
      streamer report                         where the trace contradicted the code
    """


def main() -> None:
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.ClickException as failure:
        failure.show()
        sys.exit(failure.exit_code)
    except ValidationError as invalid:  # a setting, from whichever source
        for error in invalid.errors():
            name = ".".join(str(part) for part in error["loc"])
            click.echo(f"streamer: setting {name}: {error['msg']}", err=True)
        sys.exit(2)
    except ConfigError as error:
        click.echo(f"streamer: {error}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # `streamer pt dump … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
