"""Common parts of the commands that run a pipeline: options, and errors as one line."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import trio
from rich.console import Console

from jvm.private import output_file
from streamer import config, errors, logs
from streamer.cli import Failure
from streamer.pipeline.runner import Outcome, Runner, figures, report
from streamer.session.session import NoRoomError, session
from streamer.target.process import TargetProcess

P = ParamSpec("P")
R = TypeVar("R")

_OPTIONS = [
    click.option("--config", "config_file", type=click.Path(path_type=Path, exists=True, dir_okay=False),
                 help="TOML file with settings (docs/configuration.md); flags and STREAMER_… variables are stronger."),
    click.option("--fidelity", type=click.Choice(["ip", "flow"]),
                 help="ip: only addresses that stand in packets; flow: every branch, live as far as time allows.  "
                      "[default: flow]"),
    click.option("--contexts/--no-contexts", "flow__contexts", default=None,
                 help="Keep calling-context trees too, at fidelity flow (streamer cct live).  [default: do]"),
    click.option("--statements/--no-statements", "flow__statements", default=None,
                 help="Tell which bytecodes ran, and on which paths (streamer flow coverage live).  [default: no]"),
    click.option("--workers", "transport__workers", type=click.IntRange(1, 256), help="Decode processes."),
    click.option("--transport", "transport__mode", type=click.Choice(["inproc", "ipc", "tcp"]),
                 help="What lies between the processes; inproc: all in one.  [default: ipc]"),
    click.option("--split", "transport__split", multiple=True, metavar="STAGE",
                 help="Begin a group of processes of its own at this stage (segment, ready, follow, cct, "
                      "attribute, profile; at fidelity ip without follow and cct); repeatable."),
    click.option("--host", "web__host", help="Address of the page and /metrics.  [default: 127.0.0.1]"),
    click.option("--port", "web__port", type=click.IntRange(0, 65535), help="Its port; 0: any.  [default: 9464]"),
    click.option("--allowed-host", "web__allowed_hosts", multiple=True, metavar="NAME",
                 help="A name of this host that requests may be for, besides localhost; repeatable."),
    click.option("--token-file", "web__token_file", type=click.Path(path_type=Path),
                 help="File with the token that is asked for, of 16 characters at least (docs/security.md)."),
    click.option("--anyone", "web__anyone", is_flag=True, default=None,
                 help="Serve beyond loopback without a token."),
    click.option("--tls-certificate", "web__tls_certificate", type=click.Path(path_type=Path),
                 help="Serve by TLS, with this certificate (PEM)."),
    click.option("--tls-key", "web__tls_key", type=click.Path(path_type=Path), help="Its key (PEM)."),
    click.option("--pane", "window__pane_seconds", type=float, help="Length of a pane in seconds.  [default: 0.5]"),
    click.option("--top", "window__top", type=click.IntRange(1, 500), help="Methods shown.  [default: 20]"),
    click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]),
                 help="How much is logged to stderr.  [default: info]"),
]  # fmt: skip
_TARGET_OPTIONS = [
    click.option("--emulate", is_flag=True, help="Run the JVM under QEMU, which writes the trace that Intel PT would."),
    click.option("--per-cpu", "hardware__per_cpu", is_flag=True, default=None,
                 help="Hardware: trace every CPU instead of each thread of the JVM; needs CAP_PERFMON."),
    click.option("--cpu-budget", "capture__cpu_budget", metavar="SHARE",
                 help="What the whole pipeline may spend: '25%' of one CPU, or 'machine:5%'. It then traces a random "
                      "part of the time, says which, and how sure each share is.  [default: trace always]"),
    click.option("--agent-ring", "agent__ring_mib", type=int, metavar="MIB",
                 help="Size of the ring through which the JVM tells of its code; a power of two.  [default: 64]"),
    click.option("--agent-classes/--no-agent-classes", "agent__classes", default=None,
                 help="Export class files too: flow then knows what each call calls.  [default: export them]"),
    click.option("--per-thread", "emulator__per_thread", is_flag=True, default=None,
                 help="Emulation: a ring a thread."),
    click.option("--aux-kib", "emulator__aux_kib", type=int,
                 help="Emulation: size of each AUX ring.  [default: 8192]"),
    click.option("--ovf-mb-s", "emulator__ovf_mb_s", type=float,
                 help="Emulation: what a CPU can write before it overflows."),
    click.option("--mtc", "emulator__mtc", type=int, help="Emulation: MTC packets, frequency 0–14."),
    click.option("--cyc", "emulator__cyc", type=int, help="Emulation: CYC packets, threshold 0–15."),
    click.option("--truth", "emulator__truth", type=click.Path(path_type=Path, file_okay=False),
                 help="Emulation: write what really ran to this directory."),
]  # fmt: skip
summary_option = click.option(
    "--summary", "summary_file", type=click.Path(path_type=Path, dir_okay=False),
    help="Write the summary to this file too, as JSON with every method and exact counts.",
)  # fmt: skip


def pipeline_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds the options; the command gets `settings` in their place (names with `__` are nested settings)."""

    @functools.wraps(command)
    def wrapped(config_file: Path | None, **given: Any) -> R:
        names = {o.name for o in click.get_current_context().command.params if o.name}
        flags = {}
        for name in list(given):
            if name in names and ("__" in name or name in ("fidelity", "log_level")):
                value = given.pop(name)
                flags[name.replace("__", ".")] = value if value != () else None
        settings = config.load(config_file, **flags)
        logs.configure(settings, process="streamer")
        return command(settings=settings, **given)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def target_options(command: Callable[..., R]) -> Callable[..., R]:
    """Options of the commands that start a JVM; all but `emulate` are settings, so `pipeline_options` stands below."""
    for option in reversed(_TARGET_OPTIONS):
        command = option(command)
    return command


