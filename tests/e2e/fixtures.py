# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests on the cluster of `make cluster-up`: namespaces in it, and the judge.

Tests run in parallel, each in namespaces of its own. A test that kills components or nodes, fills
the cluster, or counts free GPUs is marked `@pytest.mark.alone`: it runs after the others, one at a
time, on an idle cluster.
"""

import contextlib
import json
import re
import time
import zlib

import api_calls
import pytest
from harness import STATE, SYSTEM_NAMESPACE, Kube, cluster_kind, simulated_memory_mib, wait_for
from manifests import Judged
from parts import PARTS, all_up

from gpupack_devcluster.cluster import Cluster
from gpupack_devcluster.driver import ClusterDriver
from gpupack_devcluster.kind import KindCluster
from gpupack_devcluster.settings import ClusterSettings, Paths

__all__ = [
    "cluster",
    "cohort",
    "fresh",
    "idle",
    "idle_where_alone",
    "judged",
    "kube",
    "others",
    "peaks",
    "pytest_collection_modifyitems",
    "refusals",
    "system",
    "tell",
]
"""Names that a suite of the cluster imports into its conftest.py."""

NAMESPACE_LETTERS = 55
LIVING = "gpujobs.gpupack.dev,deployments.apps,statefulsets.apps,jobs.batch,pods"
KINDS_OF_USE = ("Namespace", "GPUJob", "Pod", "GPUNode")
USE = "namespaces,gpujobs,pods,gpunodes"
LOCKS = STATE / "locks"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark every test here as a cluster test, and one that uses `idle` as `alone`.

    Slow tests go first, so that they do not run by themselves at the end.
    """
    for item in items:
        item.add_marker(pytest.mark.e2e)
        if "idle" in item.fixturenames:
            item.add_marker(pytest.mark.alone)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True)
def idle_where_alone(request):
    """Give a test that is marked `alone` an idle cluster."""
    if request.node.get_closest_marker("alone"):
        request.getfixturevalue("idle")


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
    with namespace(cluster, request.node.name) as kube:
        yield kube


@pytest.fixture
def cohort(kube):
    """Create a GPUCohort named after the test's namespace, whose jobs may be preempted at once."""
    spec = {"minRunSeconds": 0}
    kube.submit(
        {
            "apiVersion": "gpupack.dev/v1beta1",
            "kind": "GPUCohort",
            "metadata": {"name": kube.namespace},
            "spec": spec,
        }
    )
    yield kube.namespace
    kube.delete("gpucohort", kube.namespace)


@pytest.fixture
def others(cluster, request):
    """Create further namespaces for this test, deleted afterwards."""
    with contextlib.ExitStack() as stack:
        yield lambda name: stack.enter_context(namespace(cluster, f"{name}-{request.node.name}"))


@contextlib.contextmanager
def namespace(cluster, name):
    """Return a valid namespace name that resembles this text."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if len(words) > NAMESPACE_LETTERS:
        # Two cases of one test may differ in their last letters alone, and run in parallel.
        words = f"{words[: NAMESPACE_LETTERS - 9]}-{zlib.crc32(name.encode()):08x}"
    kube = Kube(kubeconfig=cluster.kubeconfig, namespace=words)
    calls = api_calls.calls(cluster.kubeconfig)
    if calls is None or not calls.make_namespace(words):
        kube.insist("delete", "namespace", words, "--ignore-not-found")
        kube.insist("create", "namespace", words)
        kube.insist("wait", "serviceaccount/default", "--for=create", "--timeout=30s")
    yield kube
    # The namespace controller takes ten seconds to delete the GPUJobs.
    kube.kubectl("delete", LIVING, "--all", "--wait=false", "--grace-period=1")
    if calls is None or not calls.delete_namespace(words):
        kube.insist("delete", "namespace", words, "--wait=false", "--ignore-not-found")


@pytest.fixture
def idle(system):
    """Wait until all components run and no GPU is held.

    A namespace that is being deleted can lose its pods before its GPUJobs, which hold their places.
    The end of the namespace itself is not awaited: it takes ten seconds more.
    """
    all_up(system)
    items = json.loads(system.insist("get", USE, "--all-namespaces", "--output=json"))["items"]
    if not in_use(items):
        return
    wait_for(lambda: not leaving(system), seconds=180, what="no GPUJob is being deleted")
    wait_for(lambda: not holders(system), seconds=180, what="no pod holds a GPU")
    wait_for(lambda: not lingering(system), seconds=60, what="no process of a gone pod is left")


@pytest.fixture
def fresh(system, idle):
    """Replace the pods of all components: the kubelet delays the restart of a pod that was killed
    often."""
    for kind in PARTS:
        system.insist("rollout", "restart", kind)
    all_up(system)


@pytest.fixture
def tell(capsys):
    """Print figures past pytest's capture."""

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)

    return say


