# SPDX-License-Identifier: Apache-2.0
"""Checks of `make demo-gpu` for a failing GPU: its job leaves, and a burn-in tests the GPU.

The GPU does not fail really: a replacement of DCGM exporter reports an XID, and the agent finds it
like a real one.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_jobs import IMAGE, Bench, Broken, gpu_job, phase

Json = dict[str, Any]

EXPORTER_NAMESPACE = "gpu-operator"
"""A namespace of the chart's agent.dcgmExporter.namespaces."""
EXPORTER_POD = "dcgm-stand-in"
EXPORTER = Path(__file__).with_name("gpu_exporter.py")
LOAD = Path(__file__).with_name("gpu_load.py")
XID = 79
"""XID for a GPU that has fallen off the bus."""
TRAINER = "trainer"
BURN_IN = ("outcome", "tflops", "memoryGbPerS", "hostToDeviceGbPerS", "deviceToHostGbPerS")
SECONDS = 60


def exporter(uuid: str) -> list[Json]:
    """Return the replacement of DCGM exporter and its namespace."""
    container = {
        "name": "exporter",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", EXPORTER.read_text(), uuid, str(XID)],
        "readinessProbe": {"tcpSocket": {"port": 9400}, "periodSeconds": 1},
    }
    labels = {"app.kubernetes.io/name": "dcgm-exporter"}
    metadata = {"name": EXPORTER_POD, "namespace": EXPORTER_NAMESPACE, "labels": labels}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": EXPORTER_NAMESPACE}}
    return [namespace, pod]


def trainer() -> Json:
    """Return a job with products on one GPU; the fault ends its first attempt."""
    container = {
        "name": "worker",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", LOAD.read_text(), "attempt", "$(GPUPACK_ATTEMPT)"],
    }
    return gpu_job(TRAINER, {"gpus": 1, "template": {"spec": {"containers": [container]}}})


def check_fault(bench: Bench, *, kill_agent: Callable[[], None]) -> Json:
    """Check that the GPU's fault ends the attempt, and that the job succeeds afterwards."""
    others = len(bench.gpus()) - 1
    bench.apply(trainer())
    bench.until(lambda: phase(bench.job(TRAINER)) == "Running", what="the trainer runs")
    uuid = _gpu_of(bench.job(TRAINER))
    began = time.monotonic()
    bench.create(*exporter(uuid))
    seen: Json = {"xid": XID, "gpu": uuid}
    bench.until(lambda: _attempts(bench), what="its attempt ends", seconds=SECONDS)
    seen["left after s"] = round(time.monotonic() - began, 1)
    seen["attempt"] = {key: _attempts(bench)[0].get(key) for key in ("outcome", "reason")}
    bench.until(lambda: uuid in _quarantine(bench), what="its quarantine", seconds=SECONDS)
    seen["quarantine"] = _quarantine(bench)[uuid]
    if seen["attempt"]["outcome"] != "Infrastructure":
        raise Broken(f"XID {XID} ended the attempt as {seen['attempt']}")
    if others:
        bench.until(lambda: _is_placed_again(bench), what="its next attempt", seconds=SECONDS)
        seen["elsewhere"] = _gpu_of(bench.job(TRAINER))
        if seen["elsewhere"] == uuid:
            raise Broken(f"the trainer goes on with {uuid}, which is in quarantine")
    else:
        bench.until(lambda: _is_waiting(bench), what="it waits for another GPU", seconds=SECONDS)
        seen["message"] = bench.job(TRAINER)["status"]["message"]
    _mend(bench, kill_agent)
    bench.until(lambda: bench.measured(uuid), what="its burn-in", seconds=SECONDS)
    seen["burn-in"] = {key: bench.measured(uuid).get(key) for key in BURN_IN}
    if seen["burn-in"]["outcome"] != "Passed":
        raise Broken(f"the burn-in of a sound GPU ended as {bench.measured(uuid)}")
    bench.until(lambda: uuid not in _quarantine(bench), what="its release", seconds=SECONDS)
    bench.finished(TRAINER)
    seen["mended, tried and done after s"] = round(time.monotonic() - began, 1)
    what = (
        f"XID {XID}, shown by a stand-in of DCGM exporter: the job leaves, the GPU is quarantined, "
        "and tried by a burn-in before it is used again"
    )
    return {"check": what, "figures": seen}


def _mend(bench: Bench, kill_agent: Callable[[], None]) -> None:
    """Delete the GPUNode and its records, as after a repair without a reboot."""
    bench.delete("pod", "--namespace", EXPORTER_NAMESPACE, EXPORTER_POD)
    bench.delete("gpunode", "--all")
    kill_agent()
    bench.until(
        lambda: all(gpu.get("health", "Healthy") == "Healthy" for gpu in bench.gpus()),
        what="all GPUs are well",
        seconds=SECONDS,
    )


def _gpu_of(job: Json) -> str:
    (here,) = job["status"]["placement"]
    (uuid,) = here["gpus"]
    return str(uuid)


def _attempts(bench: Bench) -> list[Json]:
    """Return the attempts that have ended."""
    attempts: list[Json] = bench.job(TRAINER)["status"].get("attempts", [])
    return [each for each in attempts if each.get("outcome")]


def _is_placed_again(bench: Bench) -> bool:
    status = bench.job(TRAINER)["status"]
    return bool(status.get("placement")) and status["attempt"] > 1


def _is_waiting(bench: Bench) -> bool:
    status = bench.job(TRAINER)["status"]
    return phase({"status": status}) == "Pending" and not status.get("placement")


def _quarantine(bench: Bench) -> dict[str, Json]:
    return {each["gpu"]: each for each in bench.decided().get("quarantine", [])}
