# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the cluster suite: the cluster of `make cluster-up`, and namespaces in it."""

import re

import pytest
from harness import STATE, SYSTEM_NAMESPACE, Kube, cluster_kind
from manifests import Judged

from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.driver import ClusterDriver
from gpupack_devcluster.kind import KindCluster
from gpupack_devcluster.settings import ClusterSettings, Paths


def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def cluster() -> ClusterDriver:
    settings = ClusterSettings(paths=Paths(STATE))
    driver = KindCluster(settings) if cluster_kind() == "kind" else Cluster(settings)
    if not driver.kubeconfig.exists():
        pytest.fail("there is no cluster: run `make cluster-up` first")
    return driver


@pytest.fixture(scope="session")
def system(cluster) -> Kube:
    return Kube(kubeconfig=cluster.kubeconfig, namespace=SYSTEM_NAMESPACE)


@pytest.fixture
def kube(cluster, request) -> Kube:
    """The cluster in a namespace of this test's own, deleted afterwards."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:55].strip("-")
    kube = Kube(kubeconfig=cluster.kubeconfig, namespace=words)
    kube.kubectl("delete", "namespace", words, "--ignore-not-found")
    created = kube.kubectl("create", "namespace", words)
    assert created.returncode == 0, created.stderr
    account = kube.kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=30s")
    assert account.returncode == 0, account.stderr
    yield kube
    kube.kubectl("delete", "namespace", words, "--wait=false")


@pytest.fixture
def judged(tmp_path_factory) -> Judged:
    """Builds jobs that lock a host file per GPU."""
    return Judged(locks=str(STATE / "locks"))


@pytest.fixture
def refusals():
    """Locks that were refused during the test; none may be."""
    folder = STATE / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("refused-*"):
        old.unlink()
    return lambda: sorted(path.name for path in folder.glob("refused-*"))
