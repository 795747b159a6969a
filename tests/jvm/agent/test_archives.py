"""Archives of classes, with which JVMs start faster: the agent leaves them usable, and still tells every class."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from capture.emulator import build
from capture.emulator.options import EmulatorError
from jvm.agent.build import library
from jvm.cbuild import BuildError
from jvm.export.ring import RingReader
from tests.jdks import java, tool
from tests.jvm.agent.java_process import eventually
from tests.jvm.agent.known import Known

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("jvm-agent")]

PROGRAM = """
public class Archived {
    public static void main(String[] args) throws Exception {
        System.out.println("sum " + java.util.stream.IntStream.range(0, 100).map(i -> i * i).sum());
        while (args.length > 0 && System.in.read() >= 0) { }
    }
}
"""
SUM = "sum 328350\n"


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives take classes of the application from jars alone."""
    directory = tmp_path_factory.mktemp("archived")
    (directory / "Archived.java").write_text(PROGRAM)
    for command in (
        [tool("javac"), "--release", "17", "Archived.java"],
        [tool("jar"), "--create", "--file", "archived.jar", "Archived.class"],
    ):
        subprocess.run(command, cwd=directory, check=True, timeout=120)
    return directory / "archived.jar"


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def archive(version: int, jar: Path, kind: str) -> list[str]:
    """Makes it; the options with which a JVM uses it, or does not start."""
    path = jar.with_name(f"{kind}-{version}")
    program = ["-cp", str(jar), "Archived"]
    if kind == "aot":  # JEP 514: recorded and assembled in one step
        run([java(version), f"-XX:AOTCacheOutput={path}", *program])
        return ["-XX:AOTMode=on", f"-XX:AOTCache={path}"]
    listed = jar.with_name(f"classes-{version}")
    run([java(version), "-Xshare:off", f"-XX:DumpLoadedClassList={listed}", *program])
    run([java(version), "-Xshare:dump", f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={path}", *program])
    return ["-Xshare:on", f"-XX:SharedArchiveFile={path}"]


@pytest.mark.parametrize("way", ["native", "traced"])
@pytest.mark.parametrize(
    ("version", "kind"), [(17, "cds"), pytest.param(21, "cds", marks=pytest.mark.nightly), (25, "cds"), (25, "aot")]
)
def test_an_archive_stays_usable(version: int, kind: str, way: str, jar: Path, tmp_path: Path) -> None:
    options = archive(version, jar, kind)
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    command = [java(version), f"-agentpath:{library()}=dir={session}", *options, "-cp", str(jar), "Archived"]
    if way == "traced":
        try:
            command = [build.qemu(), "-cpu", "max", *command]
        except (EmulatorError, BuildError) as error:
            pytest.skip(str(error))
    with subprocess.Popen([*command, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jvm:
        assert jvm.stdin is not None
        assert jvm.stdout is not None
        assert jvm.stdout.readline() == SUM
        (ring,) = session.glob("*.ring")
        known = Known()

        def defined() -> set[str]:
            known.read(reader)
            return {c.signature for c in known.classes.values() if c.definition}

        with RingReader(ring) as reader:
            eventually("the classes are told", lambda: {"LArchived;", "Ljava/util/stream/IntStream;"} <= defined())
            assert any(signature.startswith("LArchived$$Lambda") for signature in defined())
        jvm.stdin.close()
        assert jvm.wait() == 0
