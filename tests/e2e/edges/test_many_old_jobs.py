# SPDX-License-Identifier: Apache-2.0
"""Ten thousand ended GPUJobs that no user deletes must not slow other users' jobs."""

import asyncio
import dataclasses
import json
import time

import pytest
from harness import wait_for
from parts import OPERATOR, SCHEDULER, peak_mib, pods_of_part, rolled_out

from gpupack_crds.kinds import GPUJOBS
from gpupack_kubeclient.client import Api

OLD_JOBS = 10_000
WRITERS = 24
MEMORY_LIMIT_MIB = {OPERATOR: 512, SCHEDULER: 1024}
"""The chart's memory limits, at which the kernel kills."""
CONTAINERS = {OPERATOR: "operator", SCHEDULER: "extender"}


@dataclasses.dataclass(frozen=True)
class Figures:
    """Costs that depend on what the API server stores.

    Attributes:
        start_seconds: from apply to Running for a job on an idle cluster; best of three.
        operator_seconds: from the end of the operator until its successor runs a new job.
        extender_seconds: from the end of the scheduler's pod until its successor leads.
        operator_mib: peak memory of the operator since its start.
        extender_mib: peak memory of the extender since its start.
    """

    start_seconds: float
    operator_seconds: float
    extender_seconds: float
    operator_mib: int
    extender_mib: int


@pytest.fixture
def bench(kube, system, judged):
    """Measure the figures with the current contents of the store."""
    numbers = iter(range(100))

    def start_seconds(seconds=60):
        name = f"probe-{next(numbers)}"
        began = time.monotonic()
        kube.submit(judged.job(name, seconds=0.1))
        kube.wait_phase(name, "Running", "Succeeded", seconds=seconds)
        took = time.monotonic() - began
        kube.wait_phase(name, "Succeeded", seconds=seconds)
        return took

    def measure():
        began = time.monotonic()
        restarted(system, OPERATOR)
        start_seconds(seconds=240)
        operator_seconds = time.monotonic() - began
        began = time.monotonic()
        restarted(system, SCHEDULER)
        rolled_out(system, SCHEDULER, seconds=240)
        return Figures(
            extender_seconds=time.monotonic() - began,
            operator_seconds=operator_seconds,
            start_seconds=min(start_seconds() for _ in range(3)),
            operator_mib=max_mib(system, OPERATOR),
            extender_mib=max_mib(system, SCHEDULER),
        )

    return measure


@pytest.fixture
def filled(kube, system, judged, whole):
    """Fill the store with copies of a job that has run; deleting the namespace deletes them."""

    def fill():
        kube.submit(judged.job("pattern", seconds=0.1))
        pattern = kube.wait_phase("pattern", "Succeeded")
        # The operator would plan each copy between its creation and its status.
        system.insist("scale", OPERATOR, "--replicas=0")
        try:
            began = time.monotonic()
            asyncio.run(copy(kube, pattern))
            return time.monotonic() - began
        finally:
            system.insist("scale", OPERATOR, "--replicas=2")

    yield fill
    kube.kubectl("delete", "namespace", kube.namespace, "--wait=false")
    wait_for(lambda: not left(kube), seconds=600, what="the old jobs are deleted")


async def copy(kube, pattern):
    """Write the copies through the API, including their status."""
    numbers = iter(range(OLD_JOBS))

    async def write(api):
        for number in numbers:
            meta = {"name": f"old-{number}", "namespace": kube.namespace}
            body = {key: pattern[key] for key in ("apiVersion", "kind", "spec")}
            body["metadata"] = meta
            made = await api.create(GPUJOBS, body, namespace=kube.namespace)
            meta["resourceVersion"] = made.metadata.resource_version
            await api.replace(
                GPUJOBS,
                meta["name"],
                body | {"status": pattern["status"]},
                namespace=kube.namespace,
                subresource="status",
            )

    async with (
        Api.connect({"KUBECONFIG": str(kube.kubeconfig)}) as api,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(WRITERS):
            group.create_task(write(api))


def restarted(system, workload):
    """Delete a component's pod; its successor may not be ready when this returns."""
    component = workload.rpartition("-")[2]
    selector = f"--selector=app.kubernetes.io/component={component}"
    system.insist("delete", "pod", selector, "--wait")


def max_mib(system, workload):
    """Return VmHWM of a component's process, the largest of its replicas."""
    pods = pods_of_part(system, workload.rpartition("-")[2])
    return max(peak_mib(system, pod["metadata"]["name"], CONTAINERS[workload]) for pod in pods)


def left(kube):
    page = kube.insist("get", "--raw", f"{COLLECTION}{kube.namespace}/gpujobs?limit=1")
    return json.loads(page)["items"]


COLLECTION = "/apis/gpupack.dev/v1beta1/namespaces/"


def test_ten_thousand_old_jobs_slow_no_new_job_down_and_both_parts_start_and_fit_with_them(
    bench, filled, system, tell
):
    empty = bench()
    tell(f"empty store: {empty}")
    tell(f"{OLD_JOBS} jobs written in {filled():.0f} s")
    full = bench()
    tell(f"full store: {full}")
    assert full.start_seconds < 3 * empty.start_seconds + 5
    assert full.operator_seconds < 3 * empty.operator_seconds + 30
    assert full.extender_seconds < 3 * empty.extender_seconds + 15
    assert full.operator_mib < 0.8 * MEMORY_LIMIT_MIB[OPERATOR]
    assert full.extender_mib < 0.8 * MEMORY_LIMIT_MIB[SCHEDULER]
