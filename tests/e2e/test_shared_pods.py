# SPDX-License-Identifier: Apache-2.0
"""A gang of four workers on two nodes: two workers share a pod on each.

Workers have three GPUs, so that a node of eight fits two and no more.
"""

import json
import textwrap

import pytest
from admission import pod
from harness import placed, wait_for
from manifests import JUDGE_IMAGE, gpujob, on_node
from test_admission_operator import AS_OPERATOR
from test_queue import limit, quota

SECONDS = 120
"""For what takes a few seconds where nothing else runs."""
GPUS = 3
BOTH = [["worker-0", "worker-1"], ["worker-2", "worker-3"]]
WAITS = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); "

MEETS = textwrap.dedent(
    """
    import json, os, pathlib, socket, time

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    pathlib.Path(f"/dev/shm/{rank}").write_text("here")
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(("", address[1])) as server:
            peers = [server.accept()[0] for _ in range(world - 1)]
            met = sorted(int(peer.recv(8)) for peer in peers)
            for peer in peers:
                peer.sendall(b"all are here")
    else:
        while True:
            try:
                with socket.create_connection(address) as peer:
                    peer.sendall(str(rank).encode())
                    peer.recv(16)
                met = []
                break
            except OSError:
                time.sleep(0.2)
    near = sorted(path.name for path in pathlib.Path("/dev/shm").glob("[0-9]"))
    found = {"rank": rank, "local": int(os.environ["LOCAL_RANK"]), "met": met, "near": near}
    found |= {"index": os.environ["JOB_COMPLETION_INDEX"], "gpus": os.environ["GPUPACK_DEVICES"]}
    print(json.dumps(found), flush=True)
    result = {"schema": "gpupack.dev/result/v1", "headline": f"rank {rank}"}
    pathlib.Path(os.environ["GPUPACK_RESULT_PATH"]).write_text(json.dumps(result))
    """
)


def gang(program, *, workers=4, **spec):
    """A gang whose workers run a Python program and share pods."""
    container = {"name": "worker", "image": JUDGE_IMAGE, "command": ["python3", "-c", program]}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 5}
    size = {"workers": workers, "gpus": GPUS, "podPerWorker": False}
    return gpujob("gang", template={"spec": pod}, **size, **spec)


def ends_with(code, *, worker):
    """A program that ends so in one worker, and waits in the others."""
    is_it = f"int(__import__('os').environ['GPUPACK_WORKER_INDEX']) == {worker}"
    return WAITS + f"time.sleep(3) if {is_it} else time.sleep(600); sys.exit({code})"


FOR_LONG = WAITS + "print('step 1', flush=True); time.sleep(600)"


def pods_of(kube):
    """The gang's pods that are not on their way out, in the order of their first workers."""
    alive = [pod for pod in kube.pods("gang") if "deletionTimestamp" not in pod["metadata"]]
    return sorted(alive, key=containers)


def containers(pod):
    return [each["name"] for each in pod["spec"]["containers"]]


def codes(pod):
    """The exit code of each container; None: it has not ended."""
    states = {each["name"]: each["state"] for each in pod["status"]["containerStatuses"]}
    return [states[name].get("terminated", {}).get("exitCode") for name in containers(pod)]


def log_of(kube, pod, container):
    return kube.insist("logs", pod["metadata"]["name"], "--container", container)


def jobs_of(kube):
    names = kube.insist("get", "jobs.batch", "--selector=gpupack.dev/job=gang", "-o", "name")
    return sorted(name.rpartition("/")[2] for name in names.split())


def wait_jobs(kube, *names):
    """Wait until these are all of its Jobs: those that are deleted go after their pods."""
    wait_for(lambda: jobs_of(kube) == [*names], seconds=SECONDS, what=f"{names} are left")


def runs(kube):
    """Wait until it runs; its pods."""
    kube.wait_phase("gang", "Running", seconds=SECONDS)
    return pods_of(kube)


