# SPDX-License-Identifier: Apache-2.0
"""Direct calls of the API server, which replace most kubectl processes of the suite.

A kubectl takes a tenth of a second of processor time to start, tests that wait look several times a
second, and each test makes a namespace. Calls that are unknown here, or that get no answer, are
left to kubectl.
"""

import atexit
import contextlib
import functools
import http
import pathlib
import ssl
import tempfile
import time
from base64 import b64decode
from typing import Any

import httpx
import yaml

OURS = "/apis/gpupack.dev/v1beta1"
CORE = "/api/v1"
SECONDS = 10.0

PLACES = {
    "gpujob": (OURS, "gpujobs"),
    "gpujobs": (OURS, "gpujobs"),
    "pod": (CORE, "pods"),
    "pods": (CORE, "pods"),
    "events": (CORE, "events"),
    "deployment": ("/apis/apps/v1", "deployments"),
    "statefulset": ("/apis/apps/v1", "statefulsets"),
}
"""API and plural of namespaced kinds, by the names that kubectl's `get` takes."""

WIDE_PLACES = {"gpunodes": (OURS, "gpunodes"), "nodes": (CORE, "nodes"), "node": (CORE, "nodes")}
"""API and plural of kinds without namespaces."""

QUERIES = {"--selector": "labelSelector", "--field-selector": "fieldSelector"}


class ApiCalls:
    """Calls as the user of a kubeconfig with a client certificate.

    Args:
        kubeconfig: its content.
    """

    def __init__(self, kubeconfig: dict[str, Any]) -> None:
        cluster = kubeconfig["clusters"][0]["cluster"]
        user = kubeconfig["users"][0]["user"]
        context = ssl.create_default_context(
            cadata=b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as file:
            file.write(b64decode(user["client-certificate-data"]) + b"\n")
            file.write(b64decode(user["client-key-data"]))
            file.flush()
            context.load_cert_chain(file.name)
        self._client = httpx.Client(
            base_url=cluster["server"], verify=context, timeout=SECONDS, trust_env=False
        )
        atexit.register(self._client.close)

    def get(self, namespace: str, kind: str, *arguments: str) -> dict[str, Any] | None:
        """Return what `kubectl get` prints as JSON; None means that kubectl must be used."""
        asked = request(namespace, kind, *arguments)
        if asked is None:
            return None
        path, query = asked
        try:
            answer = self._client.get(path, params=query)
        except httpx.HTTPError:
            return None
        return as_kubectl(answer.json()) if answer.status_code == http.HTTPStatus.OK else None

    def make_namespace(self, name: str) -> bool:
        """Return whether the namespace is new and has its service account; False leaves it to
        kubectl."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        account = f"{CORE}/namespaces/{name}/serviceaccounts/default"
        until = time.monotonic() + SECONDS
        with contextlib.suppress(httpx.HTTPError):
            made = self._client.post(f"{CORE}/namespaces", json=body)
            while made.is_success and time.monotonic() < until:
                if self._client.get(account).is_success:
                    return True
                time.sleep(0.05)
        return False

    def delete_namespace(self, name: str) -> bool:
        """Return whether the namespace is being deleted; False leaves it to kubectl."""
        with contextlib.suppress(httpx.HTTPError):
            return self._client.delete(f"{CORE}/namespaces/{name}").is_success
        return False


def request(namespace: str, kind: str, *arguments: str) -> tuple[str, dict[str, str]] | None:
    """Return path and query for `kubectl get`; None if they are unknown here."""
    if kind in PLACES:
        api, plural = PLACES[kind]
        path = f"{api}/namespaces/{namespace}/{plural}"
    elif kind in WIDE_PLACES:
        api, plural = WIDE_PLACES[kind]
        path = f"{api}/{plural}"
    else:
        return None
    query = {}
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if flag in QUERIES:
            query[QUERIES[flag]] = value
        elif argument.startswith("-"):
            return None
        else:
            path = f"{path}/{argument}"
    return path, query


def as_kubectl(found: dict[str, Any]) -> dict[str, Any]:
    """Format an answer as kubectl does: each item has its kind, and none has managed fields."""
    items = found.get("items", [found])
    for item in items:
        item["metadata"].pop("managedFields", None)
        if item is not found:
            item.setdefault("kind", found["kind"].removesuffix("List"))
            item.setdefault("apiVersion", found["apiVersion"])
    return found


def calls(kubeconfig: pathlib.Path) -> ApiCalls | None:
    """Return the calls for a kubeconfig, cached by content; None without a client certificate."""
    with contextlib.suppress(OSError):
        return _calls(kubeconfig.read_text())
    return None


@functools.cache
def _calls(text: str) -> ApiCalls | None:
    try:
        return ApiCalls(yaml.safe_load(text))
    except (KeyError, TypeError, IndexError, ValueError, yaml.YAMLError):
        return None
