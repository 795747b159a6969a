"""A run of a JVM under the emulated PT, recorded as `streamer record --emulate` does, with the truth beside it.

DIR/run.json, run.perf.data, run-<pid>.export   the recording
DIR/truth/                                      the blocks that really ran (docs/emulator.md)
DIR/emulator.json                               the emulator's own counters
DIR/flow-truth.json                             facts that only the run knows: `Run`
DIR/stdout, DIR/stderr                          the JVM's output
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.flow_truth import FlowTruthError
from capture.code_poller.poller import CodePoller
from capture.emulator import launch
from capture.emulator.options import EmulatorError, EmulatorOptions
from capture.live import tsc
from capture.live.drain import Drain
from capture.recording.record import Recorder
from jvm.attach import AttachError, attach
from jvm.cbuild import BuildError
from stages.messages import Chunk, Sideband
from streamer import config
from streamer.session.session import SessionError, session
from streamer.target import launch as target

NAME = "run"
KEPT = 4096  # bytes of the JVM's last words in an error
ROOMY_AUX_KIB = 256 << 10
"""Of a ring that holds what a JVM writes while its reader waits for the machine."""
ENDS_SECONDS = 30.0  # then a JVM whose trace has ended is ended, too


@dataclass(frozen=True, slots=True)
class Run:
    java: tuple[str, ...]
    status: int  # the JVM's exit status
    seconds: float
    trace_bytes: int
    aux_full: int
    attached: int  # TSC when the agent was in the running JVM; 0: there from the beginning
    reread_seconds: float  # CPU seconds for rereading code, limited by its budget
    reread_learning_seconds: float  # and for learning which code there is to read
    faults: tuple[str, ...]

    @classmethod
    def load(cls, directory: Path) -> Run:
        try:
            fields = json.loads((directory / "flow-truth.json").read_text())
            return cls(**{**fields, "java": tuple(fields["java"]), "faults": tuple(fields["faults"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FlowTruthError(f"{directory} holds no run that was kept (--keep): {error}") from error


def missing(directory: Path) -> int:
    """Bytes that the emulator made and the recording lacks: they found no room in a ring, or were not read in time.
    Raises FlowTruthError where that is not known."""
    try:
        emulator = json.loads((directory / "emulator.json").read_text())
        if emulator["state"] != "ended":
            raise FlowTruthError(f"{directory}: the JVM was killed: how much of its trace is missing is not known")
        if emulator["refused"]:
            raise FlowTruthError(f"{directory}: there was no room for a ring: how much is missing is not known")
        made = sum(stream[of] for stream in emulator["streams"] for of in ("aux_head", "aux_dropped", "ovf_dropped"))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FlowTruthError(f"{directory}: the emulator's counters cannot be read: {error}") from error
    return int(made) - Run.load(directory).trace_bytes


def record(
    java: Sequence[str],
    directory: Path,
    *,
    attach_after: float | None = None,
    seconds: float | None = None,
    aux_kib: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Run:
    """Runs `java` (program and arguments) to its end, or ends it after `seconds`. `attach_after`: the agent is loaded
    into the running JVM after so many seconds. `aux_kib`: the size of each ring, in the place of the setting. Raises
    FlowTruthError."""
    if directory.exists() and any(directory.iterdir()):
        raise FlowTruthError(f"{directory} is not empty")
    directory.mkdir(parents=True, exist_ok=True)
    truth = str(directory.absolute() / "truth")
    settings = config.load(None, **{"emulator.truth": truth, "emulator.aux_kib": aux_kib})
    try:
        with session(settings.runtime_dir) as place:
            argv = (
                target.emulated(java, place, settings)
                if attach_after is None
                else launch.command(java, place / "pt", EmulatorOptions.from_fields(settings.emulator))
            )
            run = _run(java, argv, place, directory, settings, attach_after, seconds, say)
            shutil.copyfile(place / "pt" / "emulator.json", directory / "emulator.json")
    except (EmulatorError, BuildError, SessionError, OSError, target.TargetError) as error:
        raise FlowTruthError(" ".join(str(error).split())) from error
    (directory / "flow-truth.json").write_text(json.dumps(asdict(run), indent=1) + "\n")
    return run


def _run(
    java: Sequence[str], argv: list[str], place: Path, directory: Path, settings: config.Settings,
    attach_after: float | None, seconds: float | None, say: Callable[[str], None],
) -> Run:  # fmt: skip
    drain = Drain(
        place,
        host=socket.gethostname(),
        chunk_bytes=settings.capture.chunk_kib << 10,
        reread_share=settings.capture.reread_cpu_percent / 100,
    )
    recorder = Recorder(directory, NAME, options={"java": list(java)})
    began = time.monotonic()
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        jvm = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        late = _Attach(jvm.pid, place, attach_after) if attach_after is not None else None
        ending = began + seconds if seconds is not None else float("inf")
        written, pollers = 0, dict[int, CodePoller]()
        try:
            while not drain.ended:
                for message in drain.poll():
                    recorder.write(message, drain.raw(message) if isinstance(message, Sideband) else None)
                    if isinstance(message, Chunk):
                        written += len(message.data)
                pollers |= {pid: s.poller for pid, s in drain._spools.items() if s.poller}
                now = time.monotonic()
                say(f"running: {now - began:.0f} s, {written / 1e6:.0f} MB of trace")
                if now > ending:
                    jvm.send_signal(signal.SIGTERM)
                    ending = now + 30
                if jvm.poll() is not None and not drain.streams:
                    drain.stop()  # it may have ended before it made a trace
                if not drain.backlog:
                    time.sleep(settings.capture.poll_ms / 1000)
            with suppress(subprocess.TimeoutExpired):  # its trace ends a little before it does
                jvm.wait(ENDS_SECONDS)
        finally:
            if jvm.poll() is None:
                jvm.kill()
            statistics = drain.statistics()
            if late is not None:
                late.over = True
            drain.close()
        status = jvm.wait()
    recorder.close()
    faults = (*drain.faults, *((late.error,) if late and late.error else ()))
    if not written:
        words = (directory / "stderr").read_bytes()[-KEPT:].decode("utf-8", "replace").split()
        raise FlowTruthError(f"the JVM (status {status}) ran nothing that is traced: {' '.join(words) or 'no word'}")
    if late is not None and not late.tsc:
        raise FlowTruthError(late.error or f"the JVM ended before {attach_after:g} s had passed: nothing was attached")
    return Run(
        tuple(java), status, time.monotonic() - began, written, statistics["truncated"], late.tsc if late else 0,
        sum(r.spent for r in pollers.values()), sum(r.learning for r in pollers.values()), faults,
    )  # fmt: skip


class _Attach:
    """Loads the agent into a JVM that runs, after a while; meanwhile its rings are drained."""

    def __init__(self, pid: int, place: Path, after: float) -> None:
        self.tsc, self.error, self.over = 0, "", False
        self._pid, self._ring, self._after = pid, place / f"jit-{pid}.ring", after
        threading.Thread(target=self._attach, daemon=True).start()

    def _attach(self) -> None:
        time.sleep(self._after)
        while not self.tsc and not self.over:
            try:
                attach(self._pid, self._ring, timeout=60)
                self.tsc, self.error = tsc.now(), ""
            except (AttachError, BuildError, OSError, ValueError) as error:
                self.error = " ".join(str(error).split())
                time.sleep(0.2)  # too early: a JVM takes no agent before it has started
