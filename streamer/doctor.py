"""The means of tracing a JVM on this machine, and the remedy for each one missing.

Every check is a function that returns a `Finding`; nothing is changed on the machine and nothing raises.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Literal

import trio

from capture.live.perf_event import PMU
from jvm.private import PrivacyError, private_directory
from streamer.config import Settings

State = Literal["ok", "limited", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    state: State
    found: str
    remedy: str = ""
    needed_for: str = ""


def _first_line(*argv: str) -> str | None:
    """The first line a command prints (either stream), or None when it is not there or does not answer."""
    path = shutil.which(argv[0])
    if path is None:
        return None
    try:
        done = subprocess.run([path, *argv[1:]], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else ""


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "")


def pt_pmu() -> Finding:
    why = "tracing on hardware"
    if not PMU.is_dir():
        vendor = _cpu_name()
        return Finding(
            "Intel PT", "missing", f"no intel_pt PMU ({vendor or platform.machine()})",
            "needs a bare-metal Intel CPU (Broadwell or later; most VMs hide PT); use --emulate here", why,
        )  # fmt: skip
    caps = [name for name in ("ip_filtering", "psb_cyc", "mtc", "topa_multiple_entries")
            if (PMU / "caps" / name).exists() and (PMU / "caps" / name).read_text().strip() == "1"]  # fmt: skip
    return Finding("Intel PT", "ok", "intel_pt PMU: " + (", ".join(caps) or "no optional capabilities"), "", why)


def perf_permission() -> Finding:
    why = "tracing on hardware"
    try:
        level = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return Finding(
            "perf events", "missing", "the kernel has no perf events", "boot a kernel with CONFIG_PERF_EVENTS", why
        )
    if os.geteuid() == 0 or level < 0:
        return Finding("perf events", "ok", f"perf_event_paranoid {level}, euid {os.geteuid()}", "", why)
    remedy = "give the capture process CAP_PERFMON (setcap cap_perfmon+ep) or set kernel.perf_event_paranoid to -1"
    return Finding(
        "perf events", "limited", f"perf_event_paranoid {level}: own processes, small buffers only", remedy, why
    )


def memory_reading() -> Finding:
    why = "re-reading patched code"
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    if scope == 0 or os.geteuid() == 0:
        return Finding("reading JVM memory", "ok", f"ptrace_scope {scope}", "", why)
    return Finding(
        "reading JVM memory", "limited", f"ptrace_scope {scope}",
        "set kernel.yama.ptrace_scope to 0 or give the capture process CAP_SYS_PTRACE", why,
    )  # fmt: skip


def java() -> Finding:
    why = "the JVM to trace"
    line = _first_line("java", "-version")
    if line is None:
        return Finding("java", "missing", "no java on PATH", "Debian: apt-get install openjdk-17-jdk-headless", why)
    version = re.search(r'"(\d+)', line)
    state: State = "ok" if version and int(version[1]) >= 17 else "limited"
    remedy = "" if state == "ok" else "tested with HotSpot 17, 21 and 25"
    return Finding("java", state, line, remedy, why)


def jvmti_headers() -> Finding:
    why = "building the agent"
    java_path = shutil.which("java")
    homes = [os.environ.get("JAVA_HOME"), str(Path(java_path).resolve().parent.parent) if java_path else None]
    for home in homes:
        if home and (Path(home) / "include" / "jvmti.h").exists():
            return Finding("JVMTI headers", "ok", str(Path(home) / "include"), "", why)
    return Finding(
        "JVMTI headers", "missing", "no jvmti.h beside java",
        "install a JDK (Debian: openjdk-17-jdk-headless) or set JAVA_HOME to one", why,
    )  # fmt: skip


def compiler() -> Finding:
    line = _first_line("cc", "--version")
    why = "building agent and plugin"
    if line is None:
        return Finding("C compiler", "missing", "no cc on PATH", "Debian: apt-get install gcc libc6-dev", why)
    return Finding("C compiler", "ok", line, "", why)


def qemu() -> Finding:
    why = "emulated PT"
    line = _first_line("qemu-x86_64", "--version")
    if line is None:
        return Finding("qemu-user", "missing", "no qemu-x86_64 on PATH", "Debian: apt-get install qemu-user", why)
    return Finding("qemu-user", "ok", line, "", why)


def perf() -> Finding:
    line = _first_line("perf", "--version")
    why = "cross-checks only"
    if line is None:
        return Finding("perf", "missing", "no perf on PATH", "Debian: apt-get install linux-perf", why)
    return Finding("perf", "ok", line, "", why)


def byte_code() -> Finding:
    """Modules are compiled by the first process that may keep the result; where none may, by each one anew."""
    name, why = "Python byte code", "a quick start"
    if not trio.__file__ or Path(cache_from_source(trio.__file__)).exists():
        return Finding(name, "ok", "compiled modules are kept", "", why)
    packages = Path(trio.__file__).parents[1]
    cause = "PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else f"{packages} cannot be written"
    remedy = f"once, as the owner of the packages: {sys.executable} -m compileall -q {packages}"
    return Finding(name, "limited", f"each process compiles all modules anew: {cause}", remedy, why)


def runtime_dir(settings: Settings) -> Finding:
    path = settings.runtime_dir
    why = "rings and sockets"
    try:
        private_directory(path)
    except PrivacyError as error:
        return Finding("runtime directory", "missing", str(error), "set STREAMER_RUNTIME_DIR to a private one", why)
    free = shutil.disk_usage(path).free >> 20
    if free < 256:
        return Finding("runtime directory", "limited", f"{path}: {free} MiB free", "rings want some 256 MiB", why)
    return Finding("runtime directory", "ok", f"{path} (0700, {free} MiB free)", "", why)


def examine(settings: Settings) -> list[Finding]:
    checks: list[Callable[[], Finding]] = [
        pt_pmu, perf_permission, memory_reading, java, jvmti_headers, compiler, qemu, perf, byte_code,
        lambda: runtime_dir(settings),
    ]  # fmt: skip
    return [check() for check in checks]


def verdict(findings: list[Finding]) -> tuple[bool, str]:
    """(can this machine trace a live JVM?, one sentence)."""
    state = {f.name: f.state for f in findings}
    common = all(state[name] != "missing" for name in ("java", "JVMTI headers", "C compiler", "runtime directory"))
    hardware = common and state["Intel PT"] == "ok" and state["perf events"] != "missing"
    emulated = common and state["qemu-user"] == "ok"
    if hardware:
        return True, "ready to trace live JVMs on hardware" + (" and under emulation" if emulated else "")
    if emulated:
        return True, "ready to trace JVMs under the emulated PT (streamer run --emulate -- java …)"
    return False, "cannot trace a live JVM yet; replaying recordings works (make demo)"
