from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Streamer

for _number in (signal.SIGINT, signal.SIGHUP):  # started by nohup, or in the background, the tests would hand that down
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

SHOP = Path(__file__).parents[2] / "streamer" / "demo" / "Shop.java"
TINY = """
public class Tiny {
    public static void main(String[] args) throws Exception {
        long sum = 0;
        for (java.io.File end = new java.io.File(args[0]); !end.exists(); ) {
            for (int i = 0; i < 1000; i++) sum += step(i);
        }
        System.out.println("sum " + (sum != 0));
    }

    static int step(int i) {
        return (i & 1) == 0 ? i / 2 : 3 * i + 1;
    }
}
"""
# Does not end when it is told to, until FILE is there.
STUCK = """
public class Stuck {
    public static void main(String[] args) throws Exception {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            while (!new java.io.File(args[0]).exists()) Thread.onSpinWait();
            System.out.println("ended at last");
        }));
        System.out.println("stuck");
        Tiny.main(new String[] {"never"});
    }
}
"""


@pytest.fixture(scope="session")
def kernels() -> None:
    """Compiled: a live run does not wait for them, and trace that is not followed shows no methods."""
    subprocess.run([sys.executable, "-m", "streamer.pipeline.warm"], check=True, timeout=600)


@pytest.fixture(scope="session")
def classes(kernels: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class path with `Shop` (the demo's program), `Tiny FILE`: as little as there can be, until FILE is there, and
    `Stuck FILE`: the same for ever, and after SIGTERM until FILE is there."""
    for program in ("javac", "java", "qemu-x86_64"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    out = tmp_path_factory.mktemp("classes")
    tiny = out / "Tiny.java"
    tiny.write_text(TINY)
    stuck = out / "Stuck.java"
    stuck.write_text(STUCK)
    subprocess.run(["javac", "--release", "17", "-d", out, SHOP, tiny, stuck], check=True, timeout=120)
    return out


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="e2e-") as name:
        yield Path(name)


@pytest.fixture
def start(root: Path) -> Iterator[Callable[..., Streamer]]:
    """Starts `streamer` with the given arguments; its processes that are left at the test's end are killed."""
    started: list[Streamer] = []

    def starter(*arguments: str | Path, **more: Any) -> Streamer:
        started.append(Streamer(root, *arguments, **more))
        return started[-1]

    yield starter
    for streamer in started:
        streamer.end()


@pytest.fixture
def run(start: Callable[..., Streamer], classes: Path) -> Callable[..., Streamer]:
    """`streamer run --emulate` of a program in `classes`: run("Tiny enough", "--aux-kib", "16")."""

    def runner(program: str, *options: str | Path, **more: Any) -> Streamer:
        summary = ["--summary", "summary.json", "--port", "0"]
        mode = "-XX:+TieredCompilation" if program.startswith("Shop") else "-Xint"  # steadily some bytes a bytecode
        jvm = ["java", mode, "-XX:+UseSerialGC", "-cp", str(classes), *program.split()]
        return start("run", "--emulate", *summary, *options, "--", *jvm, **more)

    return runner
