# SPDX-License-Identifier: Apache-2.0
"""A missing permission in words, with the role that grants it."""

import http
from typing import Any, Final

from gpupack_httpserver.errors import Denied
from gpupack_httpserver.user import User

ROLES: Final = {
    "get gpunodes/summary": "gpupack-api-viewer",
    "update gpunodes/summary": "gpupack-api-administrator",
    "list gpujobs": "gpupack-view",
    "list gpuquotas": "gpupack-view",
    "list gpureservations": "gpupack-view",
    "create gpujobs": "gpupack-edit",
    "list pods": "view",
    "get /metrics": "gpupack-metrics-reader",
    "get /snapshot": "gpupack-snapshot-reader",
    "get /demand-forecast": "gpupack-snapshot-reader",
}
"""ClusterRoles for users, of the chart and of Kubernetes; components have roles of their own."""


def missing_permission(user: User, attributes: dict[str, Any]) -> Denied:
    """Return the error for a caller without a permission.

    Args:
        user: the caller.
        attributes: resourceAttributes or nonResourceAttributes of a SubjectAccessReview.
    """
    (asked,) = attributes.values()
    namespace = asked.get("namespace", "")
    of = asked.get("path") or "/".join(filter(None, map(asked.get, ("resource", "subresource"))))
    permission = f"{asked['verb']} {of}"
    where = f" in namespace {namespace}" if namespace else ""
    text = f"{user.username} may not {permission}{where}"
    if role := ROLES.get(permission):
        binding = "a RoleBinding there" if namespace else "a ClusterRoleBinding"
        text = f"{text}; {binding} to the ClusterRole {role} grants it"
    return Denied(text, status=http.HTTPStatus.FORBIDDEN)
