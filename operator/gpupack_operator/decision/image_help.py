# SPDX-License-Identifier: Apache-2.0
"""Help for an image that a registry refuses to serve without credentials."""

from collections.abc import Sequence
from typing import Final

REFUSALS: Final = (
    "401 unauthorized",
    "403 forbidden",
    "authorization failed",
    "authentication required",
    "pull access denied",
    "insufficient_scope",
    "no basic auth credentials",
    "unauthorized:",
    "denied:",
)
"""Parts of such refusals by containerd, CRI-O and registries, in lower case."""


def image_help(said: str, *, namespace: str, secrets: Sequence[str] | None) -> str:
    """Return text to append to the kubelet's message; empty: credentials are not the cause.

    Args:
        said: the kubelet's message.
        namespace: the pod's namespace, from which its pull secrets are read.
        secrets: names of the pull secrets that the pod has by the chart's values; None: it has no
            image of gpupack's, and so none of these.
    """
    if not any(mark in said.lower() for mark in REFUSALS):
        return ""
    if secrets is None:
        return (
            f"; if the registry requires credentials, name a Secret of namespace {namespace} in "
            "spec.template.spec.imagePullSecrets"
        )
    if not secrets:
        return (
            "; if the registry requires credentials, an administrator names a Secret in the "
            f"chart's image.pullSecrets, and creates it in namespace {namespace}"
        )
    named = " or ".join(secrets)
    return (
        f"; the pod uses the credentials of Secret {named} of namespace {namespace}; check that it "
        f"exists and is correct; kubectl --namespace={namespace} create secret docker-registry "
        f"{secrets[0]} --docker-server=REGISTRY --docker-username=USER "
        "--docker-password=PASSWORD creates it"
    )
