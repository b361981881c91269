# SPDX-License-Identifier: Apache-2.0
"""A node with AMD's GPUs next to nodes with NVIDIA's: jobs go to the model that they request.

AMD's plugin is a stand-in for it, and its labeller's labels are written by us: there are no such
GPUs.
"""

import json

import pytest
from admission import PLAIN, asking, pod, variable
from harness import placed, wait_for
from observed_node import GPUS, THEIRS, job, last_node

AMD = "amd.com/gpu"
IDS = ("0000:05:00.0", "0000:26:00.0", "0000:46:00.0", "0000:65:00.0")
LABELS = {
    "amd.com/gpu.device-id": "74a1",
    "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
    "amd.com/gpu.vram": "192G",
}
MODEL = "AMD Instinct MI300X OAM"
MIB = 196608

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stand(cluster, system):
    """The last node, with the labels of AMD's labeller; afterwards it is ours again."""
    with last_node(cluster, system) as stand:
        written = [f"{key}={value}" for key, value in LABELS.items()]
        stand.kube.insist("label", "node", stand.node, "--overwrite", *written)
        try:
            yield stand
        finally:
            stand.stop("amd", AMD)
            stand.kube.insist("label", "node", stand.node, *(f"{key}-" for key in LABELS))


@pytest.fixture(autouse=True)
def served_and_not_held(idle, stand):
    """Wait until AMD's stand-in serves, its GPUs are known, and no pod holds them."""
    stand.serve("amd", AMD, IDS)
    stand.wait_observed()
    wait_for(lambda: len(theirs(stand)) == len(IDS), seconds=60, what="AMD's GPUs are known")
    wait_for(lambda: stand.holders() == {}, seconds=60, what="no pod holds the observed GPUs")


def theirs(stand):
    return [each for each in stand.gpunode()["devices"] if each["resource"] == AMD]


def said(kube, name):
    return kube.gpujob(name).get("status", {}).get("message", "")


def test_the_models_of_another_vendors_gpus_come_from_node_labels(stand):
    assert {each["uuid"] for each in theirs(stand)} == set(IDS)
    assert {(each["model"], each["memoryMiB"]) for each in theirs(stand)} == {(MODEL, MIB)}
    assert stand.gpunode()["resources"] == [AMD]


def test_a_job_for_a_model_of_amds_lands_there_and_one_for_nvidias_does_not(kube, stand):
    others = len(kube.nodes()) - 1
    kube.submit(
        job("amd", gpus=2, resourceName=AMD, gpuModels=["mi300x 192gb"]),
        job("nvidia", workers=others, gpus=GPUS, gpuModels=["H100-80GB"]),
    )
    amd = kube.wait_phase("amd", "Running", seconds=120)
    assert [(place.node, place.devices) for place in placed(amd)] == [(stand.node, ())]
    nvidia = kube.wait_phase("nvidia", "Running", seconds=120)
    assert stand.node not in {place.node for place in placed(nvidia)}
    (worker,) = kube.pods("amd")
    environment = {
        each["name"]: each.get("value") for each in worker["spec"]["containers"][0]["env"]
    }
    assert environment["GPUPACK_VENDOR"] == "amd"
    assert environment["GPUPACK_VISIBLE_DEVICES_VARIABLE"] == "ROCR_VISIBLE_DEVICES"
    wait_for(lambda: len(stand.holders()) == 1, seconds=60, what="the holder of AMD's GPUs")
    (held,) = stand.holders().values()
    assert len(set(held) & set(IDS)) == 2


def test_a_model_that_the_node_has_not_is_refused_with_the_one_that_it_has(kube, stand):
    kube.submit(job("larger", gpus=1, resourceName=AMD, gpuModels=["MI325X"]))
    wait_for(lambda: "model is not MI325X" in said(kube, "larger"), seconds=60, what="refused")
    assert f"nearest: {MODEL} ({MIB} MiB)" in said(kube, "larger")


def test_two_vendors_on_one_node_serve_each_their_own(kube, stand):
    try:
        stand.start()
        both = [THEIRS, AMD]
        wait_for(lambda: stand.gpunode()["resources"] == both, seconds=60, what="both are observed")
        kube.submit(job("nvidia", gpus=GPUS, resourceName=THEIRS, gpuModels=["H100"]))
        kube.submit(job("amd", gpus=len(IDS), resourceName=AMD, gpuModels=["MI300X"]))
        for name in ("nvidia", "amd"):
            ran = placed(kube.wait_phase(name, "Running", seconds=120))
            assert [(place.node, place.devices) for place in ran] == [(stand.node, ())]
        kube.submit(job("more", gpus=1, resourceName=AMD))
        wait_for(lambda: "fewer than 1 free GPU" in said(kube, "more"), seconds=60, what="refused")
    finally:
        stand.stop()


def test_no_pod_gets_gpus_by_the_variable_of_amds_runtime(kube):
    def dry_run(body):
        return kube.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))

    everything = {"env": variable("AMD_VISIBLE_DEVICES")}
    for bad in (PLAIN | everything, asking(limits={AMD: "1"}, **everything)):
        refused = dry_run(pod(bad))
        assert refused.returncode != 0
        assert "remove AMD_VISIBLE_DEVICES from container" in refused.stderr
    nothing = dry_run(pod(PLAIN | {"env": variable("AMD_VISIBLE_DEVICES", "void")}))
    assert nothing.returncode == 0, nothing.stderr
