from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from streamer.cli import cli
from streamer.transport.security import load_keys


def test_keys_are_made_once_and_shown_where(tmp_path: Path) -> None:
    run = CliRunner()
    made = run.invoke(cli, ["keys", str(tmp_path / "k")])
    assert made.exit_code == 0
    assert made.output.strip() == str(tmp_path / "k" / "own.key")
    assert load_keys(tmp_path / "k").peers == tmp_path / "k" / "peers"
    again = run.invoke(cli, ["keys", str(tmp_path / "k")])
    assert again.exit_code == 1
    assert again.output.count("\n") == 1
    (tmp_path / "file").write_text("")
    assert run.invoke(cli, ["keys", str(tmp_path / "file" / "k")]).exit_code == 1
