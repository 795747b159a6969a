"""Real JVMs for tests: the JDKs that are here, our test programs compiled, a process that is talked to by lines."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Self, TypeVar

import pytest

import jvm.attach
from tests.jdks import java, tool

SOURCES = Path(__file__).parent / "java"
DEADLINE = 200.0


@cache
def classes() -> Path:
    """A directory with the compiled test programs, as Java 17."""
    target = Path(tempfile.mkdtemp(prefix="streamer-test-classes-"))
    sources = [str(file) for file in sorted(SOURCES.glob("*.java"))]
    subprocess.run([tool("javac"), "--release", "17", "-g", "-d", str(target), *sources], check=True, timeout=120)
    target.chmod(0o755)
    return target


_T = TypeVar("_T")


def eventually(what: str | Callable[[], str], condition: Callable[[], _T | None], deadline: float = DEADLINE) -> _T:
    """Polls until `condition()` is true and returns it; fails, saying `what` (made then, if it is a function), after
    `deadline` seconds."""
    end = time.monotonic() + deadline
    while not (value := condition()):
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return value


attach = partial(jvm.attach.attach, timeout=DEADLINE)
jcmd = partial(jvm.attach.jcmd, timeout=DEADLINE)


class Subject:
    """A JVM that runs Subject.java, or another like it. Each `tell` returns when the JVM has done it."""

    def __init__(
        self,
        version: int,
        options: Sequence[str] = (),
        prefix: Sequence[str] = (),
        user: int | None = None,
        cwd: Path | None = None,
        classpath: str | None = None,
        main: str = "Subject",
    ) -> None:
        command = [*prefix, java(version), "-Xmx256m", *options, "-cp", classpath or str(classes()), main]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("JAVA_")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            user=user,
            cwd=cwd,
        )
        self.pid = self.process.pid
        try:
            assert self._line() == "ready"
        except BaseException:
            self.__exit__()
            raise

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, line: str) -> list[str]:
        """What it prints meanwhile."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        said = []
        while (answer := self._line()) != f"done {line}":
            assert self.process.poll() is None, f"the JVM ended at '{line}'"
            said.append(answer)
        return said

    def finish(self) -> int:
        """Lets it come to its end; its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait(DEADLINE)
