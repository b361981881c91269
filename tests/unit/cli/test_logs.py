# SPDX-License-Identifier: Apache-2.0
import pytest

JOBS = "/apis/gpupack.dev/v1beta1/namespaces/default/gpujobs"


@pytest.mark.parametrize("follow", [(), ("--follow",)])
@pytest.mark.parametrize(
    ("workers", "has"), [(3, "workers 0 to 2"), (1, "only worker 0")], ids=["three", "one"]
)
async def test_an_unknown_worker_is_refused_with_the_existing_ones(
    server, workers, has, follow, capsys
):
    job = {"metadata": {"name": "train", "namespace": "default"}, "spec": {"workers": workers}}
    server.put(f"{JOBS}/train", job)
    assert await server.called("logs", "train", "--worker", "9", *follow) == 66
    assert capsys.readouterr().err == f"gpupack: train has {has}, and no worker 9\n"


PODS = "/api/v1/namespaces/default/pods"


def put_job(server, workers, *, attempt=1, phase="Running"):
    meta = {"name": "train", "namespace": "default", "uid": "uid-train"}
    spec = {"workers": workers, "gpus": 1}
    status = {"phase": phase, "attempt": attempt}
    server.put(f"{JOBS}/train", {"metadata": meta, "spec": spec, "status": status})


def put_worker(server, worker, *, container="trainer"):
    name = f"train-1-{worker}"
    labels = {
        "gpupack.dev/job-uid": "uid-train",
        "gpupack.dev/attempt": "1",
        "batch.kubernetes.io/job-completion-index": str(worker),
    }
    gpus = {"limits": {"gpupack.dev/gpu": "1"}}
    pod = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"containers": [{"name": "proxy"}, {"name": container, "resources": gpus}]},
    }
    server.put(f"{PODS}/{name}", pod)
    return f"{PODS}/{name}/log"


async def test_logs_come_from_the_container_with_the_gpus(server, capfd):
    put_job(server, workers=2)
    for worker in (0, 1):
        server.logs[put_worker(server, worker)] = {"trainer": f"line of {worker}"}
    assert await server.called("logs", "train") == 0
    assert capfd.readouterr().out == "[0] line of 0\n[1] line of 1\n"


async def test_logs_come_from_the_container_with_the_gpus_of_its_role(server, capfd):
    share = {"percent": 40, "memory": "8Gi"}
    roles = [{"name": "leader", "share": share}, {"name": "worker", "gpus": 1}]
    meta = {"name": "train", "namespace": "default", "uid": "uid-train"}
    status = {"phase": "Running", "attempt": 1}
    server.put(f"{JOBS}/train", {"metadata": meta, "spec": {"roles": roles}, "status": status})
    for worker in (0, 1):
        path = put_worker(server, worker)
        server.logs[path] = {"trainer": f"line of {worker}"}
    name = f"{PODS}/train-1-0"
    leader = server.objects[name]
    limits = {"gpupack.dev/gpu-share": "1"}
    leader["spec"]["containers"][1]["resources"] = {"limits": limits}
    server.put(name, leader)
    assert await server.called("logs", "train") == 0
    assert capfd.readouterr().out == "[0] line of 0\n[1] line of 1\n"


def put_shared(server, first, count, *, attempt=1):
    """Store a pod of several workers, with a sidecar between them."""
    name = f"train-{attempt}-p{first}-x"
    labels = {
        "gpupack.dev/job-uid": "uid-train",
        "gpupack.dev/attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(first),
    }
    gpus = {"limits": {"gpupack.dev/gpu": "1"}}
    workers = [
        {"name": f"train-er-{index}", "resources": gpus} for index in range(first, first + count)
    ]
    pod = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {"containers": [*workers[:1], {"name": "proxy-9"}, *workers[1:]]},
    }
    server.put(f"{PODS}/{name}", pod)
    texts = {f"train-er-{index}": f"line of {index}" for index in range(first, first + count)}
    server.logs[f"{PODS}/{name}/log"] = texts


async def test_logs_of_workers_in_a_shared_pod_come_from_their_containers(server, capfd):
    put_job(server, workers=3)
    put_shared(server, 0, 2)
    put_shared(server, 2, 1)
    assert await server.called("logs", "train") == 0
    assert capfd.readouterr().out == "[0] line of 0\n[1] line of 1\n[2] line of 2\n"
    assert await server.called("logs", "train", "--worker", "1") == 0
    assert capfd.readouterr().out == "line of 1\n"


async def test_logs_of_an_earlier_attempt_come_from_its_pods(server, capfd):
    put_job(server, workers=2, attempt=2)
    put_shared(server, 0, 2)
    put_shared(server, 0, 1, attempt=2)
    put_shared(server, 1, 1, attempt=2)
    assert await server.called("logs", "train", "--attempt", "1", "--worker", "1") == 0
    assert await server.called("logs", "train") == 0
    assert capfd.readouterr().out == "line of 1\n[0] line of 0\n[1] line of 1\n"


