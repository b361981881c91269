# SPDX-License-Identifier: Apache-2.0
"""Checks of the Secrets that the release needs, and of the certificates in them."""

import base64
import binascii
import datetime as dt
from collections.abc import Iterator
from typing import Final

from gpupack_cli.doctor.cluster_state import ClusterState
from gpupack_cli.doctor.finding import Finding, failed, ok, skipped, warning
from gpupack_cli.doctor.needed_secrets import NAME_LABEL, NeededSecret, needed_secrets
from gpupack_cli.doctor.views import Certificates
from gpupack_cli.figures import count

ISSUER: Final = "gpupack-certificates"
SOON: Final = dt.timedelta(days=30)


def secrets(seen: ClusterState) -> Iterator[Finding]:
    """Check that every Secret that the release needs exists, with the keys that are used."""
    check = "Secrets"
    if refused := seen.deployments.refused or seen.daemon_sets.refused or seen.secrets.refused:
        yield skipped(check, refused)
        return
    needed = _needed(seen)
    problems = [finding for each in needed if (finding := _problem(check, seen, each))]
    yield from problems
    if not problems:
        yield ok(check, f"{count(len(needed), 'Secret')} of the release: each has its keys")


def certificates(seen: ClusterState) -> Iterator[Finding]:
    """Check that no certificate that a component serves expires soon."""
    check = "certificates"
    if seen.secrets.refused and not seen.secrets.items:
        yield skipped(check, seen.secrets.refused)
        return
    serving = {each.name for each in _needed(seen) if each.serves}
    found = [secret for secret in seen.secrets.items if secret.metadata.name in serving]
    if not found:
        yield skipped(check, "no Secret with a certificate was found")
    for secret in found:
        yield _certificate(seen, secret)
    issued = [
        each.metadata.name for each in found if each.metadata.labels.get(NAME_LABEL) == "gpupack"
    ]
    if issued and not seen.deployments.refused and seen.deployments.named(ISSUER) is None:
        yield failed(
            check,
            f"Deployment {ISSUER} is missing: nothing issues or renews {', '.join(issued)}",
            fix="run `helm upgrade` of the chart again",
        )


def _needed(seen: ClusterState) -> tuple[NeededSecret, ...]:
    parts = (*seen.deployments.items, *seen.daemon_sets.items)
    return needed_secrets(parts, seen.accounts.items, seen.release)


def _problem(check: str, seen: ClusterState, needed: NeededSecret) -> Finding | None:
    """Return what a Secret lacks; its certificate is checked by `certificates`."""
    name, used = needed.name, f" ({', '.join(needed.parts)})" if needed.parts else ""
    secret = seen.secrets.named(name)
    if secret is None and needed.pulls:
        return warning(
            check,
            f"Secret {name}, for pulls of images, is missing{used}",
            fix="create it in the release's namespace, or correct image.pullSecrets",
        )
    if secret is None:
        return failed(
            check,
            f"Secret {name} is missing{used}: pods that use it cannot start",
            fix="if the chart creates it, run `helm upgrade` of the chart again; create your own "
            "(existingSecret, monitoring.tokenSecret)",
        )
    if lacking := sorted(key for key in needed.keys if not secret.data.get(key)):
        return failed(
            check,
            f"Secret {name} has no {', '.join(lacking)}{used}",
            fix=f"see {_issuer_logs(seen)}, which fills Secrets of certificates; fill your own "
            "(existingSecret, monitoring.tokenSecret)",
        )
    return None


def _certificate(seen: ClusterState, secret: Certificates) -> Finding:
    check, name, now = "certificates", secret.metadata.name, seen.now
    remove = """'{"data":{"tls.crt":null,"tls.key":null}}'"""
    renew = (
        f"gpupack renews certificates that it issues: see {_issuer_logs(seen)}; to issue this one "
        f"again by the same authority: kubectl -n {seen.release.namespace} patch secret {name} "
        f"--type=merge -p {remove} (docs/install.md, Certificates); renew your own (existingSecret)"
    )
    until = _until(secret)
    if until is None:
        return failed(check, f"Secret {name} has no readable certificate", fix=renew)
    left = until - now
    if left <= dt.timedelta():
        return failed(check, f"the certificate in {name} expired on {until:%Y-%m-%d}", fix=renew)
    if left < SOON:
        return warning(check, f"the certificate in {name} expires on {until:%Y-%m-%d}", fix=renew)
    return ok(check, f"the certificate in {name} is valid until {until:%Y-%m-%d}")


def _issuer_logs(seen: ClusterState) -> str:
    return f"kubectl -n {seen.release.namespace} logs deployment/{ISSUER}"


def _until(secret: Certificates) -> dt.datetime | None:
    """Return when the first of its certificates expires."""
    from cryptography import x509  # noqa: PLC0415 - 0.1 s, only for this check

    ends = []
    for key in ("ca.crt", "tls.crt"):
        try:
            text = base64.b64decode(secret.data.get(key, ""), validate=True)
            found = x509.load_pem_x509_certificates(text) if text else []
        except (binascii.Error, ValueError):
            return None
        ends += [each.not_valid_after_utc for each in found]
    return min(ends, default=None)
