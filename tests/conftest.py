"""What all tests share.

With NUMBA_DISABLE_JIT=1 kernels run as plain Python, where coverage and a debugger can look into them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numba.core import config

if TYPE_CHECKING:
    from tests.flow_events.methods import Interpreted

if config.DISABLE_JIT:  # type: ignore[attr-defined]
    np.seterr(over="ignore")  # hashes wrap around, as in compiled code


@pytest.fixture(scope="session", autouse=True)
def own_sessions() -> Iterator[None]:
    """The program's sessions are in a directory of this process: those of a test that runs at once (`pytest -n`) may
    have left a JVM untraced, which the program says. Its path is short, for sockets are below it."""
    with tempfile.TemporaryDirectory(prefix="streamer-") as path, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", path)
        yield


@pytest.fixture(scope="session")
def interpreted_methods(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Interpreted]:
    """By version of the JDK, made when it is first asked for."""
    from tests.flow_events.methods import interpreted

    return cache(lambda version: interpreted(version, tmp_path_factory.mktemp("methods")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of one group run in one process, which has their fixtures once, if pytest-xdist can name the group."""
    if getattr(config.option, "loadgroup", False) and any(
        item.get_closest_marker("xdist_group") and "@" not in item.nodeid for item in items
    ):
        raise pytest.UsageError("pytest-xdist does not see groups of tests: another version of pytest is needed")
