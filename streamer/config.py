"""One typed configuration, from (strongest first) flags, environment (STREAMER_…), a TOML file, defaults."""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from jvm.inputfile import read_input

MOST_BYTES = 1 << 20  # of the file with settings


def default_runtime_dir() -> Path:
    """Where rings and sockets live: private to the user (0700)."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / "streamer" if base else Path(tempfile.gettempdir()) / f"streamer-{os.geteuid()}"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WindowConfig(_Section):
    pane_seconds: float = Field(0.5, gt=0, le=60, description="length of a pane")
    windows_seconds: tuple[float, ...] = Field((10.0, 60.0, 300.0), description="windows, sums of panes")
    top: int = Field(20, ge=1, le=500, description="methods shown of a window; the rest is `other`")
    exported: int = Field(
        50, ge=1, le=500, description="methods and call edges in /metrics, a window and weight; the rest is `other`"
    )
    lateness_seconds: float = Field(0.5, ge=0, le=30, description="how long a pane waits for late reports")


def budget_cpus(text: str, machine: int) -> float:
    """`25%` of one CPU, `machine:5%` of `machine` CPUs, in CPUs. Raises ValueError."""
    found = re.fullmatch(r"(machine:)?(\d{1,6}(?:\.\d{1,6})?)%", text.strip())
    if found is None or float(found[2]) == 0:
        raise ValueError(f"{text!r} is no CPU budget: '25%' of one CPU, or 'machine:5%' of all")
    return float(found[2]) / 100 * (machine if found[1] else 1)


class CaptureConfig(_Section):
    chunk_kib: int = Field(256, ge=4, le=65536, description="largest chunk drained at once from one stream")
    poll_ms: float = Field(
        10.0, gt=0, le=1000, description="between two looks at the rings; up to three times as long while little comes"
    )
    reread_cpu_percent: float = Field(
        2.0, ge=0, le=100, description="of one CPU, to find changes in the code of running JVMs; 0: do not look"
    )

    cpu_budget: str | None = Field(
        None,
        description="'25%' of one CPU, or 'machine:5%', for the whole pipeline: a random part of the time is traced",
    )

    @field_validator("cpu_budget")
    @classmethod
    def _is_a_budget(cls, text: str | None) -> str | None:
        if text is not None:
            budget_cpus(text, 1)
        return text


class AgentConfig(_Section):
    ring_mib: int = Field(64, ge=1, le=16384, description="size of the ring that the agent writes; a power of two")
    classes: bool = Field(True, description="export class files: flow then knows what each call calls")
    stacks_ms: int = Field(100, ge=0, le=60000, description="between two stacks told of a thread; 0: none are told")
    mounts_per_second: int = Field(
        10000, ge=0, le=10_000_000, description="mounts of virtual threads told at most (JDK 21 and later); 0: none"
    )

    @field_validator("ring_mib")
    @classmethod
    def _is_a_power_of_two(cls, mib: int) -> int:
        if mib & (mib - 1):
            raise ValueError("must be a power of two")
        return mib

    @field_validator("stacks_ms")
    @classmethod
    def _is_off_or_not_too_short(cls, period: int) -> int:
        if 0 < period < 10:
            raise ValueError("must be 0 or at least 10")
        return period

    @field_validator("mounts_per_second")
    @classmethod
    def _is_off_or_not_too_few(cls, most: int) -> int:
        if 0 < most < 100:
            raise ValueError("must be 0 or at least 100")
        return most


class FlowConfig(_Section):
    most_behind_seconds: float = Field(
        0.5, ge=0, le=60,
        description="live, trace that waited longer is counted at fidelity ip: load is shed; 0: never",
    )  # fmt: skip
    interpreted: bool = Field(True, description="tell which methods the interpreter runs (docs/reconstruction.md)")
    each_bytecode: bool = Field(
        False, description="with it, tell each bytecode that the interpreter executes (streamer flow asks for it)"
    )
    statements: bool = Field(
        False,
        description="live coverage and path frequencies, by bytecode (docs/statements.md); tells each bytecode, too",
    )
    recover: bool = Field(True, description="fill holes with what threads did at another time (docs/recovery.md)")
    guess: bool = Field(False, description="guess a way through holes that nothing fills (docs/recovery.md)")
    recover_mib: int = Field(64, ge=1, le=4096, description="window of a process in which fillings are looked for")
    contexts: bool = Field(True, description="calling-context trees of a live run or a replay (streamer cct live)")
    context_kirows: int = Field(
        1 << 10, ge=4, le=1 << 10,
        description="1,024 rows of each table of contexts: it is made anew when half of them are used (docs/cct.md)",
    )  # fmt: skip
    presume: bool = Field(True, description="behind a hole, frames have the caller that they had before (docs/cct.md)")


class EmulatorConfig(_Section):
    per_thread: bool = Field(False, description="one AUX ring a thread instead of one a CPU")
    aux_kib: int = Field(8192, ge=8, description="size of each AUX ring; a power of two of pages")
    data_kib: int = Field(512, ge=4, description="size of each data ring; a power of two of pages")
    psb_kib: int = Field(2, ge=1, le=64, description="a PSB+ every so many KiB")
    tsc: bool = Field(True, description="TSC packets")
    mtc: int = Field(9, ge=-1, le=14, description="MTCFreq; −1: no MTC, and no stacks that are read (docs/cct.md)")
    cyc: int = Field(-1, ge=-1, le=15, description="CycThresh; −1: no CYC")
    retcomp: bool = Field(True, description="return compression")
    retcomp_strict: bool = Field(False, description="the SDM's: an uncompressed return pops one entry, not all")
    ovf_mb_s: float = Field(0, ge=0, description="OVF model: bytes a second a CPU can write; 0: no OVF")
    psb_on_code_change: bool = Field(False, description="proves the encoder; hardware does not do it")
    truth: Path | None = Field(None, description="directory for the exact block sequence and code versions")


class HardwareConfig(_Section):
    per_cpu: bool = Field(False, description="one event a CPU instead of one a thread; needs CAP_PERFMON")
    aux_kib: int = Field(4096, ge=8, description="size of each AUX ring; a power of two of pages")
    data_kib: int = Field(512, ge=4, description="size of each data ring; a power of two of pages")


class TargetConfig(_Section):
    stop_seconds: float = Field(
        60.0, ge=0, description="how long a JVM that was told to end is waited for; then it runs on, without tracing"
    )


class TransportConfig(_Section):
    mode: Literal["inproc", "ipc", "tcp"] = Field("ipc", description="what lies between processes; inproc: all in one")
    workers: int = Field(1, ge=1, le=256, description="processes that decode")
    hwm: int = Field(256, ge=1, description="messages queued towards a worker before capture makes a hole")
    tcp_host: str = Field("127.0.0.1", description="address of sockets with tcp")
    tcp_port: int = Field(0, ge=0, le=65535, description="first port; 0: any free")
    keys: Path | None = Field(
        None, description="tcp: directory of CURVE keys, made by `streamer keys`; none: keys made for the session"
    )
    split: tuple[str, ...] = Field((), description="stage boundaries that are sockets, e.g. segment,follow")


class WebConfig(_Section):
    host: str = Field("127.0.0.1", description="address of the page, /metrics and /api (docs/security.md)")
    port: int = Field(9464, ge=0, le=65535, description="its port; 0: any free one")
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="names of this host that requests may be for, besides loopback and the bound address",
    )
    token_file: Path | None = Field(
        None, description="file with the token that requests have to have; none: they need none"
    )
    anyone: bool = Field(False, description="serve beyond loopback without a token: whoever gets there may read")
    tls_certificate: Path | None = Field(None, description="PEM file with the certificate and its chain: serve by TLS")
    tls_key: Path | None = Field(None, description="PEM file with its key, without a passphrase")


class PushConfig(_Section):
    url: str | None = Field(
        None, description="of a Pyroscope server that gets the trees (docs/grafana.md); none: nothing leaves"
    )
    seconds: float = Field(10.0, ge=1, le=300, description="how often")
    token_file: Path | None = Field(None, description="file with the token that the server asks for")

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, text: str | None) -> str | None:
        if text is not None and re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#]*)?", text) is None:
            raise ValueError("must be http://… or https://…, without a user or a query")
        return text


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="STREAMER_", env_nested_delimiter="__", extra="forbid", frozen=True)

    runtime_dir: Path = Field(default_factory=default_runtime_dir, description="where rings and sockets are made")
    fidelity: Literal["ip", "flow"] = Field(
        "flow", description="ip: only addresses that stand in packets; flow: every branch, as far as time allows"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="how much is logged to stderr")
    log_json: bool = Field(False, description="stderr is lines of JSON, for collectors")
    window: WindowConfig = WindowConfig()
    capture: CaptureConfig = CaptureConfig()
    agent: AgentConfig = AgentConfig()
    flow: FlowConfig = FlowConfig()
    emulator: EmulatorConfig = EmulatorConfig()
    hardware: HardwareConfig = HardwareConfig()
    target: TargetConfig = TargetConfig()
    transport: TransportConfig = TransportConfig()
    web: WebConfig = WebConfig()
    push: PushConfig = PushConfig()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get("STREAMER_CONFIG")
        if file:
            return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, Path(file))
        return init_settings, env_settings


class ConfigError(ValueError):
    """The settings cannot be read: one clear line."""


def load(file: Path | None = None, /, **flags: Any) -> Settings:
    """Settings with `flags` (dotted names, e.g. ``**{"web.port": 0}``; None = not given) on top. Raises ConfigError,
    pydantic's ValidationError."""
    if file is not None:
        os.environ["STREAMER_CONFIG"] = str(file)
    nested: dict[str, Any] = {}
    for name, value in flags.items():
        if value is None:
            continue
        *path, leaf = name.split(".")
        at = nested
        for part in path:
            at = at.setdefault(part, {})
        at[leaf] = value
    _check_file()
    try:
        return Settings(**nested)
    except SettingsError as error:  # a variable whose text has to be JSON, and is not
        raise ConfigError(" ".join(f"{error}".split())) from error


def _check_file() -> None:
    """pydantic-settings takes a missing file for an empty one."""
    name = os.environ.get("STREAMER_CONFIG")
    try:
        if name:
            tomllib.loads(read_input(Path(name), MOST_BYTES).decode())
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8
        raise ConfigError(f"{name}: {error}") from error
