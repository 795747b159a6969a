"""Building C when it is asked for: cached by what it is made from, one line for what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from jvm import cbuild
from jvm.cbuild import BuildError


def test_a_compiler_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(BuildError, match="no C compiler"):
        cbuild.compiler()
    monkeypatch.setenv("CC", "mycc")
    with pytest.raises(BuildError, match="no C compiler mycc"):
        cbuild.compiler()


def test_what_is_built_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        cc = cbuild.compiler()
    except BuildError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    commands = [[cc, "-shared", "-fPIC", "-o", "{out}", str(source)]]
    first = cbuild.compiled("one.so", [source], commands)
    assert cbuild.compiled("one.so", [source], commands) == first
    source.write_text("int one(void) { return 2; }\n")
    assert cbuild.compiled("one.so", [source], commands) != first
    assert cbuild.compiled("one.so", [source], [[*commands[0], "-g"]]) not in (first, None)
    source.write_text("not C\n")
    with pytest.raises(BuildError, match=r"cannot compile one\.so: .*error"):
        cbuild.compiled("one.so", [source], commands)
    assert sorted(path.suffix for path in (tmp_path / "streamer").iterdir()) == [".so"] * 3
