# SPDX-License-Identifier: Apache-2.0
"""Shares of a GPU: what is asked for is given, counted, and never more than there is."""

import json
from collections import Counter

import pytest
from admission import SLOT
from agreement import views_of_annotations, views_of_containers, views_of_status
from chaos import kill_kubelet, kill_process
from harness import condition, placed, unsuccessful, wait_equal, wait_for
from manifests import Share
from parts import restarts

SMALL = Share(percent=10, memory_mib=1024)
HELD = 600
"""Seconds that outlast every test: these jobs are deleted, not awaited."""


@pytest.fixture(autouse=True)
def nothing_else_is_held(idle):
    pass


@pytest.fixture(autouse=True)
def nothing_is_refused(refusals):
    yield
    assert refusals() == []


def hold(kube, judged, name, **size):
    """Run a job that holds what it asked for; the GPUs that its workers were given."""
    kube.submit(judged.job(name, seconds=HELD, **size))
    return gpus(kube.wait_phase(name, "Running", seconds=120))


def gpus(job):
    """The GPU of each worker, in the workers' order."""
    return [place.devices[0].uuid for place in placed(job)]


def offered_again(system, counted):
    """Wait until each agent has restarted, by its kubelet's state, and its GPUs are allocatable.

    A share that is placed before is refused by its kubelet, and its next attempt avoids the node.
    """
    now = restarts(system)
    agents = [name for name in now if name.endswith("/agent")]
    nodes = json.loads(system.insist("get", "nodes", "--output=json"))["items"]
    offered = [int(node["status"]["allocatable"].get(SLOT, 0)) for node in nodes]
    return all(now[name] > counted[name] for name in agents) and all(offered)


def give_back(kube, *names):
    for name in names:
        kube.delete("gpujob", name)


def test_a_share_runs_from_apply_to_result_and_all_sources_agree(kube, judged):
    kube.submit(judged.job("half", workers=2, share=Share(50, 20480)))
    job = kube.wait_phase("half", "Succeeded", "Failed", seconds=120)
    jobs = {"half": job}
    assert views_of_status(jobs) == views_of_containers(jobs) == views_of_annotations(kube)
    assert {(view.percent, view.memory_mib) for view in views_of_status(jobs)} == {(50, 20480)}
    assert [result["headline"] for result in job["status"]["results"]] == ["held 1", "held 1"]


def test_namespaces_use_one_gpu_at_once(kube, others, judged, peaks):
    tenants = [kube, others("b"), others("c")]
    given = [hold(tenant, judged, "third", share=Share(33, 20480)) for tenant in tenants]
    assert given[0] == given[1] == given[2]
    (gpu,) = given[0]
    most = {gpu: {"percent": 99, "memoryMiB": 61440, "shares": 3}}
    wait_equal(peaks, most, what="three judges hold their shares")


def test_a_share_goes_to_the_fullest_gpu_that_fits(kube, judged):
    (fuller,) = hold(kube, judged, "fuller", share=Share(60, 1024))
    (emptier,) = hold(kube, judged, "emptier", share=Share(50, 1024))
    assert fuller != emptier
    assert hold(kube, judged, "fits-both", share=Share(30, 1024)) == [fuller]
    assert hold(kube, judged, "fits-the-emptier", share=Share(50, 1024)) == [emptier]


def test_the_workers_of_a_gang_share_gpus(kube, judged, peaks):
    kube.submit(judged.job("gang", workers=6, share=Share(30, 1024), seconds=HELD))
    placed = Counter(gpus(kube.wait_phase("gang", "Running", seconds=120)))
    assert sorted(placed.values()) == [3, 3]
    most = {gpu: {"percent": 90, "memoryMiB": 3072, "shares": 3} for gpu in placed}
    wait_equal(peaks, most, what="six judges hold their shares")


def test_memory_is_counted_as_percent_is(kube, judged):
    most = Share(50, judged.gpu_memory_mib * 6 // 10)
    assert hold(kube, judged, "one", share=most) != hold(kube, judged, "two", share=most)


@pytest.mark.slow
def test_the_last_gpu_is_shared_or_whole_but_never_both(kube, judged):
    hold(kube, judged, "full-node", gpus=8)
    hold(kube, judged, "other-node", gpus=7)
    (last,) = hold(kube, judged, "share", share=SMALL)
    kube.submit(judged.job("whole"))
    kube.wait_reason("whole", "TooFewFreeGpus")
    give_back(kube, "share")
    assert gpus(kube.wait_phase("whole", "Succeeded", "Failed")) == [last]
    assert hold(kube, judged, "whole-again") == [last]
    kube.submit(judged.job("share-again", share=SMALL))
    kube.wait_reason("share-again", "ShareDoesNotFit")
    give_back(kube, "whole-again")
    assert gpus(kube.wait_phase("share-again", "Succeeded", "Failed")) == [last]


@pytest.mark.slow
def test_the_twenty_first_share_goes_to_the_next_gpu(kube, judged):
    kube.submit(judged.job("crowd", workers=21, share=Share(1, 64)))
    job = kube.wait_phase("crowd", "Succeeded", "Failed", seconds=240)
    assert job["status"]["phase"] == "Succeeded", job["status"]
    assert sorted(Counter(gpus(job)).values()) == [1, 20]


def test_a_pending_share_shows_what_is_missing(kube, judged):
    hold(kube, judged, "everything", workers=2, gpus=8)
    kube.submit(judged.job("waits", share=Share(30, 4096)))
    job = kube.wait_reason("waits", "ShareDoesNotFit")
    missing = "no GPU has 30% and 4 GiB free (most free on one GPU: 0%)"
    assert missing in job["status"]["message"]
    assert condition(job, "Admitted")["reason"] == "ShareDoesNotFit"


def test_a_share_beyond_any_gpu_shows_the_reason(kube, judged):
    kube.submit(judged.job("too-much", share=Share(10, judged.gpu_memory_mib + 1)))
    message = kube.wait_reason("too-much", "Unsatisfiable")["status"]["message"]
    assert f"GPU memory is below {judged.gpu_memory_mib + 1} MiB" in message
    assert f"largest: {judged.gpu_memory_mib} MiB" in message


@pytest.mark.slow
def test_a_share_that_runs_survives_agents_and_kubelets_being_killed(
    kube, system, cluster, judged, peaks
):
    (gpu,) = hold(kube, judged, "before", share=Share(60, 1024))
    counted = restarts(system)
    kill_process(cluster, "gpupack_agent")
    for node in cluster.nodes():
        kill_kubelet(cluster, node)
    wait_for(lambda: offered_again(system, counted), seconds=120, what="agents offer GPUs again")
    assert hold(kube, judged, "after", share=Share(40, 1024)) == [gpu]
    most = {"percent": 100, "memoryMiB": 2048, "shares": 2}
    wait_equal(lambda: peaks().get(gpu), most, what="both judges hold their shares")
    (pod,) = kube.pods("before")
    assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]


@pytest.mark.slow
def test_shares_that_start_survive_agents_and_kubelets_being_killed(kube, cluster, judged):
    names = [f"share-{index}" for index in range(8)]
    kube.submit(*(judged.job(name, share=Share(45, 1024), seconds=2) for name in names))
    kill_process(cluster, "gpupack_agent")
    for node in cluster.nodes():
        kill_kubelet(cluster, node)
    jobs = kube.wait_finished(names, seconds=240)
    assert unsuccessful(jobs) == {}
    assert views_of_status(jobs) == views_of_containers(jobs)
