"""Kills every process of a live session, again and again, at random moments, and checks its state.

    python -m benchmarks.kills [--count N] [--seed S] [--json FILE]

A small program runs under the emulated PT, traced live, all kernels compiled before. Of the main process, capture,
worker and hub, one is killed (SIGKILL) after a random pause, then another one, in four phases: while they start; while
they run, which is when the hub has heard of trace decoded since the last kill; while the killed process starts again;
and when the program has been told to end. After the main process `streamer resume` takes the JVM up. This goes on in
rounds, each with a JVM of its own, until each process has been killed `--count` times. A condition of these that does
not hold is told, and ends it with status 1:

- the program comes to its own end, as the same process, with status 0 where its parent lives to hear it;
- after each kill in mid-run trace is decoded again;
- the streamer ends with status 0, and on each stream bytes written = decoded + in holes, if it lived to say so; some
  are decoded;
- no process is left, and no session, at once or, where the main process was killed last, when the next one has begun.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from streamer.config import Settings
from streamer.pipeline.topology import MIDDLE, Place
from streamer.pipeline.warm import warm
from tests.e2e.harness import Streamer, until

MEMBERS = ("main", "capture/0", "decode/0", "hub/0")
PHASES = ("start", "run", "restart", "end")
PATIENCE = 240.0  # for anything; the machine may have much else to do
ENOUGH = 1 << 16  # bytes decoded, by which it is seen that all members work
PROGRAM = """
import java.io.File;

public class Steady {
    public static void main(String[] args) throws Exception {
        long sum = 0;
        for (File end = new File(args[0]); !end.exists(); ) {
            for (int i = 0; i < 1000; i++) sum += step(i);
        }
        new File(args[1]).createNewFile();
    }

