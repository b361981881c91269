# SPDX-License-Identifier: Apache-2.0
"""The largest status that there can be, made by the functions that make statuses."""

import json

from msgspec import structs

from gpupack_crds import indices
from gpupack_crds.devices import MAX_UUID, DeviceShare
from gpupack_crds.gpujob import MAX_GPUS, MAX_WORKERS
from gpupack_crds.gpujob_status import EndedWorkers, GpuJobStatus
from gpupack_crds.placement import WorkerPlacement, by_node
from gpupack_crds.wire import stored_bytes
from gpupack_operator.decision import attempts, extra_workers, readings
from gpupack_operator.decision.conditions import Type, Writer
from gpupack_operator.decision.view import Verdict
from gpupack_operator.decision.workers import Worker
from gpupack_operator.planned_spec import MAX_STORED_BYTES, planned_pods

MIB = 1 << 20
LONGEST = "<" * 100_000
"""Go writes each of these with six bytes."""
GPUS_OF_WORKER = MAX_GPUS // MAX_WORKERS


def largest_placement(name_length):
    """Each worker on a node of its own, with a name as long; GPUs of different sizes."""

    def gpus(worker):
        uuids = (f"GPU-{worker * GPUS_OF_WORKER + n}".ljust(MAX_UUID, "f") for n in range(4))
        memory = (900_000, 800_000, 700_000, 600_000)
        return tuple(
            DeviceShare(uuid=uuid, percent=100, memory_mib=each)
            for uuid, each in zip(uuids, memory, strict=True)
        )

    return by_node(
        WorkerPlacement(worker, f"{worker}".ljust(name_length, "n"), gpus(worker))
        for worker in range(MAX_WORKERS)
    )


def largest(build, *, name_length):
    """After 25 attempts, with all that a hostile tenant or a kubelet can say."""
    lost = Verdict(outcome="Infrastructure", reason="NodeLost", message=LONGEST)
    status, placement = GpuJobStatus(), largest_placement(name_length)
    for _ in range(25):
        status = attempts.begin_attempt(status, placement, build.at(0))
        status = attempts.end_attempt(status, lost, build.at(1))
    metrics = {"text": "<" * 3800}
    result = {"schema": "gpupack.dev/result/v1", "headline": "<" * 64, "workload": "<" * 64}
    message = json.dumps(result | {"metrics": metrics})
    pods = [
        build.pod(index, phase="Succeeded", exit_code=0, message=message)
        for index in range(MAX_WORKERS)
    ]
    results = readings.read(tuple(map(Worker, pods))).results
    writer = Writer(now=build.at(0), generation=1)
    for kind in Type:
        status = writer.set(status, kind, "True", "R" * 128, LONGEST)
    status = extra_workers.with_width(
        build.gpujob(workers=MAX_WORKERS, minWorkers=MAX_WORKERS - 1).spec,
        status,
        why=extra_workers.EndReason("R" * 128, LONGEST),
        at=build.at(0),
    )
    pod = {"nodeSelector": {"pool": "<" * ((MAX_STORED_BYTES - 64) // 6)}}
    planned = planned_pods({"": json.dumps(pod).encode()})[""]
    every_second = indices.written(range(0, MAX_WORKERS, 2))
    ended = EndedWorkers(
        succeeded=every_second, ignored=every_second, last_at=build.stamp(0), results=results
    )
    return structs.replace(status, ended_workers=ended, planned_pod=planned)


def test_the_largest_status_fits_into_etcd(build):
    status = largest(build, name_length=253)
    assert (len(status.placement), len(status.attempts)) == (MAX_WORKERS, 20)
    assert status.ended_workers.results
    assert not status.planned_pod.omitted
    assert stored_bytes(status) < MIB


def test_the_largest_placement_with_usual_node_names_is_below_400_kib():
    assert stored_bytes(largest_placement(name_length=40)) < 400 * 1024


def test_the_placement_of_4096_gpus_with_usual_names_is_below_300_kib():
    pairs = [(worker, f"gpu-node-{worker // 2:04}.cluster.example.org") for worker in range(1024)]
    gpu = [
        DeviceShare(uuid=f"GPU-{number:036}", percent=100, memory_mib=81559)
        for number in range(MAX_GPUS)
    ]
    gang = [WorkerPlacement(w, node, tuple(gpu[4 * w : 4 * w + 4])) for w, node in pairs]
    assert stored_bytes(by_node(gang)) < 300 * 1024
