# SPDX-License-Identifier: Apache-2.0
"""The check that pods serve the certificates of their Secrets."""

import datetime as dt
from collections.abc import Iterator
from typing import Final

from gpupack_cli.doctor.finding import Finding, failed, ok, skipped, warning
from gpupack_cli.doctor.observed import Observed, Served

CHECK: Final = "served certificates"


def renewals(seen: Observed) -> Iterator[Finding]:
    """Check that each pod serves its Secret's certificate, and that it has not expired."""
    if seen.served.refused or not seen.served.items:
        yield skipped(CHECK, seen.served.refused or "no pod that serves one was seen")
        return
    known = [each for each in seen.served.items if not each.said]
    for said in dict.fromkeys(each.said for each in seen.served.items if each.said):
        pods = [each.pod for each in seen.served.items if each.said == said]
        yield skipped(CHECK, f"{len(pods)} pods were not asked, such as {pods[0]}: {said}")
    for each in known:
        if each.held != each.shown:
            yield _differs(each, seen.now)
        elif (ended := _end(each.shown)) <= seen.now:
            yield failed(
                CHECK,
                f"pod {each.pod} serves a certificate that ended on {ended:%Y-%m-%d}",
                fix=f"renew the certificate in Secret {each.secret}; the pod serves the new one "
                "within two minutes",
            )
    same = sum(each.held == each.shown for each in known)
    if known and same == len(known):
        yield ok(CHECK, f"{same} pods that were asked serve what their Secrets hold")


def _differs(each: Served, now: dt.datetime) -> Finding:
    served, held = _end(each.shown), _end(each.held)
    message = (
        f"pod {each.pod} serves a certificate that ends on {served:%Y-%m-%d}, and Secret "
        f"{each.secret} holds another one, which ends on {held:%Y-%m-%d}"
    )
    fix = (
        "a Secret that has just changed reaches the pod within two minutes; after that the pod's "
        "log says why it cannot be served (a key that does not fit, an end that has passed)"
    )
    if served <= now:
        return failed(CHECK, message, fix=fix)
    return warning(CHECK, message, fix=fix)


def _end(certificate: bytes) -> dt.datetime:
    from cryptography import x509  # noqa: PLC0415 - 0.1 s, only for this check

    return x509.load_der_x509_certificate(certificate).not_valid_after_utc
