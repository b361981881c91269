# SPDX-License-Identifier: Apache-2.0
import pytest

from gpupack_httpserver.permission import missing_permission
from gpupack_httpserver.user import User

LIST = {"verb": "list", "group": "gpupack.dev", "resource": "gpujobs"}
PLAN = {"verb": "create", "resource": "gpujobs", "subresource": "plan", "namespace": "team"}


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        (
            {"resourceAttributes": LIST},
            "list gpujobs; a ClusterRoleBinding to the ClusterRole gpupack-view grants it",
        ),
        (
            {"resourceAttributes": LIST | {"namespace": "team"}},
            (
                "list gpujobs in namespace team; a RoleBinding there to the ClusterRole "
                "gpupack-view grants it"
            ),
        ),
        (
            {"nonResourceAttributes": {"verb": "get", "path": "/snapshot"}},
            (
                "get /snapshot; a ClusterRoleBinding to the ClusterRole gpupack-snapshot-reader "
                "grants it"
            ),
        ),
        ({"resourceAttributes": PLAN}, "create gpujobs/plan in namespace team"),
    ],
)
def test_a_missing_permission_is_named_with_the_role_that_grants_it(attributes, says):
    found = missing_permission(User(username="bob"), attributes)
    assert (found.status, str(found)) == (403, f"bob may not {says}")
