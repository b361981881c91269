# SPDX-License-Identifier: Apache-2.0
"""The last lines of workers are saved while their pods end, within bounds."""

import asyncio

import pytest
from aiohttp import web
from fake_api import ApiServer, connected, status
from msgspec import structs

from gpupack_operator import log_tails
from gpupack_operator.actions import Actor
from gpupack_operator.decision.decide import decide
from gpupack_operator.decision.model import LogSource, SaveLogs
from gpupack_operator.decision.nodes import Provisioning
from gpupack_operator.log_tails import MAX_SAVED_BYTES, MAX_TAIL_BYTES, LogTails, Tail
from gpupack_operator.manifests.pod import PodDefaults
from gpupack_operator.metrics import Metrics

SAVED = "/api/v1/namespaces/team/configmaps/gpupack-log-uid-of-train"


class Kubelet(ApiServer):
    """Programs that print; each test says what, and when they end."""

    def __init__(self):
        super().__init__()
        self.printed = {}
        self.ended = asyncio.Event()
        self.endless = False

    async def answer(self, request):
        if not request.path.endswith("/log"):
            return await super().answer(request)
        lines = self.printed.get(request.path.split("/")[-2])
        if lines is None:
            return status(404, "NotFound")
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(lines[0])
        while self.endless:
            await response.write(b"x" * 65535 + b"\n")
        await self.ended.wait()
        for line in lines[1:]:
            await response.write(line)
        return response


@pytest.fixture
async def kubelet():
    made = Kubelet()
    async with connected(made.app()) as (api, _):
        made.metrics = Metrics()
        made.tails = LogTails(api, made.metrics.count_unsaved_logs)
        yield made


def wanted(*workers, attempt=1):
    sources = (LogSource(each, f"train-{attempt}-{each}", "worker") for each in workers)
    return SaveLogs(attempt, tuple(sources))


async def saved(kubelet):
    async with asyncio.timeout(30):
        while kubelet.tails._tasks:
            await asyncio.sleep(0.01)
    return kubelet.objects.get(SAVED)


async def test_the_output_of_workers_is_saved_until_their_end(kubelet, build):
    kubelet.printed = {"train-1-0": [b"step 1\n", b"saved\n"], "train-1-1": [b"b\n"]}
    await kubelet.tails.save(build.gpujob(), wanted(0, 1))
    assert SAVED not in kubelet.objects
    kubelet.ended.set()
    found = await saved(kubelet)
    assert found["data"] == {"worker-0": "step 1\nsaved\n", "worker-1": "b\n"}
    assert found["metadata"]["labels"]["gpupack.dev/attempt"] == "1"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-of-train"


async def test_the_log_of_the_next_attempt_replaces_the_last_one(kubelet, build):
    kubelet.ended.set()
    kubelet.printed = {"train-1-0": [b"one\n"], "train-2-0": [b"two\n"]}
    for attempt in (1, 2):
        await kubelet.tails.save(build.gpujob(), wanted(0, attempt=attempt))
        found = await saved(kubelet)
    assert (found["data"], found["metadata"]["labels"]["gpupack.dev/attempt"]) == (
        {"worker-0": "two\n"},
        "2",
    )


async def test_nothing_is_saved_if_no_log_can_be_read(kubelet, build):
    await kubelet.tails.save(build.gpujob(), wanted(0))
    assert await saved(kubelet) is None


async def test_an_operator_without_saved_logs_reads_none(kubelet, build):
    async with connected(kubelet.app()) as (api, _):
        pods = PodDefaults(workload_image="x", launcher_image="x")
        actor = Actor(api, None, defaults=pods, reporter="o", tails=None)
        kubelet.printed = {"train-1-0": [b"one\n"]}
        await actor.save_logs(build.gpujob(), wanted(0))
        assert "save logs" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_a_refused_write_of_a_log_raises_no_error(kubelet, build):
    kubelet.ended.set()
    kubelet.printed = {"train-1-0": [b"one\n"]}
    kubelet.refuse = {"configmaps": (403, "Forbidden", "exceeded quota")}
    await kubelet.tails.save(build.gpujob(), wanted(0))
    assert await saved(kubelet) is None


async def test_an_endless_log_is_read_up_to_a_limit_and_saved_in_part(kubelet, build, monkeypatch):
    monkeypatch.setattr(log_tails, "MAX_READ_BYTES", 1 << 20)
    kubelet.endless = True
    kubelet.printed = {"train-1-0": [b"one\n"]}
    await kubelet.tails.save(build.gpujob(), wanted(0))
    found = await saved(kubelet)
    assert 0 < len(found["data"]["worker-0"]) <= MAX_TAIL_BYTES


async def test_a_silent_program_delays_the_deletion_only_briefly(kubelet, build, monkeypatch):
    monkeypatch.setattr(log_tails, "OPEN_SECONDS", 0.05)
    kubelet.printed = {"train-1-0": [b"", b"late\n"]}
    async with asyncio.timeout(30):
        await kubelet.tails.save(build.gpujob(), wanted(0))
    kubelet.ended.set()
    assert (await saved(kubelet))["data"] == {"worker-0": "late\n"}


def left_out(kubelet):
    return kubelet.metrics.registry.get_sample_value("gpupack_operator_logs_left_out_total")


async def test_each_namespace_has_a_limited_number_of_streams(kubelet, build, monkeypatch):
    monkeypatch.setattr(log_tails, "MAX_NAMESPACE_STREAMS", 2)
    kubelet.printed = {f"train-{n}-{i}": [b"x\n"] for n in (1, 2) for i in range(3)}
    assert left_out(kubelet) == 0
    await kubelet.tails.save(build.gpujob(), wanted(0, 1, 2))
    await kubelet.tails.save(build.gpujob(), wanted(0, attempt=2))
    assert len(kubelet.tails._tasks) == 1
    assert left_out(kubelet) == 2
    kubelet.ended.set()
    assert (await saved(kubelet))["data"].keys() == {"worker-0", "worker-1"}
    assert kubelet.tails._streams.total() == 0


def test_a_tail_has_the_last_whole_lines():
    tail = Tail(10)
    for line in (b"first", b"second", b"\xff"):
        tail.add(line)
    assert tail.text == "second\n\ufffd\n"
    assert MAX_SAVED_BYTES < 1 << 20


@pytest.mark.parametrize("provisioning", [None, Provisioning(class_name="atomic")])
def test_all_logs_of_a_suspended_job_are_saved_before_its_pods_are_deleted(build, provisioning):
    job = build.admitted(nodes=("a", "b"))
    job = structs.replace(job, spec=structs.replace(job.spec, suspend=True))
    pods = [build.pod(0), build.pod(1)]
    seen = build.see(job, jobs=[build.job()], pods=pods, provisioning=provisioning)
    decision = decide(seen)
    assert [each.worker for each in decision.logs.sources] == [0, 1]
    assert decision.logs.sources[0] == LogSource(0, "train-1-0-x", "worker")


def test_a_failed_gang_saves_only_logs_of_pods_that_are_deleted(build):
    failed = build.pod(0, phase="Failed", exit_code=1, ended=5)
    gang = build.admitted(nodes=("a", "b"))
    seen = build.see(gang, jobs=[build.job()], pods=[failed, build.pod(1)])
    assert [each.worker for each in decide(seen).logs.sources] == [1]


def test_no_log_of_a_succeeded_job_is_saved(build):
    done = build.pod(0, phase="Succeeded", exit_code=0, ended=5)
    assert decide(build.see(build.admitted(), jobs=[build.job()], pods=[done])).logs is None
