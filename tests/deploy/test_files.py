"""The examples to run it by: each is taken by its tool, what they name exists, and they agree with each other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from compose_spec import PyCompose

from streamer.commands.run import command
from streamer.config import Settings, WebConfig, load
from tests.dashboards.servers import program

FOLDER = Path("docs/deploy")
PORTS = {"streamer": WebConfig().port, "prometheus": 9090, "alertmanager": 9093, "grafana": 3000}
PROMETHEUS: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus/prometheus.yml").read_text())
ALERTMANAGER: dict[str, Any] = yaml.safe_load((FOLDER / "alertmanager/alertmanager.yml").read_text())
SOURCES: dict[str, Any] = yaml.safe_load((FOLDER / "grafana/datasources.yml").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
SECRET = "/run/secrets/streamer-token"
UNIT = (FOLDER / "streamer.service").read_text()
CONTAINER = (FOLDER / "Containerfile").read_text()


def mounts(service: str) -> dict[str, Path]:
    """Where a service sees the files of this repository."""
    volumes = (volume.split(":") for volume in SERVICES[service].get("volumes", []))
    return {at: FOLDER / source for source, at, *_ in volumes if source.startswith(".")}


# ---- compose


def test_compose_takes_the_file() -> None:
    composed = PyCompose.from_yaml((FOLDER / "compose.yml").read_text())
    composed.validate()
    composed.to_spec()


@pytest.mark.parametrize(
    ("word", "wrong"),
    [("ports:", "prots:"), ("read_only: true", "read_only: 7"), ("[streamer-token]", "[none]")],
)
def test_compose_takes_no_file_with_a_wrong_word(word: str, wrong: str) -> None:
    text = (FOLDER / "compose.yml").read_text()
    assert word in text
    with pytest.raises(ValueError):
        PyCompose.from_yaml(text.replace(word, wrong, 1)).validate()


def test_every_file_that_is_mounted_exists() -> None:
    assert {"prometheus", "alertmanager", "grafana"} <= {name for name in SERVICES if mounts(name)}
    for name in SERVICES:
        for source in mounts(name).values():
            assert source.exists(), source
    build = SERVICES["streamer"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == (FOLDER / "Containerfile").resolve()


def test_every_volume_is_declared_and_used() -> None:
    used = {v.split(":")[0] for service in SERVICES.values() for v in service.get("volumes", []) if v[0] not in "./"}
    assert used == set(COMPOSE["volumes"])


def test_what_configurations_name_is_mounted_where_they_name_it() -> None:
    for file in PROMETHEUS["rule_files"]:
        assert mounts("prometheus")[file].samefile("dashboards/rules/streamer.rules.yml")
    assert set(ALERTMANAGER["templates"]) <= set(mounts("alertmanager"))
    (provider,) = yaml.safe_load((FOLDER / "grafana/dashboards.yml").read_text())["providers"]
    assert mounts("grafana")[provider["options"]["path"]].samefile("dashboards/grafana")
    assert mounts("prometheus")["/etc/prometheus/prometheus.yml"].samefile(FOLDER / "prometheus/prometheus.yml")
    assert mounts("alertmanager")["/etc/alertmanager/alertmanager.yml"].samefile(
        FOLDER / "alertmanager/alertmanager.yml"
    )
    assert {Path(at).parent.name for at in mounts("grafana")} == {"datasources", "dashboards", "grafana"}


def test_all_know_each_other_by_name_and_port() -> None:
    addresses = [target for scraped in PROMETHEUS["scrape_configs"] for group in scraped["static_configs"]
                 for target in group["targets"]]  # fmt: skip
    addresses += [target for told in PROMETHEUS["alerting"]["alertmanagers"] for group in told["static_configs"]
                  for target in group["targets"]]  # fmt: skip
    addresses += [urlsplit(source["url"]).netloc for source in SOURCES["datasources"]]
    assert len(addresses) == 4
    for address in addresses:
        name, _, port = address.partition(":")
        assert PORTS[name] == int(port)
    for name, service in SERVICES.items():
        assert service["ports"] == [f"127.0.0.1:{PORTS[name]}:{PORTS[name]}"]
    assert re.findall(r"^EXPOSE (\d+)$", CONTAINER, re.MULTILINE) == [str(PORTS["streamer"])]
    assert f"http://127.0.0.1:{PORTS['streamer']}/healthz" in CONTAINER
    (scraped,) = PROMETHEUS["scrape_configs"]
    (group,) = scraped["static_configs"]
    assert group["labels"]["instance"] == f"localhost:{PORTS['streamer']}"  # links of alerts, from a browser
    assert scraped["job_name"] == "streamer"  # as in the rules


def test_who_asks_the_streamer_has_its_token() -> None:
    assert list(COMPOSE["secrets"]) == ["streamer-token"]
    assert PROMETHEUS["scrape_configs"][0]["authorization"] == {"credentials_file": SECRET}
    (pyroscope,) = (s for s in SOURCES["datasources"] if s["type"] == "grafana-pyroscope-datasource")
    assert pyroscope["secureJsonData"]["basicAuthPassword"] == f"$__file{{{SECRET}}}"
    group = re.search(r"groupadd --gid (\d+)", CONTAINER)
    assert group is not None
    for name in ("prometheus", "grafana"):
        assert SERVICES[name]["secrets"] == ["streamer-token"]
        assert SERVICES[name]["group_add"] == [group[1]]
    assert SERVICES["streamer"]["secrets"] == ["streamer-token"]
    assert f"USER {group[1]}\n" in CONTAINER


def test_the_command_of_the_container_is_one() -> None:
    name, *arguments = SERVICES["streamer"]["command"]
    assert name == "run"
    given = command.make_context(name, list(arguments)).params
    assert given["emulate"] is True
    assert given["web__host"] == "0.0.0.0"
    assert str(given["web__token_file"]) == SECRET
    assert given["web__allowed_hosts"] == ("streamer",)
    assert given["java"][:4] == ("java", "-cp", "/opt/demo", "Shop")


# ---- container


def test_hadolint_takes_the_container_file() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, FOLDER / "Containerfile"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_the_container_has_all_of_the_program() -> None:
    copied = {word for line in re.findall(r"^COPY (.+)$", CONTAINER, re.MULTILINE) for word in line.split()[:-1]}
    assert all(Path(name).exists() for name in copied)
    folders = {file.parent.name for file in Path().glob("*/__init__.py")} - {"tests", "benchmarks", "build"}
    assert folders <= copied
    assert {"pyproject.toml", "requirements.lock", "README.md"} <= copied
    python = re.search(r"^FROM \S+/python:(\S+?)-", CONTAINER, re.MULTILINE)
    assert python is not None
    assert f"PYTHON ?= python{python[1]}" in Path("Makefile").read_text()
    known = set(re.findall(r"[\w.-]+", Path(".ci/packages").read_text()))
    installed = re.search(r"--no-install-recommends (.+?) \\", CONTAINER)
    assert installed is not None
    assert set(installed[1].split()) <= known


# ---- service


def lines(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)


@pytest.mark.peer
def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    analyze = program("systemd-analyze", "systemd")
    unit = tmp_path / "streamer.service"
    unit.write_text(UNIT.replace("/opt/streamer/bin/streamer", "/bin/true").replace(
        "file:/opt/streamer/docs/operating.md", "man:true(1)"))  # fmt: skip
    done = subprocess.run(
        [analyze, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=25", unit],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_unit_has_two_capabilities_and_leaves_the_jvm_alone() -> None:
    assert lines("AmbientCapabilities") == lines("CapabilityBoundingSet") == ["CAP_PERFMON CAP_SYS_PTRACE"]
    assert lines("KillMode") == ["process"]
    assert lines("Restart") == ["no"]
    patience = Settings().target.stop_seconds
    assert int(lines("TimeoutStopSec")[0]) >= patience + 30  # the JVM's, then ours (docs/shutdown.md)
    (start,) = lines("ExecStart")
    given = command.make_context("run", start.split()[2:]).params
    assert given["java"] == ("java", "$JAVA_ARGUMENTS")


def test_settings_of_the_service_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dict(word.split("=", 1) for line in lines("Environment") for word in line.split())
    assert Path(environment.pop("STREAMER_CONFIG")).name == "streamer.toml"
    for name in environment:
        if name.startswith("STREAMER_"):
            monkeypatch.setenv(name, environment[name])
    monkeypatch.setenv("STREAMER_CONFIG", str(FOLDER / "streamer.toml"))
    settings = load()
    assert settings.log_json
    assert settings.web.token_file == Path("%d/token")
    assert settings.web.port == PORTS["streamer"]


@pytest.mark.peer
def test_promtool_takes_the_configuration() -> None:
    promtool = program("promtool", "prometheus")
    file = FOLDER / "prometheus/prometheus.yml"
    done = subprocess.run(
        [promtool, "check", "config", "--syntax-only", file], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
