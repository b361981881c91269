# SPDX-License-Identifier: Apache-2.0
"""In which namespace gpupack is installed, and by which Secrets its servers are trusted.

The chart publishes each release in a ConfigMap of kube-public, found by its label. All users of a
cluster read there and no tenant writes: a Service with our labels in a tenant's own namespace
would get the tokens of those who call it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpupack.errors import ServerNotFound

WHERE: Final = "kube-public"
SELECTOR: Final = "app.kubernetes.io/name=gpupack"
VARIABLE: Final = "GPUPACK_SYSTEM_NAMESPACE"
SERVICE: Final = "gpupack-api"

MAX_LISTED: Final = 10
_NAMESPACE: Final = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Release:
    """An installation of the chart.

    Attributes:
        namespace: where its parts are.
        api_secret: Secret of the REST API's certificate.
        extender_secret: Secret of the plan API's certificate.
    """

    namespace: str
    api_secret: str = "gpupack-api-certificate"  # noqa: S105 - a name
    extender_secret: str = "gpupack-extender-certificate"  # noqa: S105 - a name

    @property
    def api_address(self) -> str:
        """Where pods reach the REST API."""
        return f"https://{SERVICE}.{self.namespace}.svc"


def releases(published: Iterable[Mapping[str, Any]]) -> list[Release]:
    """Read the `data` of the ConfigMaps, by the order of their namespaces.

    What names no namespace is left out.
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
    """Whether a namespace can have this name."""
    return _NAMESPACE.fullmatch(text) is not None


def chosen(found: Iterable[Release], *, namespace: str, option: str) -> Release:
    """The release that is meant.

    Args:
        found: those that are published.
        namespace: which the caller names; empty: the only one. One that is not published is
            taken to have Secrets of the usual names.
        option: how a caller names one, next to the variable, for messages.

    Raises:
        ServerNotFound: there is none, or several and none is named.
    """
    found = list(found)
    if namespace:
        return next((each for each in found if each.namespace == namespace), Release(namespace))
    if not found:
        raise ServerNotFound(
            f"no release of gpupack is published in namespace {WHERE}: install the chart "
            f"(docs/install.md), or name the namespace of an older one by {option} or {VARIABLE}"
        )
    if len(found) > 1:
        named = ", ".join(each.namespace for each in found[:MAX_LISTED])
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        raise ServerNotFound(
            f"gpupack is installed in {len(found)} namespaces ({named}{more}), and a cluster has "
            f"one gpupack: uninstall the others; until then, name one by {option} or {VARIABLE}"
        )
    return found[0]


def unreadable(why: object, *, option: str) -> ServerNotFound:
    """The error where the caller may not list what is published."""
    return ServerNotFound(
        f"the namespace of gpupack is not known, since the ConfigMaps of {WHERE} cannot be listed "
        f"({why}); name it by {option} or {VARIABLE}"
    )
