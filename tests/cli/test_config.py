from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from streamer import config


def test_flags_beat_environment_beats_file_beats_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "streamer.toml"
    file.write_text("[web]\nport = 1\nhost = '127.0.0.2'\n[window]\ntop = 5\n")
    monkeypatch.setenv("STREAMER_CONFIG", str(file))
    monkeypatch.setenv("STREAMER_WEB__PORT", "2")
    assert config.load().web.port == 2
    assert config.load(**{"web.port": 3}).web.port == 3
    settings = config.load(**{"web.port": None})
    assert (settings.web.port, settings.web.host, settings.window.top, settings.window.pane_seconds) == (
        2,
        "127.0.0.2",
        5,
        0.5,
    )


@pytest.mark.parametrize("text", ["[web]\nprot = 1\n", "[window]\npane_seconds = -1\n", "colour = 3\n"])
def test_a_mistake_in_the_file_is_an_error_that_names_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "streamer.toml"
    file.write_text(text)
    monkeypatch.setenv("STREAMER_CONFIG", str(file))
    with pytest.raises(ValidationError, match=r"prot|pane_seconds|colour"):
        config.load()
