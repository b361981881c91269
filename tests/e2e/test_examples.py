# SPDX-License-Identifier: Apache-2.0
"""The manifests of examples/ that are no part of the demo run as they stand."""

import datetime as dt
import json

import pytest
import yaml
from harness import DEVICES_ANNOTATION, ROOT
from workload_jobs import RUN_SECONDS, run_example

from gpupack_crds.job_times import checkpointed_at

EXAMPLES = {path.stem: path for path in (ROOT / "examples").glob("*.yaml")}


def example(name):
    return yaml.safe_load(EXAMPLES[name].read_text())


def documents(name):
    """All that one example applies."""
    return list(yaml.safe_load_all(EXAMPLES[name].read_text()))


def secret(name, **values):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "stringData": values,
    }


def load_of(url, *, seconds):
    """The command that asks a server, which is not to spoil the pod's termination message."""
    return [
        "env", "GPUPACK_RESULT_PATH=/dev/null", "python", "-m", "gpupack_workloads",
        "inference-load", "--json", f"--url={url}", f"--seconds={seconds}",
        "--token-file=/run/inference/token",
    ]  # fmt: skip


def shares(pods):
    """Return what each pod holds, as percent and MiB."""
    held = [json.loads(pod["metadata"]["annotations"][DEVICES_ANNOTATION]) for pod in pods]
    return [(device["percent"], device["memoryMiB"]) for (device,) in held]


def test_workers_of_the_share_example_measure_on_their_shares(kube):
    kube.submit(example("share"))
    job = kube.wait_phase("share", "Succeeded", "Failed", seconds=RUN_SECONDS)
    assert [result["verified"] for result in job["status"]["results"]] == [True, True]
    assert job["status"]["gpus"] == "2x25%"
    assert shares(kube.pods("share")) == [(25, 10240)] * 2


def test_the_standalone_pod_example_becomes_ready_with_a_share(kube):
    kube.submit(example("plain-pod"))
    kube.insist("wait", "pod/plain-pod", "--for=condition=Ready", "--timeout=60s")
    assert shares(kube.pods()) == [(30, 20480)]


def test_the_pods_of_the_group_example_run_as_a_gang_and_complete(kube):
    kube.submit(example("pod-group"))
    kube.insist("wait", "job/pod-group", "--for=condition=Complete", "--timeout=120s")
    placed = [pod["metadata"]["annotations"]["gpupack.dev/placement"] for pod in kube.pods()]
    assert len({json.loads(each)["group"]["gang"] for each in placed}) == 1


@pytest.mark.slow
def test_the_inference_example_becomes_available_and_scales(kube):
    kube.submit(secret("inference-token", token="t" * 64), *documents("inference"))
    kube.insist("rollout", "status", "deployment/inference", "--timeout=180s")
    kube.insist("scale", "deployment/inference", "--replicas=3")
    kube.insist("rollout", "status", "deployment/inference", "--timeout=120s")
    assert shares(kube.pods()) == [(20, 16384)] * 3
    asked = load_of("http://127.0.0.1:8000", seconds=2)
    printed = kube.insist("exec", "deployment/inference", "--", *asked)
    metrics = json.loads(printed.splitlines()[-1])["metrics"]
    assert metrics["answered"] == metrics["requests"] > 0
    assert metrics["share_percent"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["burn-in", "collectives"])
def test_a_workload_of_one_worker_and_one_of_a_gang_succeed(kube, name):
    """The others are run by `make test-workloads`, which takes minutes."""
    assert run_example(kube, name) == []


def test_the_checkpoint_example_reports_its_checkpoints(kube):
    kube.submit(*documents("report-checkpoints"))
    job = kube.wait_phase("report-checkpoints", "Succeeded", "Failed", seconds=RUN_SECONDS)
    saved = checkpointed_at(job["metadata"]["annotations"])
    began = dt.datetime.fromisoformat(job["status"]["attempts"][-1]["startedAt"])
    assert (job["status"]["phase"], saved is not None and saved > began) == ("Succeeded", True)


def test_a_burn_in_of_a_faulty_gpu_fails_with_the_cause_in_its_result(kube):
    """No GPU, and no CPU in its place, makes the products that this limit asks for."""
    manifest = example("burn-in")
    manifest["spec"]["workload"]["args"] = ["--limit=min_gemm_tflops=1000000"]
    kube.submit(manifest)
    status = kube.wait_phase("burn-in", "Succeeded", "Failed", seconds=RUN_SECONDS)["status"]
    (result,) = status["results"]
    assert (status["phase"], result["metrics"]["healthy"]) == ("Failed", False)
    assert status["headline"] == result["headline"]
    assert result["headline"].startswith("unhealthy: compute")
    assert status["message"].endswith(f"exit code 3 (Error): {result['headline']}")


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"invalid"}))
def test_every_example_but_the_invalid_one_is_admitted(kube, name):
    done = kube.kubectl("create", "--dry-run=server", "-f", str(EXAMPLES[name]))
    assert done.returncode == 0, done.stderr
