# SPDX-License-Identifier: Apache-2.0
"""Checks of `make demo-gpu` on the GPUs that containers saw."""

import gpu_jobs
import pytest

GPUS = [{"uuid": "GPU-a", "model": "NVIDIA H200"}, {"uuid": "GPU-b", "model": "NVIDIA H200"}]
NOTHING = {"nodes": [], "opened": [], "driver": False, "cuda": [], "nvml": [], "uid": 0}


def sees(uuid, *, opened=(0, 255), **changes):
    return {
        "cuda": [uuid],
        "nvml": [uuid],
        "variable": uuid,
        "smi": f"GPU 0: (UUID: {uuid})",
        "opened": list(opened),
        **changes,
    }


class Bench:
    """Returns the container output that the test gives."""

    def __init__(self, views, *, placed=("GPU-a", "GPU-b"), results=(), spans=()):
        self.views = views
        self.placed = placed
        self.results = results
        self.spans = dict(spans)

    def view(self, pod):
        return self.views[pod]

    def pods_of(self, job):
        return {index: (pod,) for index, pod in enumerate(self.views)}

    def span_of(self, job):
        return self.spans[job]

    def finished(self, *names):
        status = {"placement": [{"gpus": self.placed}], "results": self.results}
        return [{"metadata": {"name": name}, "status": status} for name in names]


def test_a_container_without_gpus_must_find_no_gpu():
    gpu_jobs.check_stranger(Bench({"stranger": NOTHING}))
    for found in ({"opened": [0]}, {"driver": True}, {"nodes": ["/dev/nvidia0"]}):
        with pytest.raises(gpu_jobs.Broken, match="without GPUs"):
            gpu_jobs.check_stranger(Bench({"stranger": NOTHING | found}))


def test_a_container_without_gpus_must_have_tried_as_root():
    with pytest.raises(gpu_jobs.Broken, match="as user 65532"):
        gpu_jobs.check_stranger(Bench({"stranger": NOTHING | {"uid": 65532}}))


def test_each_container_sees_the_one_gpu_that_it_was_given():
    views = {"p0": sees("GPU-a"), "p1": sees("GPU-b", opened=(1, 255))}
    gpu_jobs.check_viewers(Bench(views), GPUS)


@pytest.mark.parametrize(
    "wrong",
    [
        sees("GPU-a"),
        sees("GPU-b", cuda=["GPU-a", "GPU-b"]),
        sees("GPU-b", nvml=[]),
        sees("GPU-b", opened=(0, 1, 255)),
        sees("GPU-b", smi="not found"),
    ],
)
def test_another_gpu_more_gpus_or_none_fail_the_check(wrong):
    with pytest.raises(gpu_jobs.Broken, match="worker 1"):
        gpu_jobs.check_viewers(Bench({"p0": sees("GPU-a"), "p1": wrong}), GPUS)


def test_two_workers_on_one_gpu_fail_the_check():
    views = {"p0": sees("GPU-a"), "p1": sees("GPU-a")}
    with pytest.raises(gpu_jobs.Broken, match="2 workers were given"):
        gpu_jobs.check_viewers(Bench(views, placed=("GPU-a", "GPU-a")), GPUS)


def result(**changes):
    metrics = {"device": "NVIDIA H200"}
    return {"headline": "1", "verified": True, "simulated": False, "metrics": metrics, **changes}


def test_only_verified_results_of_real_gpus_count():
    assert gpu_jobs.check_matmul(Bench({}, results=[result()]), GPUS)["headline"] == "1"
    for wrong in ({"simulated": True}, {"verified": False}, {"metrics": {"device": "CPU"}}):
        with pytest.raises(gpu_jobs.Broken, match="did not measure a GPU"):
            gpu_jobs.check_matmul(Bench({}, results=[result(**wrong)]), GPUS)


def shares(*spans, placed=("GPU-a",)):
    named = zip(gpu_jobs.SHARES, spans, strict=True)
    return Bench({"p0": {"tflops": 600.0}}, placed=placed, spans=named)


def test_shares_run_at_the_same_time_on_one_gpu():
    found = gpu_jobs.check_shares(shares(("10:00", "10:02"), ("10:01", "10:03")))
    assert found["figures"]["share-a"] == {"tflops": 600.0}
    with pytest.raises(gpu_jobs.Broken, match="one after the other"):
        gpu_jobs.check_shares(shares(("10:00", "10:01"), ("10:02", "10:03")))
    apart = shares(("10:00", "10:01"), ("10:00", "10:01"), placed=("GPU-a", "GPU-b"))
    with pytest.raises(gpu_jobs.Broken, match="were put on"):
        gpu_jobs.check_shares(apart)


def test_shares_fit_on_one_gpu_without_filling_it():
    assert sum(percent for percent, _ in gpu_jobs.SHARES.values()) < 100
    gibibytes = [int(memory.removesuffix("Gi")) for _, memory in gpu_jobs.SHARES.values()]
    assert sum(gibibytes) < 75  # of a GPU of 80 GB


def test_workers_of_a_shared_pod_are_distinguished_by_their_containers():
    labels = {"batch.kubernetes.io/job-completion-index": "0"}
    meta = {"name": "p0", "labels": labels}
    alone = {"metadata": meta, "spec": {"containers": [{"name": "worker"}]}}
    assert gpu_jobs.workers_in(alone) == {0: ("p0",)}
    meta = meta | {"annotations": {"gpupack.dev/workers": "0-1"}}
    shared = {
        "metadata": meta,
        "spec": {"containers": [{"name": "worker-0"}, {"name": "worker-1"}]},
    }
    assert gpu_jobs.workers_in(shared) == {0: ("p0", "worker-0"), 1: ("p0", "worker-1")}