@contextmanager
def one_line() -> Iterator[None]:
    """An error that the user can act on becomes a `Failure`: one line and exit status 1."""
    try:
        yield
    except Exception as error:
        if (line := errors.one_line(error)) is None:
            raise
        raise Failure(line) from error


def tell_on(console: Console) -> Callable[[str], None]:
    """Shows a line, as it is."""
    return functools.partial(console.print, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def session_for(java_argv: Sequence[str], settings: config.Settings, tell: Callable[[str], None]) -> Iterator[Path]:
    """`streamer.session.session`; but a full disk is no reason not to start a JVM: then the command runs as it is, and
    its exit status is ours. Raises SessionError, SystemExit."""
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(session(settings.runtime_dir))
        except NoRoomError as error:
            tell(f"streamer: {error}; the program runs without tracing")
            with TargetProcess(java_argv, tell, settings.target.stop_seconds) as process:
                process.start()
            sys.exit(process.status)
        yield directory


def run_to_the_end(runner: Runner, console: Console, summary_file: Path | None = None) -> Outcome:
    """Runs it; the first SIGINT, SIGTERM or SIGHUP begins the orderly end, a second one the abrupt one, unless they are
    for the target (`streamer.target.process`) or were ignored when we began (nohup). Prints the summary, and writes it
    to `summary_file` as JSON. Raises Failure for the faults that are known to be possible."""

    async def main() -> Outcome:
        async with trio.open_nursery() as nursery:
            if not isinstance(runner.target, TargetProcess):
                nursery.start_soon(_stop_on_signals, runner, console)
            outcome = await runner.run()
            nursery.cancel_scope.cancel()
        return outcome

    with one_line():
        try:
            outcome = trio.run(main)
        except BaseExceptionGroup as group:
            raise _only(group) from None
        click.echo(report(outcome, color=console.is_terminal))
        if summary_file is not None:
            with os.fdopen(output_file(summary_file), "w") as text:
                text.write(json.dumps(figures(outcome), indent=1) + "\n")
    if outcome.failed:
        raise Failure(f"did not work to the end: {', '.join(outcome.failed)}")
    return outcome


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that ended everything; nurseries wrap it."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        real = [e for e in error.exceptions if not isinstance(e, trio.Cancelled)]
        error = real[0]
    return error


async def _stop_on_signals(runner: Runner, console: Console) -> None:
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in ending if signal.getsignal(number) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*heard) as signals:
        first = True
        async for _ in signals:
            if not first:
                raise KeyboardInterrupt
            first = False
            console.print("stopping: counting what was drained (again: at once)", style="dim")
            runner.stop()
