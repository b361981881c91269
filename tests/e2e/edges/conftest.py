# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the edge tests: each begins and ends with a healthy cluster that holds no GPU."""

import json
from typing import Any

import pytest
from agreement import views_of_annotations, views_of_containers, views_of_status
from harness import DEVICES_ANNOTATION, Kube, unsuccessful, wait_for
from node_faults import gpus_ready, lingering
from parts import all_up, ledger_reader

REST_SECONDS = 120


@pytest.fixture(autouse=True)
def whole(idle, system, cluster):
    """Ensure that all components run, all nodes offer all GPUs, and no pod holds any."""
    at_rest(system, cluster.nodes())
    yield
    at_rest(system, cluster.nodes())


def at_rest(system: Kube, nodes: tuple[str, ...]) -> None:
    """Wait until the cluster is idle."""
    wait_for(
        lambda: not any(gpus_ready(system, node) for node in nodes),
        seconds=REST_SECONDS,
        what="all nodes hand out all their GPUs",
    )
    all_up(system)
    wait_for(
        lambda: not holding(system) and not lingering(system, nodes),
        seconds=REST_SECONDS,
        what="no pod holds a GPU",
    )


def holding(system: Kube) -> list[dict[str, Any]]:
    """Return the pods of any namespace that hold GPUs."""
    done = system.kubectl("get", "pods", "--all-namespaces", "-o", "json")
    assert done.returncode == 0, done.stderr
    return [
        pod
        for pod in json.loads(done.stdout)["items"]
        if DEVICES_ANNOTATION in pod["metadata"].get("annotations", {})
        and pod["status"]["phase"] not in {"Succeeded", "Failed"}
    ]


@pytest.fixture
def ledger(system):
    """Return what the leading extender's ledger holds."""
    with ledger_reader(system) as found:
        yield found


@pytest.fixture
def verdict(kube, refusals, ledger):
    """Judge jobs that have ended; return how many attempts were repeated."""

    def judge(jobs: dict[str, dict[str, Any]]) -> int:
        outcomes = [a["outcome"] for job in jobs.values() for a in job["status"]["attempts"]]
        assert refusals() == []
        assert unsuccessful(jobs) == {}
        assert set(outcomes) <= {"Succeeded", "Infrastructure"}
        assert views_of_status(jobs) == views_of_containers(jobs)
        assert views_of_annotations(kube) >= views_of_status(jobs)
        assert ledger.figure("gpupack_extender_contradictions_total") == 0
        return len(outcomes) - len(jobs)

    return judge