@pytest.mark.alone
def test_workers_of_a_node_share_a_pod_and_have_ranks_gpus_logs_and_results_of_their_own(kube):
    kube.submit(gang(MEETS, distributed={"processesPerWorker": 1}))
    job = kube.wait_phase("gang", "Succeeded", "Failed", seconds=SECONDS)
    assert job["status"]["phase"] == "Succeeded", job["status"]
    pods = pods_of(kube)
    assert [containers(pod) for pod in pods] == BOTH
    assert jobs_of(kube) == ["gang-1-p0", "gang-1-p2"]
    assert [pod["spec"]["hostname"] for pod in pods] == ["gang-1-0", "gang-1-2"]
    said = [json.loads(log_of(kube, pod, name)) for pod in pods for name in containers(pod)]
    assert [(each["rank"], each["local"], each["index"]) for each in said] == [
        (rank, 0, str(rank)) for rank in range(4)
    ]
    assert said[0]["met"] == [1, 2, 3]
    assert [each["near"] for each in said] == [["0", "1"]] * 2 + [["2", "3"]] * 2
    given = [sorted(each["gpus"].split(",")) for each in said]
    places = [sorted(device.uuid for device in place.devices) for place in placed(job)]
    assert given == places
    results = [(each.get("worker", 0), each["headline"]) for each in job["status"]["results"]]
    assert results == [(rank, f"rank {rank}") for rank in range(4)]


@pytest.mark.alone
def test_one_worker_that_fails_ends_the_others_and_logs_of_its_pod_stay(kube):
    program = FOR_LONG.replace("time.sleep(600)", ends_with(3, worker=1).removeprefix(WAITS))
    kube.submit(gang(program))
    job = kube.wait_phase("gang", "Failed", seconds=SECONDS)
    (attempt,) = job["status"]["attempts"]
    assert (attempt["reason"], attempt["fault"]["worker"]) == ("WorkerFailed", 1), attempt
    assert "container worker-1 ended with exit code 3" in attempt["message"]

    def left():
        pods = pods_of(kube)
        return pods if [pod["status"]["phase"] for pod in pods] == ["Failed"] else None

    (pod,) = wait_for(
        left, seconds=SECONDS, what="the pod with the failed worker is all that is left"
    )
    assert containers(pod) == BOTH[0]
    assert codes(pod)[1] == 3
    assert [log_of(kube, pod, name) for name in BOTH[0]] == ["step 1\n"] * 2
    wait_jobs(kube, "gang-1-p0")


@pytest.mark.slow
@pytest.mark.alone
def test_a_shared_pod_restarts_after_all_containers_of_the_failed_attempt_have_ended(kube):
    kube.submit(gang(ends_with(3, worker=2), maxRestarts=1))
    job = kube.wait_phase("gang", "Failed", seconds=2 * SECONDS)
    assert [each["outcome"] for each in job["status"]["attempts"]] == ["Failed", "Failed"]
    wait_jobs(kube, "gang-1-p2", "gang-2-p2")


@pytest.mark.slow
@pytest.mark.alone
def test_a_failure_that_is_ignored_ends_no_other_container(kube):
    is_it = "int(__import__('os').environ['GPUPACK_WORKER_INDEX']) == 1"
    program = WAITS + f"sys.exit(6) if {is_it} else time.sleep(15)"
    ignored = [{"exitCodes": [6], "action": "Ignore"}]
    kube.submit(gang(program, failurePolicy=ignored))
    job = kube.wait_phase("gang", "Succeeded", "Failed", seconds=SECONDS)
    assert (job["status"]["phase"], job["status"]["reason"]) == ("Succeeded", "FailuresIgnored")
    assert [codes(pod) for pod in pods_of(kube)] == [[0, 6], [0, 0]]


@pytest.mark.slow
@pytest.mark.alone
def test_a_gang_with_shared_pods_is_suspended_resumed_and_evicted(kube):
    kube.submit(gang(FOR_LONG))
    assert [containers(pod) for pod in runs(kube)] == BOTH
    suspend = ("patch", "gpujob", "gang", "--type=merge", "--patch")
    kube.insist(*suspend, '{"spec": {"suspend": true}}')
    wait_for(
        lambda: not kube.pods("gang") and not jobs_of(kube), seconds=SECONDS, what="all is gone"
    )
    kube.insist(*suspend, '{"spec": {"suspend": false}}')
    kube.wait_phase("gang", "Running", seconds=SECONDS)
    first, _ = pods_of(kube)
    kube.delete("pod", first["metadata"]["name"], "--wait=false")

    def third():
        status = kube.gpujob("gang")["status"]
        return status if (status["attempt"], status["phase"]) == (3, "Running") else None

    status = wait_for(third, seconds=SECONDS, what="it runs a third time")
    ends = [each.get("outcome") for each in status["attempts"]]
    assert ends == ["Suspended", "Infrastructure", None]
    assert [containers(pod) for pod in pods_of(kube)] == BOTH
    assert jobs_of(kube) == ["gang-3-p0", "gang-3-p2"]


