from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _members_find_the_stages_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members import nothing from their working directory, and the tests are not installed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
