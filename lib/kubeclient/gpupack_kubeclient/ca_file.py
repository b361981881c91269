# SPDX-License-Identifier: Apache-2.0
"""The CAs that a client trusts, from a file that may be replaced while the client runs.

Each request gets the context and passes it to aiohttp (`ssl=`), which keeps connections by context.
After a renewal the next request opens a new connection, and requests in progress continue. A
context is never changed, since CAs can be added to a context but not removed.
"""

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
"""Seconds between two checks of the file."""


class CaFile:
    """The last usable content of a file of CA certificates.

    Args:
        path: path of the file (PEM); None: the host's own CAs, which are read once.
        clock: returns monotonic seconds.
        make: makes a context that trusts these CAs (PEM); raises OSError.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
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

    The check is here because a context maker may replace an empty list of CAs by the host's own. A
    file that is being rewritten is empty for a moment, and no other CA may be trusted then.
    """
    pem = path.read_bytes()
    if b"-----BEGIN" not in pem:
        raise OSError("the file holds no certificate")
    return pem


def _context(pem: bytes) -> ssl.SSLContext:
    """Make a context that trusts only these CAs; raises OSError where there is none."""
    return ssl.create_default_context(cadata=pem_text(pem))


def pem_text(pem: bytes) -> str:
    """Return PEM as text that Python's ssl accepts.

    Comments between the certificates may be in any script. OpenSSL skips them.
    """
    return pem.decode("ascii", errors="replace").encode("ascii", errors="replace").decode("ascii")


def is_untrusted(error: BaseException) -> bool:
    """Return whether a call failed because no trusted CA signed the server's certificate.

    Libraries for HTTP wrap the error of TLS, as its cause or only as its context.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None
