from __future__ import annotations

import dataclasses
import json
import sys

import click

_STYLE = {"ok": "green", "limited": "yellow", "missing": "red"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable findings.")
def command(as_json: bool) -> None:
    """Check the means of tracing on this machine, and name the remedy for each one missing.

    Exit status 0 when a live JVM can be traced here (on hardware or emulated), 1 when not.

    \b
    Examples:
      streamer doctor
      streamer doctor --json     for a program
    """
    from rich.console import Console
    from rich.table import Table

    from streamer import config, doctor

    findings = doctor.examine(config.load())
    able, sentence = doctor.verdict(findings)
    if as_json:
        report = {"able": able, "verdict": sentence, "findings": [dataclasses.asdict(f) for f in findings]}
        click.echo(json.dumps(report, indent=2))
    else:
        table = Table("what", "state", "found", "what to do", box=None, pad_edge=False)
        for finding in findings:
            state = f"[{_STYLE[finding.state]}]{finding.state}[/]"
            remedy = f"{finding.remedy} [dim]({finding.needed_for})[/]" if finding.remedy else ""
            table.add_row(finding.name, state, finding.found, remedy)
        console = Console()
        console.print(table)
        console.print(f"\n{sentence}")
    sys.exit(0 if able else 1)
