"""A certificate and its key, in two files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from streamer.views.token import state


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: Path
    key: Path

    @classmethod
    def of(cls, certificate: Path | None, key: Path | None) -> Pair | None:
        """None: no TLS. Raises ValueError if the pair is no good."""
        if certificate is None and key is None:
            return None
        if certificate is None or key is None:
            raise ValueError("TLS needs both a certificate and its key (web.tls_certificate, web.tls_key)")
        pair = cls(certificate, key)
        try:
            pair.state()
            pair.fits()
        except OSError as error:  # ssl.SSLError is one
            raise ValueError(f"TLS: {certificate} and {key}: {error.strerror or error}") from error
        return pair

    def state(self) -> tuple[object, object]:
        """Another one when a file is another, or was written. Raises OSError."""
        return state(self.certificate), state(self.key)

    def fits(self) -> None:
        """Raises OSError unless they are a pair. A key with a passphrase would ask for it: that is one too many."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key, password=_no_passphrase)


def _no_passphrase() -> str:
    raise OSError("the key has a passphrase, and nobody is there to type it")
