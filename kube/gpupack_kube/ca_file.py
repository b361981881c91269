# SPDX-License-Identifier: Apache-2.0
"""By which CAs a client knows a server, from a file that may be replaced while the client runs.

A request asks for the context and hands it to aiohttp (`ssl=`), which keeps connections by context:
after a renewal the next request connects again, and what is under way goes on. A context is never
changed, since CAs can be added to one and not taken out.
"""

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
"""Between two looks at the file."""


class CaFile:
    """The last usable content of a file of CA certificates.

    Args:
        path: of the file (PEM); None: the host's own CAs, which are read once.
        clock: monotonic seconds.
        make: makes a context that trusts these CAs (PEM); raises OSError.

    Raises:
        OSError: it cannot be read, or holds no certificate.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        make: Callable[[bytes], ssl.SSLContext] | None = None,
    ) -> None:
        self._path, self._clock, self._make = path, clock, make or _context
        self._looked_at = clock()
        self._trusted = _certificates(path) if path else b""
        self._context = self._make(self._trusted) if path else ssl.create_default_context()
        self._rejected = ""

    def context(self) -> ssl.SSLContext:
        """Return the context for the next request."""
        if self._path is not None and self._clock() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._clock()
            self._look(self._path)
        return self._context

    def _look(self, path: Path) -> None:
        try:
            found = _certificates(path)
            if found != self._trusted:
                self._context, self._trusted = self._make(found), found
                log.info("%s: other CA certificates are trusted from now on", path)
        except OSError as error:
            if str(error) != self._rejected:
                log.error(  # noqa: TRY400 - no bug
                    "%s: no CA certificates; the last ones are trusted: %s", path, error
                )
            self._rejected = str(error)
            return
        self._rejected = ""


def _certificates(path: Path) -> bytes:
    """Read the file; raises OSError where it holds no certificate.

    It is checked here, since a maker of contexts may take no CAs for the host's own: a file that is
    being written again is empty for a moment, in which no other CA may be trusted.
    """
    pem = path.read_bytes()
    if b"-----BEGIN" not in pem:
        raise OSError("the file holds no certificate")
    return pem


def _context(pem: bytes) -> ssl.SSLContext:
    """Trust these CAs and no others; raises OSError where there is none."""
    return ssl.create_default_context(cadata=pem_text(pem))


def pem_text(pem: bytes) -> str:
    """Return PEM as Python's ssl takes it.

    Next to certificates there may be remarks in any script, which OpenSSL passes over.
    """
    return pem.decode("ascii", errors="replace").encode("ascii", errors="replace").decode("ascii")
