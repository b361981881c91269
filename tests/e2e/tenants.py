# SPDX-License-Identifier: Apache-2.0
"""Ordinary users: the cluster's `edit` role in one namespace, and nothing else."""

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from fixtures import namespace
from harness import Kube, wait_for

NAME = "tenant"


@dataclasses.dataclass(frozen=True)
class Tenant:
    """User that may edit one namespace."""

    kube: Kube
    """The administrator in that namespace."""

    @property
    def user(self) -> str:
        """The tenant's name as RBAC has it."""
        return f"system:serviceaccount:{self.kube.namespace}:{NAME}"

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess:
        """Run kubectl as the tenant."""
        return self.kube.kubectl(*arguments, f"--as={self.user}", stdin=stdin)

    def create(self, manifest: dict[str, Any], *flags: str) -> str:
        """Return the error of the manifest; nothing if it is accepted."""
        return self.kubectl("create", "-f", "-", *flags, stdin=json.dumps(manifest)).stderr

    def try_to_create(self, manifest: dict[str, Any]) -> str:
        """Return the error of a dry run; nothing if the manifest is accepted."""
        return self.create(manifest, "--dry-run=server")


def settle(kube: Kube) -> Tenant:
    """Make a tenant, and wait until the API server knows of the rights."""
    kube.insist("create", "serviceaccount", NAME)
    account = f"--serviceaccount={kube.namespace}:{NAME}"
    kube.insist("create", "rolebinding", NAME, "--clusterrole=edit", account)
    tenant = Tenant(kube)
    wait_for(
        lambda: tenant.kubectl("auth", "can-i", "create", "pods").returncode == 0,
        seconds=30,
        what=f"{tenant.user} may create pods",
    )
    return tenant


@pytest.fixture(scope="module")
def tenant(cluster, request) -> Iterator[Tenant]:
    """An ordinary user that makes dry-run calls; one for all tests of a module."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    with namespace(cluster, f"{NAME}-{worker}-{request.module.__name__}") as kube:
        yield settle(kube)


@pytest.fixture
def resident(kube) -> Tenant:
    """An ordinary user of this test's own namespace."""
    return settle(kube)
