"""Runs a JVM under the emulated PT and keeps its trace and output."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from capture.emulator.launch import command
from capture.emulator.options import EmulatorOptions
from capture.emulator.truth import Truth
from capture.live.ring import PerfRing
from capture.perf.records import parse
from stages.messages import Clock
from tests.oracles import ipt

TIMES_FULL, NOT_WRITTEN_OFF = 4, 16  # words of a ring's counters (docs/emulator.md)
# Calls, loops, string instructions with REP, implicit null checks, a stack overflow, threads, exceptions: everything
# that takes another way through the encoder. Ends with its result.
PROGRAM = """
public class Ways {
    static volatile Object nothing;

    public static void main(String[] args) throws Exception {
        int n = Integer.parseInt(args[0]);
        Thread[] threads = new Thread[3];
        for (int i = 0; i < threads.length; i++) {
            int seed = i;
            threads[i] = new Thread(() -> work(seed, n));
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        int caught = 0;
        for (int i = 0; i < 30; i++) {
            try { nothing.hashCode(); } catch (NullPointerException e) { caught++; }
        }
        try { deep(0); } catch (StackOverflowError e) { caught++; }
        System.out.println("caught " + caught);
    }

    static long work(int seed, int n) {
        long sum = 0;
        StringBuilder text = new StringBuilder();
        byte[] from = new byte[4096], to = new byte[4096];
        for (int i = 0; i < n; i++) {
            sum += fibonacci(5 + (i + seed) % 8);
            if (i % 16 == 0) System.arraycopy(from, 0, to, i % 64, 2048);
            text.append(i);
            if (text.length() > 1000) { sum += text.toString().hashCode(); text.setLength(0); }
        }
        return sum;
    }

    static int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

    // The condition leaves a packet a call: PT says nothing of a recursion by direct calls alone, nor how deep it was.
    static int deep(int n) { return n < 0 ? n : deep(n + 1) + 1; }
}
"""


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    id: int
    trace: NDArray[np.uint8]
    side: NDArray[np.void]  # its records
    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class Run:
    config: dict[str, Any]  # emulator.json
    truth: Truth
    streams: list[Stream]
    late: list[int]  # bytes not written after tracing had been switched on, each time, of each ring

    @property
    def clock(self) -> Clock:
        return Clock(**self.config["clock"])

    @property
    def ipt_config(self) -> ipt.IptConfig:
        of = self.config
        return ipt.IptConfig(tuple(of["filter"]), of["mtc"], of["ctc_num"], of["ctc_den"], of["cbr"])

    def compare(self) -> ipt.Comparison:
        """libipt against the truth, all streams."""
        total = ipt.Comparison()
        for stream in self.streams:
            total += ipt.compare(self.truth, stream.id, stream.trace, self.ipt_config)
        return total


class Drain:
    """A consumer: takes the contents of each ring when it is left, and before that, if `slow`, whenever a ring has been
    full. `duty`: it also switches tracing off and on, all rings at once."""

    def __init__(self, directory: Path, slow: bool, duty: bool = False) -> None:
        self._directory, self._slow, self._duty = directory, slow, duty
        self._rings: dict[str, PerfRing] = {}
        self._full: dict[str, int] = {}  # how often it was, when it was emptied last
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.trace: dict[str, list[NDArray[np.uint8]]] = {}
        self.records: dict[str, list[NDArray[np.uint64]]] = {}
        self.late: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._take()
        for ring in self._rings.values():
            ring.close()

    def _run(self) -> None:
        on, before = True, dict[str, int]()
        while (self._slow or self._duty) and not self._stop.wait(0.005):
            self._take(full=True)
            on = on != self._duty
            for name, ring in self._rings.items():
                missing = ring.counter(NOT_WRITTEN_OFF)
                if not on and name in before:
                    self.late.append(missing - before[name])
                ring.switch(on)
                before[name] = ring.counter(NOT_WRITTEN_OFF)

    def _take(self, full: bool = False) -> None:
        """All rings, or those that have become `full`."""
        for path in self._directory.glob("*.ring"):
            name = path.stem
            if name not in self._rings:
                self._rings[name] = PerfRing.open(path)
                self.trace[name], self.records[name] = [], []
            ring = self._rings[name]
            times = ring.counter(TIMES_FULL)
            if full and times == self._full.get(name, 0):
                continue
            self._full[name] = times
            head = ring.aux_head()
            self.records[name].append(ring.take_records())
            self.trace[name].append(ring.take_aux(head, ring.aux_size)[1])


def emulate(
    directory: Path,
    java: list[str],
    options: dict[str, Any],
    slow_consumer: bool = False,
    timeout: float = 500,
    duty: bool = False,
) -> Run:
    """Runs `java` (a command line that ends in `Ways N`) to its end. `slow_consumer`: one empties a ring each time
    that it has been full; else that is done only when all is over. `duty`: tracing is off half of the time."""
    truth = directory / "truth"
    pt = directory / "pt"
    options = {"aux_kib": 1 << 16, "data_kib": 1 << 12, **options, "truth": truth}
    argv = command(java, pt, EmulatorOptions(**options))
    with Drain(pt, slow_consumer, duty) as drain:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "caught 31\n"
    config = json.loads((pt / "emulator.json").read_text())
    clock = Clock(**config["clock"])
    streams = [
        Stream(
            of["name"],
            of["id"],
            np.concatenate(drain.trace[of["name"]]),
            parse(np.concatenate(drain.records[of["name"]]), clock),
            of,
        )
        for of in config["streams"]
    ]
    return Run(config, Truth.load(truth), streams, drain.late)
