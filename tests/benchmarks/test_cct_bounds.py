"""What is measured of the bounds of trees, on few nodes: all are there, with their counts."""

from __future__ import annotations

import pytest

from benchmarks.cct_bounds import closed, filled, main, measured

NAMES = [f"m{k}" for k in range(5000)]


def test_a_pane_of_all_nodes_is_told_whole() -> None:
    tables = filled(1 << 12, 2000)
    tree, steps = closed(tables, NAMES)
    assert tree.total("observed_instructions") == int(tables.counts[:, 0, 1].sum()) > 0
    assert tree.total("suspect_bytecodes") == int(tables.counts[:, 1, 2].sum()) > 0
    assert len(steps) > 3


def test_it_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(4000, 1000)
    assert found["nodes"] > 3000
    assert found["pane_nodes"] > 800
    assert found["tables_bytes"] >= found["nodes_bytes"] >= 0  # few: they may lie in memory that is there already
    assert found["close_seconds"] >= found["longest_step_seconds"] > 0
    monkeypatch.setattr("sys.argv", ["cct_bounds", "--nodes", "4000", "--pane", "1000"])
    main()
    assert "nodes: closed in" in capsys.readouterr().out
