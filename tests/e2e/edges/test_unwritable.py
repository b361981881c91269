# SPDX-License-Identifier: Apache-2.0
"""A node on which the agent, or every process, cannot write."""

import contextlib

import pytest
from harness import wait_for
from manifests import on_node
from node_faults import CDI, cdi_read_only, in_node, run_full, waiting_because


@pytest.fixture
def node(cluster):
    return cluster.nodes()[0]


@pytest.fixture
def neighbor(kube, node, judged):
    """A worker that runs before the fault, and must not notice it."""
    kube.submit(on_node(judged.job("neighbor", gpus=2, seconds=300), node))
    kube.wait_phase("neighbor", "Running")
    yield
    job = kube.gpujob("neighbor")
    assert (job["status"]["phase"], job["status"]["attempt"]) == ("Running", 1)


@pytest.mark.usefixtures("neighbor")
def test_an_unwritable_cdi_folder_is_named_and_a_start_works_once_it_is_writable(
    kube, system, cluster, node, judged, refusals
):
    with cdi_read_only(cluster, system, node):
        kube.submit(on_node(judged.job("job", gpus=2), node))
        wait_for(lambda: waiting_because(kube, CDI), seconds=60, what="the folder is named")
        wait_for(lambda: "Read-only file system" in kube.event_texts(), seconds=60, what="an event")
        assert kube.phase("job") == "Admitted"
    job = kube.wait_phase("job", "Succeeded")
    assert job["status"]["attempt"] == 1
    assert refusals() == []


@pytest.mark.usefixtures("neighbor")
def test_on_a_full_disk_a_start_fails_with_the_reason_and_works_when_there_is_space(
    kube, cluster, node, judged, refusals
):
    specs = cdi_specs(cluster, node)
    with run_full(cluster, node):
        kube.submit(on_node(judged.job("job", gpus=2), node))
        wait_for(lambda: "no space left" in kube.event_texts(), seconds=60, what="the reason")
        assert cdi_specs(cluster, node) == specs
    job = kube.wait_phase("job", "Succeeded", seconds=90)
    assert job["status"]["attempt"] == 1
    assert refusals() == []


@pytest.mark.usefixtures("neighbor")
def test_a_cdi_spec_is_never_written_partly_and_is_written_when_there_is_disk_space(
    kube, system, cluster, node, judged, refusals
):
    """The sandbox exists before the space runs out: only the spec and the container are missing."""
    specs = cdi_specs(cluster, node)
    with contextlib.ExitStack() as sandbox_first:
        sandbox_first.enter_context(cdi_read_only(cluster, system, node))
        kube.submit(on_node(judged.job("job", gpus=2), node))
        wait_for(lambda: waiting_because(kube, CDI), seconds=60, what="the sandbox stands")
        with run_full(cluster, node):
            sandbox_first.close()
            said = wait_for(
                lambda: waiting_because(kube, "No space left"), seconds=60, what="the reason"
            )
            assert CDI in said
            assert cdi_specs(cluster, node) == specs
    job = kube.wait_phase("job", "Succeeded", seconds=90)
    assert job["status"]["attempt"] == 1
    assert refusals() == []


def cdi_specs(cluster, node):
    """Return the contents of the folder of specs."""
    return in_node(cluster, node, "sh", "-c", f"cd {CDI} && md5sum * 2>/dev/null; true")
