# SPDX-License-Identifier: Apache-2.0
import math
import time

import msgspec

from gpupack_agent.node_pod import NodePod
from gpupack_agent.pods import DeviceRequest, PodStore, view
from gpupack_crds import names


def decode(body):
    return msgspec.convert(body, NodePod)


def test_a_pod_is_reduced_to_its_request_and_its_annotation(build):
    pod = view(decode(build.pod_json("a", build.share(), phase="Succeeded")))
    assert pod.requests == (DeviceRequest(container="worker", resource=names.GPU, count=1),)
    assert pod.annotation == '[{"uuid":"GPU-0","percent":100,"memoryMiB":1000}]'
    assert pod.finished
    assert not pod.started


def test_a_pod_has_started_once_a_container_ran(build):
    body = build.pod_json()
    body["status"]["containerStatuses"] = [
        {"name": "worker", "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}
    ]
    assert view(decode(body)).started


def test_a_pod_has_not_started_while_only_a_container_without_devices_ran(build):
    body = build.pod_json()
    body["status"]["containerStatuses"] = [{"name": "logger", "state": {"running": {}}}]
    assert not view(decode(body)).started


def test_a_pod_whose_sidecar_holds_the_devices_has_started_with_it(build):
    body = build.pod_json()
    (sidecar,) = body["spec"].pop("containers")
    body["spec"]["initContainers"] = [sidecar | {"restartPolicy": "Always"}]
    body["status"]["initContainerStatuses"] = [{"name": "worker", "state": {"running": {}}}]
    assert view(decode(body)).started


def test_requests_are_in_the_order_of_the_containers_and_those_of_sidecars_follow(build):
    body = build.pod_json(gpus={"y": 2, "x": 1})
    of_init = build.pod_json(gpus={"side": 3, "setup": 1})["spec"]["containers"]
    of_init[0]["restartPolicy"] = "Always"
    body["spec"]["initContainers"] = of_init
    pod = view(decode(body))
    assert pod.requests == build.requests(y=2, x=1, side=3)
    assert pod.plain_init_containers == ("setup",)


def test_an_empty_list_of_workers_shares_no_pod(build):
    body = build.pod_json()
    annotations = body["metadata"].setdefault("annotations", {})
    annotations[names.WORKERS_ANNOTATION] = "0-1"
    assert view(decode(body)).is_shared
    annotations[names.WORKERS_ANNOTATION] = ""
    assert not view(decode(body)).is_shared


def test_pods_that_request_no_devices_are_not_kept(build):
    store = PodStore()
    store.replace([decode(build.pod_json("a")), decode(build.pod_json("b", gpus=0))])
    assert [pod.name for pod in store.by_uid.values()] == ["a"]


def test_only_unfinished_pods_with_the_same_request_are_candidates(build):
    store = PodStore()
    store.upsert(decode(build.pod_json("one")))
    store.upsert(decode(build.pod_json("two", gpus=2)))
    store.upsert(decode(build.pod_json("done", phase="Failed")))
    assert [pod.name for pod in store.requesting(names.GPU, 1)] == ["one"]
    assert store.requesting(names.GPU_SHARE, 1) == []


def test_a_pod_of_the_same_name_does_not_hide_its_predecessor(build):
    store = PodStore()
    store.upsert(decode(build.pod_json("a", uid="1")))
    store.upsert(decode(build.pod_json("a", uid="2")))
    store.remove(decode(build.pod_json("a", uid="1")))
    assert list(store.by_uid) == ["2"]


def test_a_pod_records_when_it_finished_or_that_it_had_finished_before(build):
    store = PodStore()
    store.replace([decode(build.pod_json("old", phase="Succeeded")), decode(build.pod_json("a"))])
    before = time.monotonic()
    store.upsert(decode(build.pod_json("a", phase="Failed")))
    first = store.by_uid["uid-a"].finished_at
    assert before <= first <= time.monotonic()
    assert store.by_uid["uid-old"].finished_at == -math.inf
    store.replace([decode(build.pod_json("a", phase="Failed"))])
    assert store.by_uid["uid-a"].finished_at == first
