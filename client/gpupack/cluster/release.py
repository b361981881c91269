# SPDX-License-Identifier: Apache-2.0
"""The namespace where gpupack is installed, and the Secrets with its servers' certificates.

The chart publishes each release in a ConfigMap of kube-public, which is found by its label. All
users of a cluster can read there and no tenant can write: otherwise a Service with gpupack's labels
in a tenant's own namespace would get the callers' tokens.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpupack.errors import ServerNotFound

PUBLIC_NAMESPACE: Final = "kube-public"
SELECTOR: Final = "app.kubernetes.io/name=gpupack"
VARIABLE: Final = "GPUPACK_SYSTEM_NAMESPACE"
SERVICE: Final = "gpupack-api"

MAX_LISTED: Final = 10
_NAMESPACE: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Release:
    """An installation of the chart.

    Attributes:
        namespace: namespace of its components.
        api_secret: Secret with the REST API's certificate.
        extender_secret: Secret with the plan API's certificate.
    """

    namespace: str
    api_secret: str = "gpupack-api-certificate"  # noqa: S105 - a name
    extender_secret: str = "gpupack-extender-certificate"  # noqa: S105 - a name

    @property
    def api_address(self) -> str:
        """Address of the REST API for pods."""
        return f"https://{SERVICE}.{self.namespace}.svc"


def parse_releases(published: Iterable[Mapping[str, Any]]) -> list[Release]:
    """Parse the `data` of the ConfigMaps, in the order of their namespaces.

    Data without a namespace is left out.
    """
    found = dict[str, Release]()
    for data in published:
        namespace = str(data.get("namespace", ""))
        if not is_namespace(namespace):
            continue
        named = {"api_secret": "apiCertificate", "extender_secret": "extenderCertificate"}
        secrets = {field: str(data[key]) for field, key in named.items() if data.get(key)}
        found[namespace] = Release(namespace, **secrets)
    return [found[name] for name in sorted(found)]


def is_namespace(text: str) -> bool:
    """Return whether a namespace can have this name."""
    return _NAMESPACE.fullmatch(text) is not None


def choose_release(found: Iterable[Release], *, namespace: str, option: str) -> Release:
    """Return the release to use.

    Args:
        found: the published releases.
        namespace: namespace that the caller names; empty: the only one. One that is not published
            is assumed to have Secrets with the default names.
        option: how a caller names one, next to the variable, for messages.

    Raises:
        ServerNotFound: there is none, or there are several and none is named.
    """
    found = list(found)
    if namespace:
        return next((each for each in found if each.namespace == namespace), Release(namespace))
    if not found:
        raise ServerNotFound(
            f"no release of gpupack is published in namespace {PUBLIC_NAMESPACE}: install the "
            f"chart (docs/install.md), or name an older one's namespace by {option} or {VARIABLE}"
        )
    if len(found) > 1:
        named = ", ".join(each.namespace for each in found[:MAX_LISTED])
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        raise ServerNotFound(
            f"gpupack is installed in {len(found)} namespaces ({named}{more}); uninstall all but "
            f"one, or select one by {option} or {VARIABLE}"
        )
    return found[0]


def unreadable_error(why: object, *, option: str) -> ServerNotFound:
    """Return the error for a caller that may not list the releases."""
    return ServerNotFound(
        "the namespace of gpupack is not known, since the ConfigMaps of "
        f"{PUBLIC_NAMESPACE} cannot be listed ({why}); name it by {option} or {VARIABLE}"
    )
