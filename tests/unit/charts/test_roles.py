# SPDX-License-Identifier: Apache-2.0
"""The roles that refusals name exist, and grant the permission."""

import pytest

from gpupack_httpserver.permission import ROLES

OWN = [(permission, role) for permission, role in ROLES.items() if role != "view"]


@pytest.mark.parametrize(("permission", "role"), OWN)
def test_the_role_of_a_refusal_grants_the_permission(render, permission, role):
    verb, of = permission.split(" ")
    rules = render().objects["ClusterRole", role]["rules"]
    granted = [each for each in rules if verb in each["verbs"]]
    assert any(
        of in (*each.get("resources", ()), *each.get("nonResourceURLs", ())) for each in granted
    )
