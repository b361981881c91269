# SPDX-License-Identifier: Apache-2.0
"""The examples that run a built-in workload: one of the workload's own name for each."""

import json
from typing import Any

import yaml
from harness import ROOT, Kube

RUN_SECONDS = 300
"""For the slowest of them, with an image's first start, on a machine of two cores."""

MANIFESTS: dict[str, dict[str, Any]] = {
    path.stem: manifest
    for path in sorted((ROOT / "examples").glob("*.yaml"))
    if (manifest := next(yaml.safe_load_all(path.read_text())))["kind"] == "GPUJob"
}
WORKLOADS = sorted(
    name
    for name, manifest in MANIFESTS.items()
    if manifest["spec"].get("workload", {}).get("name") == name
)


def run_example(kube: Kube, name: str) -> list[str]:
    """Apply an example and wait for its end; return what is not as it should be."""
    manifest = MANIFESTS[name]
    kube.submit(manifest)
    job = kube.wait_phase(name, "Succeeded", "Failed", seconds=RUN_SECONDS)
    if job["status"]["phase"] != "Succeeded":
        return [json.dumps(job["status"], indent=1), *logs(kube, name)]
    results = job["status"].get("results", [])
    wrong = [f"not verified: {result}" for result in results if not result["verified"]]
    wrong += [f"not {name}'s: {result}" for result in results if result["workload"] != name]
    workers = manifest["spec"].get("workers", 1)
    return wrong if len(results) == workers else [f"{len(results)} of {workers} results", *wrong]


def logs(kube: Kube, name: str) -> list[str]:
    """Return the ends of the workers' logs."""
    pods = [pod["metadata"]["name"] for pod in kube.pods(name)]
    return [f"{pod}: {kube.kubectl('logs', pod, '--tail=30').stdout}" for pod in pods]
