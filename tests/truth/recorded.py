"""Runs of real JVMs with the emulator's truth beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.flow_truth import FlowTruthError
from benchmarks.flow_truth.record import record
from capture.emulator.options import EmulatorError


def recorded(command: Sequence[str], directory: Path) -> None:
    """Into `directory`, of a run that ends well. Skips where there is no emulator."""
    try:
        run = record(list(command), directory)
    except FlowTruthError as error:
        if isinstance(error.__cause__, EmulatorError):
            pytest.skip(str(error))
        raise
    assert run.status == 0
