"""The life of the target JVM: one owner starts it, passes signals on to it, waits for it, and never ends it.

The JVM goes on, even if we fail. A fault of ours that reaches `TargetProcess.__exit__` is told, then the JVM is waited
for as if there were no tracing, and its exit status is ours. A signal that is meant to end us is meant for the JVM, as
if it stood there without us:

    SIGTERM, SIGINT   once: passed on, and the JVM has `patience` seconds to end; twice, or when these are over: passed
                      on, and we end without it (in order, with a summary); once more: at once
    SIGHUP, SIGQUIT   passed on, no more (the JVM has a use for them: a thread dump, a handler of the program's)

Signals ignored when we began stay ignored, by us and by the JVM, which inherits that (nohup, `&` in a script). As
process 1 of a container we have no end without the JVM: the kernel would kill it.

Everything that can happen is an event on one epoll descriptor: the JVM's end on its pidfd, a signal on an eventfd. So
a loop without trio (`look`, `wait`) and a task (`attend`) are the same.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from types import FrameType, TracebackType
from typing import Self

import click
import structlog
import trio

from streamer.target.capabilities import without_capabilities

_ENDING = (signal.SIGTERM, signal.SIGINT)
_PASSED_ON = (*_ENDING, signal.SIGHUP, signal.SIGQUIT)

log = structlog.get_logger()


class TargetProcess:
    def __init__(self, argv: Sequence[str], tell: Callable[[str], None], patience: float) -> None:
        """`tell` shows a line to the user. `patience`: seconds that the JVM has to end after the first signal."""
        self._argv, self._tell = list(argv), tell
        self._patience = float("inf") if os.getpid() == 1 else patience
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._endings: list[int] = []  # signals that are meant to end us, as they came
        self._heard = 0  # of these, how many have been answered
        self._deadline = float("inf")
        self._left = False
        self._status: int | None = None
        self._cleanup = ExitStack()
        self.over = trio.Event()
        """Set by `attend` when the JVM has ended, will not be started, or was left."""
        self.told = trio.Event()
        """Set by `attend` when a signal came that is meant to end us."""

    def __enter__(self) -> Self:
        self._epoll = self._cleanup.enter_context(select.epoll())
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._cleanup.callback(os.close, self._bell)
        self._epoll.register(self._bell, select.EPOLLIN)
        for number in _PASSED_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._cleanup.callback(signal.signal, number, signal.signal(number, self._on_signal))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        """Waits for the JVM if it runs. An error of ours is told and goes no further, unless the JVM was never
        started."""
        with self._cleanup:
            ours = isinstance(error, Exception) and self._process is not None
            if ours:
                self._confess(error)
            if ours or kind is None:
                self.wait()
        return ours

    def _confess(self, error: BaseException | None) -> None:
        if isinstance(error, click.ClickException):
            text = error.format_message()
        else:
            log.error("tracing failed", exc_info=error)
            text = f"tracing failed: {type(error).__name__}: {error}"
        self._tell(f"streamer: {text}" + ("" if self.is_over else "; the program runs on"))

    def start(self) -> None:
        """Unless a signal came first. Raises OSError."""
        if self.is_over:
            return
        self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, preexec_fn=without_capabilities())
        self._pidfd = os.pidfd_open(self._process.pid)
        self._cleanup.callback(os.close, self._pidfd)
        self._epoll.register(self._pidfd, select.EPOLLIN)
        for number in self._endings:  # between the question above and now
            self._pass_on(number)

    # ---- the result

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        """0 before it is started."""
        return self._process.pid if self._process is not None else 0

    @property
    def left(self) -> bool:
        """It did not end when it was told to; it runs on without us."""
        return self._left

    @property
    def ended(self) -> bool:
        return self._status is not None

    @property
    def is_over(self) -> bool:
        """There is nothing to wait for any more."""
        return self.ended or self._left or (self._process is None and bool(self._endings))

    @property
    def status(self) -> int:
        """The exit status as a shell says it, 128 + n for signal n; that of a JVM which was left or never started is
        the signal's that ended us."""
        status = self._status if self._status is not None else -(self._endings or [0])[0]
        return status if status >= 0 else 128 - status

    # ---- signals

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        """Between any two bytecodes of the main thread: passes it on; `look` does the rest."""
        self._pass_on(number)
        if number in _ENDING or self._process is None:
            self._endings.append(number)
            os.eventfd_write(self._bell, 1)

    def _pass_on(self, number: int) -> None:
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def look(self) -> bool:
        """Answers the events so far; is it over? Raises KeyboardInterrupt when we are to end at once."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        if self._process is not None and self._status is None and self._process.poll() is not None:
            self._status = self._process.returncode
            self._epoll.unregister(self._pidfd)
        while self._heard < len(self._endings):
            self._heard += 1
            if self._heard == 1:
                self._deadline = time.monotonic() + self._patience
                self._tell(
                    "stopping: counting what was drained (again: at once)"
                    if self.is_over
                    else f"stopping: waiting for the program, {self._patience:g} s at most (again: not at all)"
                )
            elif self.is_over:
                raise KeyboardInterrupt
            else:
                self._leave("")
        if not self.is_over and time.monotonic() >= self._deadline:
            self._leave(f" in {self._patience:g} s")
        return self.is_over

    def _leave(self, when: str) -> None:
        self._left = True
        self._tell(f"the program has not ended{when}: process {self.pid} runs on, without tracing")

    def wait(self) -> None:
        """Until it is over."""
        while self._process is not None and not self.look():
            left = self._deadline - time.monotonic()
            self._epoll.poll(max(0.0, left) if left < float("inf") else None)

    async def attend(self) -> None:
        """For ever. Raises KeyboardInterrupt when we are to end at once."""
        while True:
            if self.look():
                self.over.set()
            if self._heard:
                self.told.set()
            with trio.move_on_after(float("inf") if self.is_over else max(0.0, self._deadline - time.monotonic())):
                await trio.lowlevel.wait_readable(self._epoll.fileno())
