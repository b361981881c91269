# SPDX-License-Identifier: Apache-2.0
"""GPUs that are new, or well again, get a burn-in alone before they get other work.

The GPUs are simulated, and what is measured is a CPU; the pods that measure, and all that follows
from what they say, are not. Of the dev cluster's models, only one is tested.
"""

import json

import pytest
import yaml
from harness import SYSTEM_NAMESPACE, placed, wait_for
from simulated_layout import inventory_of, write
from test_gpu_faults import found, graded

pytestmark = [pytest.mark.alone, pytest.mark.slow]

NAMESPACE = "gpupack-acceptance"
MODEL = "NVIDIA L4"


@pytest.fixture
def node(idle, cluster):
    return cluster.nodes()[0]


@pytest.fixture
def inventory(system, node):
    """Set how many GPUs of the tested model the node has, and no others, until the test ends."""
    before, everywhere = inventory_of(system)

    def has(count):
        gpu = {"model": MODEL, "memoryMiB": 23034, "count": count}
        write(
            system, node, yaml.safe_dump({"nodes": [{"match": node, "devices": [gpu]}, everywhere]})
        )

    yield has
    write(system, node, before)
    wait_for(
        lambda: MODEL not in models(system, node), seconds=60, what="the node has its GPUs again"
    )
    system.insist("delete", "gpunode", node)
    wait_for(
        lambda: {each["health"] for each in devices(system, node)} == {"Healthy"},
        seconds=60,
        what="the node has its own GPUs alone",
    )


def devices(system, node):
    """Return the devices of the GPUNode, which may be missing."""
    there = [each for each in system.gpunodes() if each["metadata"]["name"] == node]
    return there[0].get("status", {}).get("devices", []) if there else []


def models(system, node):
    return {each["model"] for each in devices(system, node)}


def phases(system, node):
    entries = found(system, node).get("spec", {}).get("quarantine", [])
    return {each["gpu"][-1]: each["phase"] for each in entries}


def outcomes(system, node):
    measured = found(system, node).get("status", {}).get("measured", [])
    return {each["gpu"][-1]: each["outcome"] for each in measured}


def acceptance_jobs(system):
    """Return the GPUJobs that test GPUs, by test."""
    done = system.kubectl("get", "gpujobs", f"--namespace={NAMESPACE}", "--output=json")
    return {
        item["metadata"]["name"].rpartition("-")[0]: item
        for item in json.loads(done.stdout)["items"]
    }


@pytest.fixture
def burn_in_wants(system):
    """Sets arguments of the burn-in, as a changed value of the chart does; as before afterwards."""
    path = "deployment/gpupack-operator"
    query = (
        "jsonpath={.spec.template.spec.containers[0].env[?(@.name=='GPUPACK_ACCEPTANCE')].value}"
    )
    before = system.insist("get", path, "--output", query)

    def set_to(value):
        system.insist("set", "env", path, f"GPUPACK_ACCEPTANCE={value}")
        system.insist("rollout", "status", path, "--timeout=60s")

    yield lambda *args: set_to(json.dumps(json.loads(before) | {"args": args}))
    set_to(before)


def test_gpus_get_a_burn_in_before_their_first_work_and_after_a_failure(
    kube, system, node, inventory, judged, burn_in_wants
):
    inventory(2)
    wait_for(lambda: MODEL in models(system, node), seconds=60, what="the new GPUs are found")
    system.insist("delete", "gpunode", node)
    wait_for(lambda: len(devices(system, node)) == 2, seconds=60, what="its old GPUs are forgotten")
    kube.submit(judged.job("waits", gpus=2, gpuModels=["L4"]))
    wait_for(lambda: phases(system, node), seconds=60, what="they are to be tested")
    assert kube.phase("waits") == "Pending"
    wait_for(lambda: len(outcomes(system, node)) == 2, seconds=60, what="they are measured")
    assert outcomes(system, node) == {"0": "Passed", "1": "Passed"}
    first = found(system, node)["status"]["measured"][0]
    # Of a CPU hundredths of a TFLOP/s, which may be rounded to nothing.
    assert ("tflops" in first, first["memoryGbPerS"] > 0, first["simulated"]) == (True,) * 3
    kube.wait_phase("waits", "Succeeded", seconds=60)
    assert {each.node for each in placed(kube.gpujob("waits"))} == {node}
    together = found(system, node)["status"]["allReduce"]
    assert (together["gpus"], together["busGbPerS"] > 0) == (2, True)
    jobs = acceptance_jobs(system)
    assert (jobs["burn-in"]["spec"]["workers"], jobs["all-reduce"]["spec"]["gpus"]) == (2, 2)

    burn_in_wants("--limit=min_gemm_tflops=1e9")
    inventory(1)
    wait_for(lambda: graded(system, node, 1)[0] == "Failed", seconds=60, what="one is lost")
    wait_for(lambda: phases(system, node), seconds=60, what="it is quarantined")
    inventory(2)
    wait_for(
        lambda: outcomes(system, node)["1"] == "Failed", seconds=60, what="its burn-in finds fault"
    )
    wait_for(lambda: phases(system, node)["1"] == "Quarantined", seconds=60, what="it stays out")
    (entry,) = found(system, node)["spec"]["quarantine"]
    assert "min_gemm_tflops" in entry["cause"]
    assert entry["relapses"] >= 1
    about = f"--field-selector=involvedObject.name={node}"
    events = system.kubectl("get", "events", "--namespace=default", about).stdout
    assert "is tested before it is used" in events


def test_users_with_rights_in_other_namespaces_create_no_gpujobs_where_burn_ins_run(kube):
    user = f"--as=system:serviceaccount:{kube.namespace}:default"
    done = kube.kubectl("auth", "can-i", "create", "gpujobs", f"--namespace={NAMESPACE}", user)
    assert done.stdout.strip() == "no"
    operator = f"--as=system:serviceaccount:{SYSTEM_NAMESPACE}:gpupack-operator"
    for namespace, answer in ((NAMESPACE, "yes"), (kube.namespace, "no")):
        where = f"--namespace={namespace}"
        done = kube.kubectl("auth", "can-i", "create", "gpujobs", where, operator)
        assert done.stdout.strip() == answer