    static int step(int i) {
        return (i & 1) == 0 ? i / 2 : 3 * i + 1;
    }
}
"""


@dataclass
class Figures:
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)  # member, phase
    rounds: int = 0
    resumed: int = 0
    summaries: int = 0  # the rest of the rounds ended with the main process killed and the JVM gone
    written: int = 0
    decoded: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    slowest_end: float = 0.0  # seconds from the program's end to the streamer's
    violations: list[str] = field(default_factory=list)

    def killed(self, member: str) -> int:
        return sum(n for (name, _), n in self.kills.items() if name == member)


class Round:
    """One JVM, from start to end."""

    def __init__(self, root: Path, classes: Path, rng: random.Random, wanted: Counter[str], figures: Figures) -> None:
        self.root, self.rng, self.wanted, self.figures = root, rng, wanted, figures
        self.enough, self.done = root / "enough", root / "done"
        for path in (self.enough, self.done, root / "summary.json"):
            path.unlink(missing_ok=True)
        java = ["java", "-Xint", "-XX:+UseSerialGC", "-cp", str(classes), "Steady", str(self.enough), str(self.done)]
        self._common = ("--port", "0", "--summary", "summary.json")
        self.streamer = Streamer(root, "run", "--emulate", *self._common, "--", *java)
        self.jvm = 0
        self.ran = False  # trace was decoded: from then on there is something to lose

    def play(self) -> None:
        """Raises AssertionError for a condition that does not hold."""
        rng = self.rng
        for _ in range(rng.randint(0, 2)):
            time.sleep(rng.uniform(0, 3))
            self._kill("start")
        if self._alive():
            self._run()
        if not self._alive():
            return  # the main process was killed before there was a JVM
        self.enough.touch()
        for _ in range(rng.randint(0, 2)):
            time.sleep(rng.uniform(0, 1.5))
            self._kill("end")
        until(self.done.exists, "the program has come to its end", PATIENCE)
        ended = time.monotonic()
        for _ in range(rng.randint(0, 2)):
            time.sleep(rng.uniform(0, 0.7))
            self._kill("end")
        self._check_end(ended)

    def _run(self) -> None:
        until(lambda: self._find_jvm() or not self._alive(), "the JVM runs", PATIENCE)
        if not self._alive():
            return
        self.jvm = self._find_jvm()
        for _ in range(self.rng.randint(4, 9)):
            self.streamer.when_decoded(ENOUGH)
            self.ran = True
            time.sleep(self.rng.expovariate(2.0))
            self._kill("run")
            if self.rng.random() < 0.4:
                time.sleep(self.rng.uniform(0, 2))
                self._kill("restart")
            assert self._alive(), f"it ended: {self.streamer.err[-2000:]}"
            assert self._find_jvm() == self.jvm, "the JVM is another, or none"
        self.streamer.when_decoded(ENOUGH)

    def _alive(self) -> bool:
        return self.streamer.process.poll() is None

    def _find_jvm(self) -> int:
        return next((pid for pid, line in self.streamer.processes().items() if "Steady" in line and "qemu" in line), 0)

    def _kill(self, phase: str) -> None:
        """A process that has not been killed often enough, if it is there."""
        left = [member for member in MEMBERS if self.wanted[member] > 0]
        if not left or not self._alive():
            return
        member = self.rng.choice(left)
        pid = self.streamer.process.pid if member == "main" else self.streamer.members().get(member, 0)
        if not pid:
            return
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.figures.kills[member, phase] += 1
        self.wanted[member] -= 1
        if member == "main":
            self.streamer.process.wait()
            self._resume()

    def _resume(self) -> None:
        """If there is a JVM to take up."""
        until(lambda: not self.streamer.members(), "the members die with the main process", PATIENCE)
        if self._find_jvm():
            self.streamer = Streamer(self.root, "resume", *self._common)
            self.figures.resumed += 1

    def _check_end(self, ended: float) -> None:
        figures, summary = self.figures, self.root / "summary.json"
        until(lambda: not self._alive(), "the streamer ends", PATIENCE)
        status = self.streamer.process.returncode
        if status == -signal.SIGKILL or "no JVM of an earlier session" in self.streamer.err:
            return  # by us, when the JVM had ended: no books are told
        figures.slowest_end = max(figures.slowest_end, time.monotonic() - ended)
        assert status == 0, f"status {status}: {self.streamer.err[-2000:]}"
        said = json.loads(summary.read_text())
        assert said["target_status"] == 0, said["target_status"]
        figures.summaries += 1
        decoded = sum(stream["decoded"] for stream in said["streams"])
        assert decoded >= ENOUGH or not self.ran, f"{decoded} bytes are decoded"
        for stream in said["streams"]:
            figures.written += stream["written"]
            figures.decoded += stream["decoded"]
            figures.lost.update(stream["holes"])
            assert stream["written"] == stream["decoded"] + sum(stream["holes"].values()), f"the books: {stream}"
        self.streamer.check_gone()

    def close(self) -> None:
        try:
            until(lambda: not self.streamer.processes(), "no process is left", 30)
        except AssertionError as error:
            self.figures.violations.append(f"{error}: {self.streamer.processes()}")
        self.streamer.end()


def run(count: int, seed: int, progress: bool = False) -> Figures:
    """Until each process has been killed `count` times."""
    warm(MIDDLE["flow"], Place(Settings(), Path(), 0))
    rng, wanted, figures = random.Random(seed), Counter(dict.fromkeys(MEMBERS, count)), Figures()
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        root = Path(name)
        (root / "Steady.java").write_text(PROGRAM)
        subprocess.run(["javac", "--release", "17", "-d", root, root / "Steady.java"], check=True)
        while any(wanted[member] > 0 for member in MEMBERS):
            figures.rounds += 1
            one = Round(root, root, rng, wanted, figures)
            try:
                one.play()
            except (AssertionError, OSError, ValueError) as error:
                figures.violations.append(f"round {figures.rounds}: {error}")
            finally:
                one.close()
            if progress:
                left = ", ".join(f"{member} {wanted[member]}" for member in MEMBERS)
                print(f"round {figures.rounds}: left {left}; violations {len(figures.violations)}", file=sys.stderr)
        last = Streamer(root, "run", "--emulate", "--port", "0", "--", "java", "-version")  # it clears up
        last.wait()
        if left_over := [path.name for path in (root / "rt").iterdir()]:
            figures.violations.append(f"sessions are left: {left_over}")
        last.end()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100, help="kills of each process  [default: 100]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if missing := [program for program in ("java", "javac", "qemu-x86_64") if shutil.which(program) is None]:
        parser.error(f"{', '.join(missing)} not installed")
    figures = run(given.count, given.seed, progress=True)
    for member in MEMBERS:
        phases = ", ".join(f"{figures.kills[member, phase]} at {phase}" for phase in PHASES)
        print(f"{member}: killed {figures.killed(member)} times ({phases})")
    lost = ", ".join(f"{cause} {size:,}" for cause, size in sorted(figures.lost.items())) or "nothing"
    print(f"{figures.rounds} JVMs, all untouched unless told below; taken up again {figures.resumed} times")
    print(f"{figures.summaries} summaries: written {figures.written:,} B, decoded {figures.decoded:,} B; lost: {lost}")
    print(f"from the program's end to the streamer's {figures.slowest_end:.1f} s at most")
    if not figures.decoded:
        figures.violations.append("nothing was decoded in any round that told its books")
    print("\n".join(figures.violations) or "no violation")
    if given.json:
        kills = {f"{member} {phase}": n for (member, phase), n in sorted(figures.kills.items())}
        given.json.write_text(json.dumps({"kills": kills, "violations": figures.violations}, indent=1) + "\n")
    return 1 if figures.violations else 0


if __name__ == "__main__":
    sys.exit(main())
