"""Options of the commands that run a pipeline. Without the pipeline: --help need not load it (`streamer.running`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
    click.option("--workers", "transport__workers", type=click.IntRange(1, 256),
                 help="Decode processes. They share the threads of a JVM that writes a stream a thread (a processor's "
                      "default; --per-thread), else all of a JVM is one worker's.  [default: 1]"),
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
    click.option("--agent-ring", "agent__ring_mib", type=int, metavar="MIB",
                 help="Size of the ring through which the JVM tells of its code; a power of two.  [default: 64]"),
    click.option("--agent-classes/--no-agent-classes", "agent__classes", default=None,
                 help="Export class files too: flow then knows what each call calls.  [default: export them]"),
    click.option("--agent-stacks", "agent__stacks_ms", type=int, metavar="MS",
                 help="Between two stacks told of a thread that runs; 0: none.  [default: 100]"),
    click.option("--agent-mounts", "agent__mounts_per_second", type=int, metavar="N",
                 help="Mounts of virtual threads told at most a second; 0: none.  [default: 10000]"),
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
budget_option = click.option(
    "--cpu-budget", "capture__cpu_budget", metavar="SHARE",
    help="What the whole pipeline may spend: '25%' of one CPU, or 'machine:5%'. It then traces a random part of the "
         "time, says which, and how sure each share is.  [default: trace always]",
)  # fmt: skip
summary_option = click.option(
    "--summary", "summary_file", type=click.Path(path_type=Path, dir_okay=False),
    help="Write the summary to this file too, as JSON with every method and exact counts.",
)  # fmt: skip


def pipeline_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds the options; the command gets `settings` in their place (names with `__` are nested settings)."""

    @functools.wraps(command)
    def wrapped(config_file: Path | None, **given: Any) -> R:
        from streamer import config, logs

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
