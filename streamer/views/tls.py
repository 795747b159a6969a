"""TLS of the page, /metrics and /api: a certificate with its key, taken up anew when the files have changed.

New connections get the new certificate; a pair that does not fit together, as while one of the files is being written,
leaves in force the one before.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog
from hypercorn.config import Config

from streamer.views.certificate import Pair

log = structlog.get_logger()


class ServerConfig(Config):
    """Hypercorn's; where there is a certificate, every socket speaks TLS. Raises ValueError if the pair is no good."""

    def __init__(self, certificate: Path | None, key: Path | None) -> None:
        super().__init__()
        self._context: ssl.SSLContext | None = None
        self._pair = Pair.of(certificate, key)
        if self._pair is None:
            return
        self._seen = self._pair.state()
        self.certfile, self.keyfile = str(certificate), str(key)
        self.alpn_protocols = ["http/1.1"]

    def create_ssl_context(self) -> ssl.SSLContext | None:
        self._context = super().create_ssl_context()
        return self._context

    def refresh(self) -> None:
        """Takes up what stands in the files now."""
        if self._context is None or self._pair is None:
            return
        try:
            seen = self._pair.state()
            if seen == self._seen:
                return
            self._seen = seen
            self._pair.fits()
            self._context.load_cert_chain(self._pair.certificate, self._pair.key)
            log.info("another certificate is in force", file=str(self._pair.certificate))
        except OSError as error:
            log.warning("the certificate cannot be used; the one before stays in force", why=str(error))