@pytest.mark.slow
@pytest.mark.alone
def test_a_gang_with_shared_pods_is_preempted_as_a_whole_and_runs_again(
    kube, others, judged, cohort
):
    kube.submit(quota(limit(4)))
    guest = others("guest")
    guest.submit(quota(cohort=cohort))
    whole_cluster = gang(FOR_LONG)
    whole_cluster["spec"]["gpus"] = 4
    guest.submit(whole_cluster)
    runs(guest)
    kube.submit(judged.job("owner", gpus=4, seconds=5))
    kube.wait_phase("owner", "Running", seconds=SECONDS)
    (attempt,) = guest.gpujob("gang")["status"]["attempts"]
    assert (attempt["outcome"], attempt["reason"]) == ("Preempted", "InCohortReclamation")
    kube.wait_phase("owner", "Succeeded", seconds=SECONDS)
    assert [containers(each) for each in runs(guest)] == BOTH
    assert jobs_of(guest) == ["gang-2-p0", "gang-2-p2"]


@pytest.mark.slow
@pytest.mark.alone
def test_its_deadline_ends_all_of_its_pods(kube):
    kube.submit(gang(FOR_LONG, activeDeadlineSeconds=15))
    job = kube.wait_phase("gang", "Failed", seconds=SECONDS)
    assert job["status"]["reason"] == "DeadlineExceeded"

    def ended():
        return all(pod["status"]["phase"] in {"Succeeded", "Failed"} for pod in kube.pods("gang"))

    wait_for(ended, seconds=SECONDS, what="no container runs")


@pytest.mark.slow
@pytest.mark.alone
def test_workers_of_an_elastic_gang_have_a_pod_each(kube):
    kube.submit(gang(FOR_LONG, minWorkers=2, workers=3))
    runs(kube)

    def whole():
        return [containers(pod) for pod in pods_of(kube)] == [["worker"]] * 3

    wait_for(whole, seconds=SECONDS, what="each worker has a pod")
    assert jobs_of(kube) == ["gang-1", "gang-1-x2"]


def test_a_port_that_two_workers_would_open_is_refused_before_anything_starts(kube):
    job = gang(FOR_LONG, workers=2)
    job["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]
    kube.submit(job)
    found = kube.wait_phase("gang", "Failed", seconds=SECONDS)
    assert found["status"]["reason"] == "InvalidTemplate"
    assert "opens port 8080" in found["status"]["message"]
    assert "podPerWorker: true" in found["status"]["message"]
    assert kube.pods("gang") == []


def undecided(program, **spec):
    """A gang on one node that leaves it to the operator whether workers share pods."""
    job = on_node(gang(program, workers=2, **spec), "gpupack-1")
    del job["spec"]["podPerWorker"]
    return job | {"spec": job["spec"] | {"gpus": 1}}


def test_workers_that_open_the_same_port_get_a_pod_each_by_default(kube):
    job = undecided(FOR_LONG)
    job["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 8080}]
    kube.submit(job)
    assert [containers(pod) for pod in runs(kube)] == [["worker"]] * 2
    assert kube.gpujob("gang")["status"]["attempts"][0]["sharesPods"] is False


def test_a_limit_of_pod_size_gives_each_worker_a_pod_by_default(kube):
    limits = [{"type": "Pod", "max": {"cpu": "150m"}}]
    meta = {"name": "small", "namespace": kube.namespace}
    kube.submit(
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": limits}}
    )
    job = undecided(FOR_LONG)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "100m"}}
    kube.submit(job)
    assert [containers(pod) for pod in runs(kube)] == [["worker"]] * 2
    status = kube.gpujob("gang")["status"]
    assert len(status["attempts"]) == 1
    (admitted,) = [each for each in status["conditions"] if each["type"] == "Admitted"]
    assert "maximum cpu usage per Pod" in admitted["message"]


def test_the_operator_ends_no_other_pod_and_changes_nothing_else(kube):
    kube.submit(pod())

    def refused(change):
        """Return the answer to the operator; a server-side apply reads nothing first."""
        meta = {"name": "idle", "namespace": kube.namespace} | change.get("metadata", {})
        body = {"apiVersion": "v1", "kind": "Pod", **change, "metadata": meta}
        flags = ("--server-side", "--field-manager=operator", "--dry-run=server", AS_OPERATOR)
        return kube.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(body)).stderr

    said = refused({"spec": {"activeDeadlineSeconds": 1}})
    assert "the operator may end only shared pods of GPUJobs" in said
    for other in ({"spec": {"activeDeadlineSeconds": 9}}, {"metadata": {"labels": {"a": "b"}}}):
        assert "may only set spec.activeDeadlineSeconds of a pod to 1" in refused(other)
