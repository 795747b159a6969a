"""One kill of each process, by `benchmarks.kills`, in `make nightly`, which then kills each a hundred times. In each
run of the tests: `test_signals`, `test_resume`."""

from __future__ import annotations

import shutil

import pytest

from benchmarks.kills import MEMBERS, run


@pytest.mark.jvm
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_of_each_process(kernels: None) -> None:
    for program in ("javac", "java", "qemu-x86_64"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    figures = run(1, seed=7)
    assert figures.violations == []
    assert [figures.killed(member) for member in MEMBERS] == [1] * len(MEMBERS)
