# SPDX-License-Identifier: Apache-2.0
"""Whether a Secret needs a new certificate, and why."""

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpupack_operator.certificates import pair
from gpupack_operator.certificates.wanted import Wanted

RENEWED_PART: Final = 3
"""A certificate is renewed when a third of its time is left."""


class Reason(enum.StrEnum):
    """Why a certificate is issued."""

    MISSING = "the Secret holds no certificate with its key and issuer"
    OTHER_HOST = "the certificate is for another host"
    ENDS = "less than a third of its time is left"


@dataclass(frozen=True, slots=True)
class Issued:
    """New data of a Secret.

    Attributes:
        data: as the API has it, in base64.
        reason: why it is new.
    """

    data: dict[str, str]
    reason: Reason


def renewed(wanted: Wanted, data: Mapping[str, str], now: dt.datetime) -> Issued | None:
    """Decide; None: the Secret stays as it is.

    Args:
        wanted: what it should hold.
        data: what it holds, in base64.
        now: by the API server's clock.
    """
    held = pair.read(data)
    reason = _reason(wanted, held, now)
    if reason is None:
        return None
    return Issued(pair.issue(wanted, now, _lasting(wanted, held, now)), reason)


def _reason(wanted: Wanted, held: pair.Pair | None, now: dt.datetime) -> Reason | None:
    if held is None:
        return Reason.MISSING
    if wanted.host not in held.hosts:
        return Reason.OTHER_HOST
    begun = held.certificate.not_valid_before_utc
    if held.until - now < (held.until - begun) / RENEWED_PART:
        return Reason.ENDS
    return None


def _lasting(wanted: Wanted, held: pair.Pair | None, now: dt.datetime) -> pair.Authority | None:
    """The authority, where it is good for as long as what it signs."""
    authority = held.authority if held else None
    if authority and authority.certificate.not_valid_after_utc >= now + wanted.validity:
        return authority
    return None
