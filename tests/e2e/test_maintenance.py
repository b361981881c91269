# SPDX-License-Identifier: Apache-2.0
"""GPUs in maintenance, as an administrator says it of a GPUNode of the real cluster."""

import json
import os
import re
import subprocess

import pytest
from harness import ROOT, STATE, annotated_devices, wait_for
from manifests import on_node

CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


@pytest.fixture
def node(idle, cluster, system):
    """A node of which nothing is in maintenance afterwards."""
    name = cluster.nodes()[0]
    yield name
    maintain(system, name)


def maintain(kube, node, *entries):
    """Return kubectl's error; nothing if the entries are accepted."""
    patch = json.dumps({"spec": {"maintenance": list(entries) or None}})
    done = kube.kubectl("patch", "gpunode", node, "--type=merge", f"--patch={patch}")
    return done.stderr


def refused(kube, *entries):
    """Return kubectl's error of a dry run."""
    patch = json.dumps({"spec": {"maintenance": entries}})
    flags = ("--type=merge", "--dry-run=server", f"--patch={patch}")
    return kube.kubectl("patch", "gpunode", kube.nodes()[0], *flags).stderr


def free(kube, node):
    (found,) = (each for each in kube.gpunodes() if each["metadata"]["name"] == node)
    return found["status"]["free"]


def test_a_gpu_in_maintenance_gets_no_new_work_and_its_holders_continue(kube, node, judged):
    kube.submit(on_node(judged.job("before", gpus=1, seconds=600), node))
    kube.wait_phase("before", "Running")
    (held,) = annotated_devices(kube.pods("before")[0])
    assert maintain(kube, node, {"reason": "a fan", "gpus": [held]}) == ""
    kube.submit(on_node(judged.job("all", gpus=8, seconds=1), node))
    message = kube.wait_reason("all", "GpuInMaintenance")["status"]["message"]
    assert "too few GPUs that are not in maintenance (most on one node: 7)" in message
    kube.submit(on_node(judged.job("seven", gpus=7, seconds=1), node))
    kube.wait_phase("seven", "Succeeded")
    shown = kube.kubectl("get", "gpunode", node, "--output=wide").stdout
    assert "a fan" in shown
    assert "Never" in shown
    assert kube.phase("before") == "Running"
    wait_for(lambda: free(kube, node) == 7, seconds=60, what="the agent goes on to report")
    maintain(kube, node)
    kube.delete("gpujob", "before")
    kube.wait_phase("all", "Succeeded")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"drain": "All"}, "maintenance[0].reason: Required value"),
        ({"reason": "x" * 257}, "may not be more than 256"),
        ({"reason": "x", "gpus": []}, "should have at least 1 items"),
        ({"reason": "x", "drain": "Soon"}, 'supported values: "All", "Movable", "Never"'),
        (
            {"reason": "x", "stopAt": "2026-01-01T00:00:00Z"},
            "stopAt has an effect only with drain: All",
        ),
        ({"reason": "x", "drain": "All", "stopAt": "tomorrow"}, "must be of type date-time"),
    ],
    ids=["reason", "length", "gpus", "drain", "never stops", "moment"],
)
def test_an_invalid_maintenance_entry_is_refused_with_its_field(system, entry, said):
    assert said in refused(system, entry)


def test_a_gpunode_has_at_most_16_maintenance_entries(system):
    assert "must have at most 16 items" in refused(system, *({"reason": "x"},) * 17)


@pytest.mark.slow
def test_the_commands_of_the_page_work_one_after_the_other(system, node):
    text = (ROOT / "docs" / "maintenance.md").read_text()
    lines = [line for block in CONSOLE.findall(text) for line in block.splitlines()]
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert commands[0].startswith("export NODE=")
    script = "\n".join([f"export NODE={node}", *commands[1:]])
    environ = os.environ | {
        "KUBECONFIG": str(system.kubeconfig),
        "PATH": f"{STATE / 'bin'}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        env=environ,
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "firmware of the switch" in done.stdout
    assert "held 0 shared 0" in done.stdout


@pytest.mark.slow
def test_a_movable_job_moves_from_a_gpu_in_maintenance_to_its_reserved_gpu(
    kube, node, cluster, judged
):
    _, other = cluster.nodes()
    assert maintain(kube, other, {"reason": "first"}) == ""
    kube.submit(judged.job("train", gpus=2, seconds=600, movable=True))
    kube.wait_phase("train", "Running")
    maintain(kube, other)
    (held, _) = annotated_devices(kube.pods("train")[0])
    assert maintain(kube, node, {"reason": "a fan", "gpus": [held], "drain": "Movable"}) == ""

    def moved():
        job = kube.gpujob("train")
        return job if job["status"]["attempt"] == 2 and kube.phase("train") == "Running" else None

    job = wait_for(moved, seconds=60, what="the job runs elsewhere")
    (first, second) = job["status"]["attempts"]
    assert (first["outcome"], first["reason"]) == ("Moved", "Maintenance")
    assert first["message"] == f"moved from node {node} for its maintenance: a fan"
    assert "outcome" not in second
    assert (job["status"]["moves"], job["status"].get("restarts", 0)) == (1, 0)
    assert held not in json.dumps(job["status"]["placement"])
    assert "Moved" in kube.events("train")
    assert "preemption" not in job["status"]
