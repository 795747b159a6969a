from __future__ import annotations

from contextlib import suppress

import click

from streamer.cli import Failure


@click.command()
@click.argument("pid", type=int)
@click.option("--classes/--no-classes", default=True, show_default=True, help="Export the bytes of loaded classes.")
@click.option("--size", default="64m", show_default=True, help="Size of the ring, a power of two.")
@click.option("--stacks", default=100, show_default=True, metavar="MS", help="Between stacks of a thread; 0: none.")
@click.option("--mounts", default=10000, show_default=True, metavar="N", help="Of virtual threads, a second; 0: none.")
@click.option("--timeout", default=10.0, show_default=True, metavar="S", help="Seconds to wait for the JVM.")
def command(pid: int, classes: bool, size: str, stacks: int, mounts: int, timeout: float) -> None:
    """Load the agent into the running JVM PID.

    The agent exports compiled code, stubs, classes and threads into a ring that capture reads. Prints the ring's
    path. Attached again, it tells everything anew. A JVM whose `streamer run` was killed has the agent and its trace:
    `streamer resume PID` traces it again.

    \b
    Examples:
      streamer attach 4711
      streamer attach 4711 --size 256m --no-classes    much code; its bytecode stays there
    """
    from jvm.attach import AttachError, attach, jcmd
    from jvm.cbuild import BuildError
    from jvm.private import PrivacyError, private_directory
    from streamer import config
    from streamer.session.session import untraced

    if timeout <= 0:
        raise Failure("--timeout must be more than 0 seconds")
    if stacks != 0 and not 10 <= stacks <= 60000:
        raise Failure("--stacks must be 0, or from 10 to 60000")
    if mounts != 0 and not 100 <= mounts <= 10_000_000:
        raise Failure("--mounts must be 0, or from 100 to 10000000")
    runtime_dir = config.load().runtime_dir
    if any(target.pid == pid for _, target in untraced(runtime_dir)):
        raise Failure(f"JVM {pid} was traced by a session that has ended: `streamer resume {pid}` takes it up")
    ring = runtime_dir / "default" / f"jit-{pid}.ring"
    try:
        private_directory(ring.parent)
        attached = attach(pid, ring, classes=classes, size=size, stacks_ms=stacks, mounts=mounts, timeout=timeout)
        version = jcmd(pid, "VM.version", timeout=timeout).strip().splitlines()
        with attached.open() as reader:
            agent_version = reader.header.agent_version
    except (AttachError, BuildError, PrivacyError, OSError, ValueError) as error:
        with suppress(OSError):  # nothing is there, so nothing need stay
            ring.parent.rmdir()
        raise Failure(str(error)) from None
    click.echo(f"agent {agent_version} is in JVM {pid} ({version[-1] if version else 'unknown version'})")
    click.echo(f"ring: {attached.ring}")
