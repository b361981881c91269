# SPDX-License-Identifier: Apache-2.0
"""The credentials of one request."""

import dataclasses
import datetime as dt
from typing import Final


class NoCredentials(Exception):
    """Credentials are not available; the text says from where, why, and what to do."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """A header, a client certificate, both or neither.

    Attributes:
        authorization: value of the header; empty: there is none.
        certificate: PEM of the client's certificate; empty: there is none.
        key: PEM of its private key.
        until: when the credentials expire; None: unknown.
    """

    authorization: str = dataclasses.field(default="", repr=False)
    certificate: bytes = b""
    key: bytes = dataclasses.field(default=b"", repr=False)
    until: dt.datetime | None = None

    @property
    def bearer(self) -> str:
        """The token; empty: there is none."""
        scheme, _, token = self.authorization.partition(" ")
        return token if scheme == "Bearer" else ""


NOTHING: Final = Presented()
