# SPDX-License-Identifier: Apache-2.0
"""Search for the release from inside a pod, with the token of its service account."""

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from gpupack.cluster import release
from gpupack.cluster.release import Release
from gpupack_kubeclient.kubeconfig.target import server_of_pod

SECONDS: Final = 10.0


def release_in_pod(
    environ: Mapping[str, str], account: Path, *, namespace: str, option: str
) -> Release:
    """Read the release from the API server, but only where no namespace is named.

    Args:
        environ: variables with KUBERNETES_SERVICE_HOST.
        account: folder of the service account's token.
        namespace: namespace that the caller names; empty: none.
        option: how a caller names one, for messages.

    Raises:
        ServerNotFound: the API server does not answer, refuses, or has no release or several.
    """
    if namespace:
        return Release(namespace)
    try:
        answer = httpx.get(
            f"{server_of_pod(environ)}/api/v1/namespaces/{release.PUBLIC_NAMESPACE}/configmaps",
            params={"labelSelector": release.SELECTOR},
            headers={"Authorization": f"Bearer {(account / 'token').read_text().strip()}"},
            verify=ssl.create_default_context(cafile=account / "ca.crt"),
            timeout=SECONDS,
            trust_env=False,
        )
        answer.raise_for_status()
        items: list[dict[str, Any]] = answer.json()["items"]
    except (OSError, httpx.HTTPError, json.JSONDecodeError, KeyError) as error:
        raise release.unreadable_error(error, option=option) from error
    published = release.parse_releases(each.get("data") or {} for each in items)
    return release.choose_release(published, namespace="", option=option)
