"""`streamer record`: a JVM's trace is kept, without looking at it."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from capture.live.drain import Drain
from capture.recording.packed import pack_file
from capture.recording.record import Recorder
from stages.messages import Chunk, Sideband
from streamer import logs
from streamer.cli import Failure
from streamer.config import Settings
from streamer.hub.text import bytes_text
from streamer.lossy import never_fail
from streamer.running import one_line, session_for, tell_on
from streamer.session.session import traces
from streamer.target import launch as target
from streamer.target.process import TargetProcess

PACK_LEVEL = 19


def record(settings: Settings, java: tuple[str, ...], output: Path, name: str, emulate: bool, pack: bool) -> int:
    """Returns the JVM's exit status. Raises Failure."""
    never_fail("stdout")
    console = logs.console()
    tell = tell_on(console)
    if "/" in name or not name:
        raise Failure(f"{name!r} is no name for a file")
    if settings.capture.cpu_budget is not None:
        raise Failure("a CPU budget is kept by a pipeline: streamer run --cpu-budget SHARE --record DIRECTORY")
    with one_line(), session_for(java, settings, tell) as directory:
        argv = target.emulated(java, directory, settings) if emulate else target.native(java, directory, settings)
        drain = Drain(
            directory,
            host=socket.gethostname(),
            chunk_bytes=settings.capture.chunk_kib << 10,
            reread_share=settings.capture.reread_cpu_percent / 100,
            source=None if emulate else target.hardware(directory, settings),
        )
        recorder = Recorder(output, name, options={"java": list(java)})
        with TargetProcess(argv, tell, settings.target.stop_seconds) as jvm, one_line():
            try:
                jvm.start()
                if jvm.started:
                    traces(directory, jvm.pid)
                written = _record(drain, recorder, jvm, console, settings.capture.poll_ms / 1000)
            finally:
                drain.close()
                manifest = recorder.close()
            if pack:
                _pack(output, name)
            for fault in drain.faults:
                tell(fault)
            full = drain.statistics()["truncated"]
            kept = written - recorder.lost_bytes
            tell(f"{bytes_text(kept)} of trace in {manifest}" + (f"; the ring was full {full} times" if full else ""))
            if recorder.cut is not None:
                why = recorder.cut.strerror
                tell(f"the recording is incomplete: {why}; {bytes_text(recorder.lost_bytes)} more were lost")
    return jvm.status


def _record(drain: Drain, recorder: Recorder, jvm: TargetProcess, console: Console, poll_seconds: float) -> int:
    """Until the target has ended, or was left, and all is written. Returns bytes of trace."""
    written = 0
    columns = SpinnerColumn(), TextColumn("recording: {task.fields[size]}  ·  Ctrl-C stops")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", size="0 B")
        while not drain.ended:
            messages = drain.poll()
            for message in messages:
                recorder.write(message, drain.raw(message) if isinstance(message, Sideband) else None)
                if isinstance(message, Chunk):
                    written += len(message.data)
            progress.update(task, size=bytes_text(written))
            if jvm.look() and (jvm.left or not drain.streams):
                drain.stop()  # it may have ended before it made a trace
            if not drain.backlog:
                time.sleep(poll_seconds)
    return written


def _pack(directory: Path, name: str) -> None:
    for path in [directory / f"{name}.perf.data", *directory.glob(f"{name}-*.export")]:
        pack_file(path, PACK_LEVEL)
