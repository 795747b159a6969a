"""Flight Recorder beside the accuracy program."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy.native import sampled
from benchmarks.accuracy.truth import TruthError

pytestmark = pytest.mark.jvm


def test_a_java_of_path_has_its_tools_beside_it(tmp_path: Path) -> None:
    assert all(name and count > 0 for name, count in sampled(["java", "-version"], tmp_path).items())
    assert (tmp_path / "native.jfr").stat().st_size > 0


def test_a_program_that_fails_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TruthError, match="Flight Recorder: "):
        sampled(["java", "NoSuchClass"], tmp_path)
