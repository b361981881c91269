# SPDX-License-Identifier: Apache-2.0
"""Decision whether a Secret needs a new certificate, and the reason."""

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpupack_operator.certificates import pair
from gpupack_operator.certificates.certificate_requests import CertificateRequest

RENEWED_PART: Final = 3
"""A certificate is renewed when a third of its validity is left."""


class Reason(enum.StrEnum):
    """Reason for issuing a certificate."""

    MISSING = "the Secret holds no certificate with its key and issuer"
    OTHER_HOST = "the certificate is for another host"
    ENDS = "less than a third of its time is left"


@dataclass(frozen=True, slots=True)
class NewSecretData:
    """New data of a Secret.

    Attributes:
        data: base64 values, as in the API.
        reason: the reason for the new data.
    """

    data: dict[str, str]
    reason: Reason


def renew(
    request: CertificateRequest, data: Mapping[str, str], now: dt.datetime
) -> NewSecretData | None:
    """Return a Secret's new data, or None if the Secret needs none.

    Args:
        request: the certificate that the Secret should hold.
        data: the data that the Secret holds, in base64.
        now: the API server's time.
    """
    held = pair.read(data)
    reason = _reason(request, held, now)
    if reason is None:
        return None
    return NewSecretData(pair.issue(request, now, _reusable_authority(request, data, now)), reason)


def _reason(request: CertificateRequest, held: pair.Pair | None, now: dt.datetime) -> Reason | None:
    if held is None:
        return Reason.MISSING
    if request.host not in held.hosts:
        return Reason.OTHER_HOST
    begun = held.certificate.not_valid_before_utc
    if held.until - now < (held.until - begun) / RENEWED_PART:
        return Reason.ENDS
    return None


def _reusable_authority(
    request: CertificateRequest, data: Mapping[str, str], now: dt.datetime
) -> pair.Authority | None:
    """Return the Secret's authority if it outlives what it would sign; otherwise None."""
    authority = pair.read_authority(data)
    if authority and authority.certificate.not_valid_after_utc >= now + request.validity:
        return authority
    return None
