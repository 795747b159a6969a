from __future__ import annotations

from pathlib import Path

import click

from streamer.cli import Failure
from streamer.transport.security import TransportError, create_keys


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def command(directory: Path) -> None:
    """Create a key pair for traffic between machines.

    DIRECTORY (made 0700) gets own.key, own.key_secret and peers/, the public keys that may connect: copy other
    hosts' own.key there, under names of your choice. Where this host connects to another, put that one's own.key
    beside them as server.key. Then set transport.keys.

    \b
    Examples:
      streamer keys /etc/streamer/keys
    """
    try:
        public = create_keys(directory)
    except TransportError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or directory}: {error.strerror}") from error
    click.echo(public)
