"""Options of the commands about trees: what leaves nothing of a tree is told, not shown as an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from stages.cct.tree import Tree
from streamer.cli import cli
from streamer.trees.file import Saved, packed
from tests.views.made import NOW, tree

CHOOSE = "--window, --pid and --host choose from a running streamer"


@pytest.fixture
def file(tmp_path: Path) -> str:
    report = tree(1, NOW)
    path = tmp_path / "a.cct"
    path.write_bytes(packed(Saved(Tree(report.nodes, report.names), 1e9)))
    return str(path)


@pytest.mark.parametrize("command", [["cct"], ["export", "--format", "collapsed"], ["diff", "{file}"]])
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--include", "no.such.*"], "nothing of {file} is left by --include"),
        (["--thread", "5"], "{file} has no such thread; it has 7"),
        (["--thread-name", "pool-*"], "{file} has no such thread; it has 7"),
        (["--window", "1m"], f"{CHOOSE} (live): {{file}} is taken whole"),
        (["--pid", "3"], f"{CHOOSE} (live): {{file}} is taken whole"),
        (["--host", "h"], f"{CHOOSE} (live): {{file}} is taken whole"),
    ],
)
def test_what_leaves_nothing_is_an_error(command: list[str], options: list[str], why: str, file: str) -> None:
    words = [word.format(file=file) for word in (*command, file, *options)]
    ended = CliRunner().invoke(cli, words)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("streamer: " + why.format(file=file))


def test_what_leaves_something_is_shown(file: str) -> None:
    ended = CliRunner().invoke(cli, ["cct", file, "--include", "*.deflate", "--thread", "7"])
    assert ended.exit_code == 0
    assert "org.apache.fop.pdf.PDFStream.deflate" in ended.stdout
