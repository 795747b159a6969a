"""TLS of the page, /metrics and /api: a certificate with its key, taken up anew when the files have changed.

New connections get the new certificate; a pair that does not fit together, as while one of the files is being written,
leaves in force the one before.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog
from hypercorn.config import Config

from streamer.views.token import state

log = structlog.get_logger()


class ServerConfig(Config):
    """Hypercorn's; where there is a certificate, every socket speaks TLS. Raises ValueError if the pair is no good."""

    def __init__(self, certificate: Path | None, key: Path | None) -> None:
        super().__init__()
        self._context: ssl.SSLContext | None = None
        if certificate is None and key is None:
            return
        if certificate is None or key is None:
            raise ValueError("TLS needs both a certificate and its key (web.tls_certificate, web.tls_key)")
        self._files = certificate, key
        try:
            self._seen: object = [state(file) for file in self._files]
            _fits(certificate, key)
        except OSError as error:  # ssl.SSLError is one
            raise ValueError(f"TLS: {certificate} and {key}: {error.strerror or error}") from error
        self.certfile, self.keyfile = map(str, self._files)
        self.alpn_protocols = ["http/1.1"]

    def create_ssl_context(self) -> ssl.SSLContext | None:
        self._context = super().create_ssl_context()
        return self._context

    def refresh(self) -> None:
        """Takes up what stands in the files now."""
        if self._context is None:
            return
        try:
            seen = [state(file) for file in self._files]
            if seen == self._seen:
                return
            self._seen = seen
            _fits(*self._files)
            self._context.load_cert_chain(*self._files)
            log.info("another certificate is in force", file=str(self._files[0]))
        except OSError as error:
            log.warning("the certificate cannot be used; the one before stays in force", why=str(error))


def _fits(certificate: Path, key: Path) -> None:
    """Raises OSError unless they are a pair. A key with a passphrase would ask for it: that is one too many."""
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password=_no_passphrase)


def _no_passphrase() -> str:
    raise OSError("the key has a passphrase, and nobody is there to type it")
