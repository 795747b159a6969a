"""A real Prometheus and a real Alertmanager, each with a configuration of the test's, on a free port."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
import yaml

RULES = Path("dashboards/rules/streamer.rules.yml")


def hasty_rules(directory: Path) -> Path:
    """A copy of the rules in `directory`, whose shift alerts wait for seconds only."""
    text = RULES.read_text()
    for shipped, short in (("for: 10s", "for: 2s"), ("keep_firing_for: 5m", "keep_firing_for: 5s")):
        assert text.count(f"        {shipped}\n") == 2
        text = text.replace(f"        {shipped}\n", f"        {short}\n")
    file = directory / RULES.name
    file.write_text(text)
    return file


def program(name: str, package: str) -> str:
    """Its path; skips the test where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is missing (Debian package {package})")
    return found


@contextmanager
def _server(directory: Path, config: dict[str, Any], *arguments: str) -> Iterator[str]:
    directory.mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    file = directory / "config.yml"
    file.write_text(yaml.safe_dump(config))
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*arguments, f"--config.file={file}", f"--web.listen-address={address}"], stdout=log, stderr=log
        )
        try:
            yield f"http://{address}"
        finally:
            process.kill()
            process.wait()


@contextmanager
def prometheus(directory: Path, config: dict[str, Any]) -> Iterator[str]:
    """Storing below `directory`; gives its URL."""
    binary = program("prometheus", "prometheus")
    with _server(directory, config, binary, f"--storage.tsdb.path={directory / 'data'}") as url:
        yield url


@contextmanager
def alertmanager(directory: Path, config: dict[str, Any]) -> Iterator[str]:
    """The same; without peers."""
    binary = program("prometheus-alertmanager", "prometheus-alertmanager")
    arguments = (f"--storage.path={directory / 'data'}", "--cluster.listen-address=")
    with _server(directory, config, binary, *arguments) as url:
        yield url


async def answer(http: httpx.AsyncClient, query: str) -> list[dict[str, Any]]:
    response = await http.get("/api/v1/query", params={"query": query})
    if response.status_code == 503:  # still starting
        return []
    reply = response.json()
    assert reply["status"] == "success", reply
    return list(reply["data"]["result"])


async def until(http: httpx.AsyncClient, query: str) -> list[dict[str, Any]]:
    """Asks until there is an answer; the caller sets the deadline."""
    while True:
        try:
            found = await answer(http, query)
        except httpx.TransportError:
            found = []
        if found:
            return found
        await trio.sleep(0.2)
