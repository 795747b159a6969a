"""The list of settings is that of the model, and says of each what it is."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from streamer.cli import cli
from streamer.config import Settings, load
from streamer.reference import FILE, fields, text


def test_the_committed_list_is_the_made_one() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "make docs"


def test_each_setting_has_its_row_with_a_meaning() -> None:
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| `[A-Z_]+` \| [^|]+ \| [^|]+ \| (.+) \|$", text(), re.MULTILINE))
    leaves = {
        f"{section}.{name}" for section, of in Settings().model_dump().items() if isinstance(of, dict) for name in of
    }
    leaves |= {name for name, value in Settings().model_dump().items() if not isinstance(value, dict)}
    assert set(rows) == leaves
    assert all(len(meaning) > 3 and meaning != "None" for meaning in rows.values())


def test_limits_and_choices_are_those_that_hold() -> None:
    assert "| `web.port` | `STREAMER_WEB__PORT` | integer, ≥ 0, ≤ 65535 | 9464 |" in text()
    assert "| `fidelity` | `STREAMER_FIDELITY` | `ip`, `flow` | `flow` |" in text()


def test_each_variable_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set to its default, each is taken; a name that is none of them would be too, and change nothing: so one of each
    kind is looked at."""
    known = {name: variable for name, variable, _ in fields(Settings)}
    monkeypatch.setenv(known["web.port"], "1234")
    monkeypatch.setenv(known["log_json"], "true")
    monkeypatch.setenv(known["web.allowed_hosts"], '["prod-7"]')
    settings = load()
    assert (settings.web.port, settings.log_json, settings.web.allowed_hosts) == (1234, True, ("prod-7",))


def test_help_leads_to_it() -> None:
    assert "docs/configuration.md" in CliRunner().invoke(cli, ["--help"]).output
    assert "docs/configuration.md" in CliRunner().invoke(cli, ["run", "--help"]).output