def in_use(items):
    """Return whether any of these objects of the kinds in USE keeps a cluster from being idle."""
    kinds = {kind: [item for item in items if item["kind"] == kind] for kind in KINDS_OF_USE}
    namespaces, jobs, pods, nodes = kinds.values()
    return bool(_leaving(namespaces, jobs) or _holders(pods) or _lingering(nodes))


def leaving(system):
    """Return the GPUJobs of namespaces that are being deleted."""
    namespaces = json.loads(system.insist("get", "namespaces", "--output=json"))["items"]
    jobs = json.loads(system.insist("get", "gpujobs", "--all-namespaces", "--output=json"))["items"]
    return _leaving(namespaces, jobs)


def _leaving(namespaces, jobs):
    going = {
        found["metadata"]["name"]
        for found in namespaces
        if "deletionTimestamp" in found["metadata"]
    }
    return [job["metadata"]["name"] for job in jobs if job["metadata"]["namespace"] in going]


def holders(system):
    """Return the pods of all namespaces that request GPUs and have not ended."""
    pods = json.loads(system.insist("get", "pods", "--all-namespaces", "--output=json"))["items"]
    return _holders(pods)


def _holders(pods):
    return [
        pod["metadata"]["name"]
        for pod in pods
        if "gpupack.dev/gpu" in json.dumps(pod["spec"]["containers"])
        and pod["status"].get("phase") not in {"Succeeded", "Failed"}
    ]


def lingering(system):
    """Return pods that are gone from the API and still hold GPUs, as agents report."""
    return _lingering(json.loads(system.insist("get", "gpunodes", "--output=json"))["items"])


def _lingering(nodes):
    return [
        holder["name"]
        for node in nodes
        if node["status"].get("mode", "owned") == "owned"
        for holder in node["status"].get("holders", ())
    ]


@pytest.fixture
def judged(tmp_path_factory) -> Judged:
    """A builder of workloads that lock a host file per GPU."""
    return Judged(locks=str(LOCKS), gpu_memory_mib=simulated_memory_mib())


@pytest.fixture
def refusals():
    """The judge's refusals since the test began, with reasons; there may be none.

    Tests that run in parallel are judged, too: a refusal fails all of them.
    """
    began = time.time()
    return lambda: sorted(
        f"{path.name}: {path.read_text()}"
        for path in LOCKS.glob("refused-*")
        if path.stat().st_mtime >= began
    )


@pytest.fixture
def peaks(idle):
    """The most that shares held of each GPU at once during the test.

    The judge in each container writes it once it holds its share, which is after the pod runs: wait
    for it (`wait_equal`).
    """
    LOCKS.mkdir(parents=True, exist_ok=True)
    for old in LOCKS.glob("peak-*"):
        old.unlink()
    return lambda: {
        path.name.removeprefix("peak-"): json.loads(path.read_text())
        for path in LOCKS.glob("peak-GPU*")
        if path.suffix != ".tmp"
    }
