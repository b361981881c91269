# SPDX-License-Identifier: Apache-2.0
"""Certificates to issue, as the chart lists them."""

import datetime as dt
from typing import Annotated

import msgspec


class CertificateRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A certificate to issue.

    Attributes:
        secret: name of the Secret that holds it.
        service: name of the Service.
        host: name by which callers know the Service, such as gpupack-api.NAMESPACE.svc.
        validity_days: number of days for which the certificate is valid.
    """

    secret: Annotated[str, msgspec.Meta(min_length=1)]
    service: Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
    host: Annotated[str, msgspec.Meta(min_length=1)]
    validity_days: Annotated[int, msgspec.Meta(ge=1, le=36500)]

    @property
    def validity(self) -> dt.timedelta:
        """Time for which the certificate is valid."""
        return dt.timedelta(days=self.validity_days)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All names by which callers reach the Service.

        The last one is for `kubectl port-forward`.
        """
        return self.host, f"{self.host}.cluster.local", "localhost"


def parse_certificate_requests(text: str) -> tuple[CertificateRequest, ...]:
    """Parse the list from JSON.

    Raises:
        ValueError: the text is not such a list; the message says where it is wrong.
    """
    return msgspec.json.decode(text, type=tuple[CertificateRequest, ...])
