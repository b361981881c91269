# SPDX-License-Identifier: Apache-2.0
"""The check that pods serve the certificates of their Secrets."""

import datetime as dt
from collections.abc import Iterator
from typing import Final

from gpupack_cli.doctor.cluster_state import ClusterState, ServedCertificate
from gpupack_cli.doctor.finding import Finding, failed, ok, skipped, warning
from gpupack_cli.figures import count

CHECK: Final = "served certificates"


def renewals(seen: ClusterState) -> Iterator[Finding]:
    """Check that each pod serves its Secret's certificate, and that it has not expired."""
    if seen.served.refused or not seen.served.items:
        yield skipped(CHECK, seen.served.refused or "no pod that serves one was seen")
        return
    known = [each for each in seen.served.items if not each.error]
    for said in dict.fromkeys(each.error for each in seen.served.items if each.error):
        pods = [each.pod for each in seen.served.items if each.error == said]
        what = f"{len(pods)} pods were not checked, such as {pods[0]}"
        yield skipped(
            CHECK, f"{what if len(pods) > 1 else f'pod {pods[0]} was not checked'}: {said}"
        )
    for each in known:
        if each.in_secret != each.in_handshake:
            yield _differs(each, seen.now)
        elif (ended := _end(each.in_handshake)) <= seen.now:
            yield failed(
                CHECK,
                f"pod {each.pod} serves a certificate that expired on {ended:%Y-%m-%d}",
                fix=f"issue the certificate in Secret {each.secret} again (docs/install.md, "
                "Certificates); the pod serves the new one within two minutes",
            )
    same = sum(each.in_secret == each.in_handshake for each in known)
    if known and same == len(known):
        yield ok(CHECK, f"{count(same, 'pod')} checked: each serves its Secret's certificate")


def _differs(each: ServedCertificate, now: dt.datetime) -> Finding:
    served, held = _end(each.in_handshake), _end(each.in_secret)
    form = "%Y-%m-%d" if served.date() != held.date() else "%Y-%m-%d at %H:%M:%S"
    message = (
        f"pod {each.pod} serves a certificate that expires on {served:{form}}, and Secret "
        f"{each.secret} has another one, which expires on {held:{form}}"
    )
    fix = (
        "a changed Secret reaches the pod within two minutes; after that the pod's log has the "
        "reason why the new certificate cannot be served (a wrong key, or it has expired)"
    )
    if served <= now:
        return failed(CHECK, message, fix=fix)
    return warning(CHECK, message, fix=fix)


def _end(certificate: bytes) -> dt.datetime:
    from cryptography import x509  # noqa: PLC0415 - 0.1 s, only for this check

    return x509.load_der_x509_certificate(certificate).not_valid_after_utc
