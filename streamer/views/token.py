"""Who may read, if not everybody who reaches the address: holders of a token.

It stands in a file, never in an argument, which any user of the machine can see. The file is looked at a few times a
second, so that a token can be exchanged; one that cannot be read leaves in force the one before. A hub that was
started again has none before: it lets nobody in, says so (503), and goes on with its work. The token is asked for as
`Authorization: Bearer TOKEN` (RFC 6750), which Prometheus sends, or as the password of any user (RFC 7617), for which a
browser asks its user. `/healthz` is open: it says whether the hub works, and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from pathlib import Path

import structlog

from jvm.inputfile import read_input

SHORTEST, LONGEST = 16, 1024
"""Characters of a token."""
OPEN = frozenset({"/healthz"})
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]{%d,%d}=*" % (SHORTEST, LONGEST))  # RFC 6750, b64token

log = structlog.get_logger()


def state(file: Path) -> tuple[int, int, int]:
    """Another one when the file is another, or was written. Raises OSError."""
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(file: Path) -> bytes:
    """Raises OSError, ValueError."""
    if file.stat().st_mode & 0o026:
        raise ValueError(f"token: {file} may be read or changed by others: chmod 600")
    text = read_input(file, LONGEST + 16).strip()
    if _TOKEN.fullmatch(text) is None:
        raise ValueError(f"token: {file} must hold {SHORTEST} to {LONGEST} letters, digits or -._~+/ and nothing else")
    return hashlib.sha256(text).digest()


class Token:
    """The token in a file; None: everybody may read."""

    def __init__(self, file: Path | None, *, later: bool = False) -> None:
        """Raises ValueError if the file is no good; with `later`, nobody is let in until it is."""
        self._file = file
        self._seen: object = None
        self._digest = b""
        self.closed = False
        """Nobody is let in."""
        if file is not None:
            try:
                self._seen, self._digest = state(file), _read(file)
            except (OSError, ValueError) as error:
                why = f"token: {file}: {error.strerror}" if isinstance(error, OSError) else str(error)
                if not later:
                    raise ValueError(why) from error
                self.closed, self._seen = True, None
                log.error("nobody is let in until the token can be read", why=why)

    def refresh(self) -> None:
        """Takes up what stands in the file now."""
        if self._file is None:
            return
        try:
            seen = state(self._file)
            if seen != self._seen:
                self._digest, self._seen, self.closed = _read(self._file), seen, False
                log.info("another token is in force", file=str(self._file))
        except (OSError, ValueError) as error:
            if self._seen is not None:
                log.warning("the token cannot be read; the one before stays in force", why=str(error))
            self._seen = None

    def admits(self, path: str, authorization: list[bytes]) -> bool:
        """Whether a request with these Authorization headers may have what it asks for."""
        if self._file is None or path in OPEN:
            return True
        if self.closed:
            return False
        scheme, _, given = authorization[0].partition(b" ") if len(authorization) == 1 else (b"", b"", b"")
        given = given.strip()
        if scheme.lower() == b"basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != b"bearer":
            return False
        return hmac.compare_digest(hashlib.sha256(given).digest(), self._digest)
