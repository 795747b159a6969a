"""A process that takes attach commands as HotSpot does (attachListener_posix.cpp), for tests that need no JVM: another
user's, with its own root directory if wanted.

    fakejvm.py LIBJVM ROOT CWD UID GID GROUP...

ROOT may be empty. It answers each command with its own words, one a line, after code 0.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path


def asked(pid: int) -> bool:
    """Is there a file that asks to listen, by root or this user? The first that is there decides."""
    for name in (f".attach_pid{pid}", f"/tmp/.attach_pid{pid}"):
        with suppress(OSError):
            return Path(name).stat().st_uid in (0, os.geteuid())
    return False


def listen(pid: int) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    new = Path(f"/tmp/.java_pid{pid}.tmp")
    new.unlink(missing_ok=True)
    server.bind(str(new))
    new.chmod(0o600)
    server.listen()
    new.rename(new.with_suffix(""))
    return server


def answer(server: socket.socket) -> None:
    link = server.accept()[0]
    with link:
        said = b""
        while said.count(b"\0") < 5 and (part := link.recv(4096)):
            said += part
        link.sendall(b"0\n" + said.replace(b"\0", b"\n"))


def main(library: str, root: str, cwd: str, uid: str, gid: str, *groups: str) -> None:
    with Path(library).open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    wakeup, other = socket.socketpair()
    for end in (wakeup, other):
        end.setblocking(False)
    signal.set_wakeup_fd(other.fileno())
    signal.signal(signal.SIGQUIT, lambda *_: None)
    if root:
        os.chroot(root)
    os.chdir(cwd)
    os.setgroups([int(group) for group in groups])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))
    print("ready", flush=True)
    server: socket.socket | None = None
    while mapped:
        ready = select.select([wakeup, *([server] if server else []), sys.stdin], [], [])[0]
        if sys.stdin in ready:
            return
        if wakeup in ready:
            wakeup.recv(64)
            if server is None and asked(os.getpid()):
                server = listen(os.getpid())
        elif server is not None:
            answer(server)


if __name__ == "__main__":
    main(*sys.argv[1:])
