"""A piece of work done with another user's rights alone.

Where root acts in places that another user can write, a check of a path says nothing about the next call: the user may
exchange the path's target in between. So the work is done in a child process that is that user for good; the user could
make it do only things that the user may do anyway. The kernel keeps the user from looking into the child, or from
tracing it: a process that changes its user id is not dumpable (prctl(2), PR_SET_DUMPABLE).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

_SAID, _RAISED = b"+", b"-"


class NotDoneError(Exception):
    """The work raised an error, or was not done in time; one line."""


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def is_us(self) -> bool:
        return self.uid == os.geteuid()


def as_user(user: User, work: Callable[[], str], seconds: float, most: int) -> str:
    """The result of `work`, at most `most` bytes, done as `user`: in this process if that is us. `work` may use open
    descriptors. Every exception of it becomes NotDoneError, as does a child that has not ended after `seconds`. Needs
    root, and a process without other threads, if it is another user."""
    if user.is_us():
        return work()
    deadline = time.monotonic() + seconds
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(user, work, into)
    os.close(into)
    try:
        said = _read(out, deadline, most)
    finally:
        os.close(out)
        os.kill(pid, signal.SIGKILL)  # it ended, or is late: not reaped yet, so the pid is its own
        os.waitpid(pid, 0)
    kind, text = said[:1], said[1:].decode(errors="replace")
    if kind == _SAID:
        return text
    raise NotDoneError(text if kind == _RAISED else "the process that acts for the JVM's user was ended")


def _read(out: int, deadline: float, most: int) -> bytes:
    said = bytearray()
    poll = select.poll()
    poll.register(out, select.POLLIN)
    while True:
        if not poll.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
            raise NotDoneError("not done in time")
        part = os.read(out, 1 << 16)
        if not part:
            return bytes(said)
        said += part
        if len(said) > most:
            raise NotDoneError(f"more than {most} bytes of answer")


def _child(user: User, work: Callable[[], str], into: int) -> NoReturn:
    try:
        os.umask(0o077)
        os.setgroups(user.groups)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
        said = _SAID + work().encode()
    except BaseException as error:
        said = _RAISED + (str(error) or type(error).__name__).encode()
    try:
        while said:
            said = said[os.write(into, said) :]
    finally:
        os._exit(0)
