# SPDX-License-Identifier: Apache-2.0
"""A kubelet that restarts after it gave a pod its device tokens and before the container starts."""

import contextlib

import pytest
from agreement import views_of_containers, views_of_status
from chaos import kill_kubelet
from harness import unsuccessful, wait_for
from manifests import on_node
from node_faults import agent_of, cdi_read_only, waiting_because
from pausing import pod_paused


@pytest.mark.parametrize("agent_hangs", [False, True], ids=["agent well", "agent hangs"])
def test_a_worker_between_allocation_and_start_gets_its_own_gpus_or_is_replaced(
    kube, system, cluster, judged, refusals, agent_hangs
):
    """The agent cannot write the CDI spec: the kubelet has allocated tokens, nothing starts."""
    node = cluster.nodes()[0]
    kube.submit(on_node(judged.job("neighbor", gpus=3, seconds=20), node))
    kube.wait_phase("neighbor", "Running")
    with contextlib.ExitStack() as faults:
        faults.enter_context(cdi_read_only(cluster, system, node))
        kube.submit(on_node(judged.job("between", gpus=4), node))
        wait_for(lambda: waiting_because(kube, "cannot write CDI"), seconds=60, what="a refusal")
        if agent_hangs:
            faults.enter_context(pod_paused(cluster, agent_of(system, node), "gpupack_agent run"))
        kill_kubelet(cluster, node)
        healthz = f"/api/v1/nodes/{node}/proxy/healthz"
        wait_for(
            lambda: kube.kubectl("get", "--raw", healthz).stdout == "ok",
            seconds=60,
            what="a kubelet",
        )
    kube.submit(on_node(judged.job("after"), node))
    jobs = kube.wait_finished(["neighbor", "between", "after"], seconds=120)
    assert unsuccessful(jobs) == {}
    assert len(jobs["neighbor"]["status"]["attempts"]) == 1
    assert views_of_status(jobs) == views_of_containers(jobs)
    assert refusals() == []
