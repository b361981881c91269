# SPDX-License-Identifier: Apache-2.0
"""Pods and Secrets of gangs whose processes mpirun starts."""

import base64
import dataclasses

import pytest

from gpupack_crds import names
from gpupack_crds.worker_pods import WorkerPod
from gpupack_operator.errors import TemplateInvalid
from gpupack_operator.manifests import mpi
from gpupack_operator.manifests.pod import PodDefaults, template

DEFAULTS = PodDefaults(workload_image="gpupack/workloads:1", launcher_image="gpupack/agent:1")
BY_MPIRUN = {"backend": "mpi"}


def made(build, user=None, defaults=DEFAULTS, **spec):
    job = build.gpujob(distributed=BY_MPIRUN, template=user, **spec)
    found = template(job, user or {}, attempt=2, defaults=defaults)["spec"]
    return found, found["containers"][0]


def own(**fields):
    return {"spec": {"containers": [{"name": "train", "image": "own:1", **fields}]}}


def test_the_launcher_precedes_the_command_of_each_rank(build):
    user = own(command=["python", "train.py"], args=["--epochs", "2"])
    _, worker = made(build, user, workers=2, gpus=4)
    ranks = ["python", "train.py", "--epochs", "2"]
    assert worker["command"] == [mpi.LAUNCHER, "run", "--", *ranks]
    assert "args" not in worker


def test_each_rank_runs_a_built_in_workload(build):
    _, worker = made(build, workers=2, workload={"name": "mpi", "args": ["--sweeps=5"]})
    workload = ["python", "-m", "gpupack_workloads", "mpi", "--sweeps=5"]
    assert worker["command"] == [mpi.LAUNCHER, "run", "--", *workload]


def test_other_containers_stay_as_they_are(build):
    worker = {"name": "worker", "image": "own:1", "command": ["a.out"]}
    helper = {"name": "helper", "image": "own:1", "command": ["helper"]}
    found, _ = made(build, {"spec": {"containers": [worker, helper]}})
    assert found["containers"][1]["command"] == ["helper"]


def test_a_template_without_a_command_is_refused_for_mpirun(build):
    with pytest.raises(TemplateInvalid, match="container train has no command"):
        made(build, own(args=["train.py"]))


def test_a_missing_launcher_image_is_named_in_the_error(build):
    without = dataclasses.replace(DEFAULTS, launcher_image="")
    with pytest.raises(TemplateInvalid, match="GPUPACK_LAUNCHER_IMAGE"):
        made(build, own(command=["a.out"]), defaults=without)


def test_an_unprivileged_init_container_copies_the_launcher(build):
    user = own(command=["a.out"])
    user["spec"]["initContainers"] = [{"name": "fetch", "image": "own:1"}]
    found, worker = made(build, user)
    first, second = found["initContainers"]
    assert (first["image"], second["name"]) == ("gpupack/agent:1", "fetch")
    assert first["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "readOnlyRootFilesystem": True,
    }
    read_only = {each["name"] for each in worker["volumeMounts"] if each.get("readOnly")}
    assert read_only == {mpi.LAUNCHER_VOLUME, mpi.KEY_VOLUME}


def test_a_worker_has_the_key_of_its_attempt_as_a_file(build):
    found, worker = made(build, own(command=["a.out"]), workers=2)
    volumes = {each["name"]: each for each in found["volumes"]}
    secret = volumes[mpi.KEY_VOLUME]["secret"]["secretName"]
    assert secret == names.mpi_secret(build.UID, attempt=2) == "gpupack-mpi-uid-of-train-2"
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert env["GPUPACK_MPI_KEY_FILE"] == mpi.KEY_PATH
    assert env["GPUPACK_MPI_HOSTS"] == "train-2-{}.train.team.svc"
    assert env["GPUPACK_BACKEND"] == "mpi"


def test_a_single_worker_needs_no_host_name(build):
    _, worker = made(build, own(command=["a.out"]), gpus=4)
    env = {each["name"]: each.get("value") for each in worker["env"]}
    assert (env["GPUPACK_MPI_HOSTS"], env["GPUPACK_PROCESSES_PER_WORKER"]) == ("127.0.0.1", "4")


def test_gangs_with_other_backends_have_no_launcher(build):
    job = build.gpujob(workers=2, workload={"name": "matmul"})
    found = template(job, {}, attempt=1, defaults=DEFAULTS)["spec"]
    assert "initContainers" not in found
    assert not any(each["name"].startswith("GPUPACK_MPI") for each in found["containers"][0]["env"])


def test_the_secret_is_immutable_and_owned_by_the_gpujob(build):
    found = mpi.secret(build.gpujob(), attempt=3, key=b"k" * 32)
    assert (found["type"], found["immutable"]) == ("gpupack.dev/mpi", True)
    assert base64.b64decode(found["data"]["key"]) == b"k" * 32
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("GPUJob", build.UID, True)


def test_a_variable_lists_the_workers_of_each_shared_pod(build):
    job = build.gpujob(distributed=BY_MPIRUN, workers=3, gpus=1, podPerWorker=False)
    user = own(command=["a.out"])
    made = template(job, user, attempt=1, defaults=DEFAULTS)
    pods = (WorkerPod("a", (0, 2)), WorkerPod("b", (1,)))
    found = mpi.with_pods(made, pods, container="train")["spec"]["containers"][0]
    assert {"name": mpi.PODS, "value": "0,2;1"} in found["env"]
    assert mpi.with_pods(made, (), container="train") == made