async def test_a_worker_with_a_deleted_pod_is_named(server, capfd):
    put_job(server, workers=2)
    server.logs[put_worker(server, 1)] = {"trainer": "alone"}
    assert await server.called("logs", "train") == 0
    shown = capfd.readouterr()
    assert shown.out == "[1] alone\n"
    assert shown.err == "not shown: worker 0: no pod; it was deleted, or is not created yet\n"


async def test_missing_extra_workers_of_an_elastic_job_are_not_reported(server, capfd):
    put_job(server, workers=3)
    job = server.objects[f"{JOBS}/train"]
    job["spec"]["minWorkers"] = 1
    job["status"]["placement"] = [{"node": "a", "workers": "0-1", "gpus": ["GPU-1", "GPU-2"]}]
    server.logs[put_worker(server, 0)] = {"trainer": "first"}
    assert await server.called("logs", "train") == 0
    shown = capfd.readouterr()
    assert shown.out == "[0] first\n"
    assert shown.err == "not shown: worker 1: no pod; it was deleted, or is not created yet\n"


async def test_missing_logs_are_reported_with_the_reason(server, capfd):
    put_job(server, workers=2)
    logs = [put_worker(server, worker) for worker in (0, 1)]
    assert await server.called("logs", "train") == 66
    said = capfd.readouterr().err
    assert "nothing can be shown of train: worker 0: container trainer is waiting" in said
    assert "worker 1: container trainer is waiting" in said
    server.logs[logs[0]] = {"trainer": "started"}
    assert await server.called("logs", "train") == 0
    shown = capfd.readouterr()
    assert shown.out == "[0] started\n"
    assert shown.err.startswith("not shown: worker 1: container trainer is waiting")


def put_saved(server, attempt, **texts):
    labels = {"gpupack.dev/attempt": str(attempt)}
    meta = {"name": "gpupack-log-uid-train", "namespace": "default", "labels": labels}
    path = "/api/v1/namespaces/default/configmaps/gpupack-log-uid-train"
    server.put(
        path, {"metadata": meta, "data": {key.replace("_", "-"): texts[key] for key in texts}}
    )


@pytest.mark.parametrize("asked", [(), ("--attempt", "2")])
async def test_the_saved_lines_of_a_stopped_attempt_are_shown(server, capfd, asked):
    put_job(server, 2, attempt=2, phase="Suspended")
    put_saved(server, 2, worker_0="a\nsaved\n", worker_1="b\n")
    assert await server.called("logs", "train", "--tail", "1", *asked) == 0
    shown = capfd.readouterr()
    assert shown.out == "[0] saved\n[1] b\n"
    assert "attempt 2 was stopped; these are the last lines of its workers" in shown.err


async def test_logs_of_pods_and_saved_lines_of_deleted_pods_are_shown_together(server, capfd):
    put_job(server, 2, phase="Failed")
    put_saved(server, 1, worker_1="killed\n")
    server.logs[put_worker(server, 0)] = {"trainer": "Traceback"}
    assert await server.called("logs", "train") == 0
    shown = capfd.readouterr()
    assert shown.out == "[0] Traceback\n[1] killed\n"
    assert shown.err == "the pod of worker 1 was deleted; these are its last lines\n"


async def test_a_pod_deleted_during_the_command_is_shown_by_its_saved_lines(server, capfd):
    put_job(server, 2)
    put_saved(server, 1, worker_0="a\n", worker_1="b\n")
    server.deleted_at_read = {put_worker(server, worker) for worker in (0, 1)}
    assert await server.called("logs", "train") == 0
    assert capfd.readouterr().out == "[0] a\n[1] b\n"


async def test_the_saved_lines_of_another_attempt_are_not_shown(server, capfd):
    put_job(server, 1, attempt=3, phase="Suspended")
    put_saved(server, 3, worker_0="third\n")
    assert await server.called("logs", "train", "--attempt", "1") == 66
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "attempt 1 of train" in shown.err


async def test_saved_lines_are_newer_than_the_pods_of_a_failed_attempt(server, capfd):
    put_job(server, 1, attempt=2, phase="Suspended")
    server.logs[put_worker(server, 0)] = {"trainer": "failed"}
    put_saved(server, 2, worker_0="stopped\n")
    assert await server.called("logs", "train") == 0
    assert await server.called("logs", "train", "--attempt", "1") == 0
    assert capfd.readouterr().out == "stopped\nfailed\n"


@pytest.mark.parametrize(
    ("attempt", "asked", "says"),
    [
        (0, (), "has not started yet"),
        (3, ("--attempt", "4"), "has no attempt 4; its last one is 3"),
        (3, ("--attempt", "1"), "no saved log; only the pods of the last two failed attempts"),
    ],
)
async def test_deleted_logs_are_reported_with_the_retention_rule(
    server, capfd, attempt, asked, says
):
    put_job(server, 1, attempt=attempt, phase="Suspended")
    put_saved(server, 2, worker_0="other\n")
    assert await server.called("logs", "train", *asked) == 66
    shown = capfd.readouterr()
    assert (shown.out, says in shown.err) == ("", True)
