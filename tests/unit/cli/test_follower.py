# SPDX-License-Identifier: Apache-2.0
"""A job is followed over slow starts, lost connections and new attempts, to its end."""

import asyncio
import io
import json

import msgspec
import pytest
from aiohttp import web
from fake_api import connected, status

from gpupack_cli import follower, worker_log
from gpupack_cli.errors import JobFailed
from gpupack_cli.follower import Follower
from gpupack_cli.log_sink import LogSink
from gpupack_cli.watching import raise_failure
from gpupack_crds.kinds import GpuJob
from gpupack_kubeclient.client import DEFAULT_MAX_OBJECT_MIB
from gpupack_kubeclient.errors import Forbidden, NotFound
from gpupack_terminal.screens import Size, decide_screen

JOBS = "/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs"
PODS = "/api/v1/namespaces/team/pods"
PIPE = decide_screen(None, "utf-8", {})
TERMINAL = decide_screen(Size(80, 24), "utf-8", {})
WITHOUT_COLOURS = decide_screen(Size(80, 24), "utf-8", {"NO_COLOR": "1"})
LONGEST = DEFAULT_MAX_OBJECT_MIB << 20
"""Maximum bytes of a line that is shown completely, with its time."""


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch):
    monkeypatch.setattr(follower, "LOST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(worker_log, "LOST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(worker_log, "START_PAUSE_SECONDS", (0.01,) * 1000)


def job(phase="Pending", reason="", message="", workers=1, uid="uid-1"):
    return {
        "metadata": {"namespace": "team", "name": "train", "uid": uid},
        "spec": {"workers": workers, "gpus": 1},
        "status": {"phase": phase, "reason": reason, "message": message},
    }


def pod(worker=0, attempt=1, *, exit_code=None, node="a"):
    name = f"train-{attempt}-{worker}"
    labels = {
        "gpupack.dev/attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(worker),
    }
    state = {"running": {}} if exit_code is None else {"terminated": {"exitCode": exit_code}}
    return {
        "metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {"nodeName": node},
        "status": {
            "phase": "Running" if exit_code is None else "Failed" if exit_code else "Succeeded",
            "containerStatuses": [{"name": "worker", "state": state}],
        },
    }


class Cluster:
    """An API server with watches and logs that a test writes; both may break."""

    def __init__(self):
        self.events = {JOBS: [], PODS: []}
        self.changed = asyncio.Condition()
        self.logs = {}
        self.log_calls = []
        self.break_watches = self.break_logs = self.watches = 0
        self.unknown_to_kubelet = self.cut_logs = 0
        self.refusals = []
        self.watch_refusals = []
        self.pods_away = False
        self.late_seconds = 0.0
        """Return the pods that a watch shows first."""

    async def show(self, path, item, kind="MODIFIED"):
        async with self.changed:
            self.events[path].append({"type": kind, "object": item})
            self.changed.notify_all()

    def newest(self, path):
        """Return the existing pods."""
        last = {e["object"]["metadata"]["uid"]: e for e in self.events[path]}
        return {uid: e["object"] for uid, e in last.items() if e["type"] != "DELETED"}

    async def answer(self, request):
        if request.path.endswith("/log"):
            return await self.log(request)
        if "watch" in request.query:
            return await self.watch(request)
        if request.path == PODS:
            items = list(self.newest(PODS).values())
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        name = request.path.rpartition("/")[2]
        if self.pods_away and request.path.startswith(PODS):
            return status(503, "ServiceUnavailable")
        kept = self.newest(JOBS if request.path.startswith(JOBS) else PODS)
        for item in kept.values():
            if item["metadata"]["name"] == name:
                return web.json_response(item)
        return status(404, "NotFound")

    async def watch(self, request):
        self.watches += 1
        if self.watch_refusals:
            return status(self.watch_refusals.pop(), "Busy")
        if request.path == PODS:
            await asyncio.sleep(self.late_seconds)
        response = web.StreamResponse()
        await response.prepare(request)
        known = self.newest(request.path)
        seen = len(self.events[request.path])
        for item in known.values():
            await response.write(json.dumps({"type": "ADDED", "object": item}).encode() + b"\n")
        while True:
            events = self.events[request.path]
            async with self.changed:
                while len(events) == seen:
                    await self.changed.wait()
                news = events[seen:]
                seen = len(events)
            if self.break_watches:
                self.break_watches -= 1
                request.transport.abort()
                return response
            for event in news:
                await response.write(json.dumps(event).encode() + b"\n")

    async def log(self, request):
        name = request.path.split("/")[-2]
        self.log_calls.append(dict(request.query))
        if self.refusals:
            return status(self.refusals.pop(), "Busy")
        if self.unknown_to_kubelet:
            self.unknown_to_kubelet -= 1
            return status(404, "NotFound", "the server could not find the requested resource")
        if name not in self.logs:
            return status(400, "BadRequest", "container is waiting to start: ContainerCreating")
        response = web.StreamResponse()
        await response.prepare(request)
        if self.cut_logs:
            # The container has ended; the watch has not shown it yet.
            self.cut_logs -= 1
            self.events[PODS].append({"type": "MODIFIED", "object": pod(exit_code=0)})
            return response
        first = request.query.get("sinceTime", "")[:19]
        for line in list(self.logs[name]):
            if line[:19] >= first:
                await response.write(line.encode() + b"\n")
                if self.break_logs:
                    self.break_logs -= 1
                    request.transport.abort()
                    return response
        while "follow" in request.query and not self.is_over(name):
            await asyncio.sleep(0.01)
        return response

    def is_over(self, name):
        return any(
            "terminated" in item["status"]["containerStatuses"][0]["state"]
            for item in self.newest(PODS).values()
            if item["metadata"]["name"] == name
        )


@pytest.fixture
async def cluster():
    made = Cluster()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    async with connected(app) as (api, _):
        made.api = api
        yield made


def lines(*texts, second=1):
    return [f"2026-11-25T12:00:{second:02}.{i:09}Z {text}" for i, text in enumerate(texts)]


@pytest.fixture
def following(cluster):
    out = io.BytesIO()
    text = io.TextIOWrapper(out)

    def start(first=None, **options):
        seen = msgspec.convert(first or job(), GpuJob)
        sink = LogSink(text, PIPE)
        made = Follower(cluster.api, seen, sink, **options)
        return made, asyncio.create_task(made.follow())

    start.shown = lambda: out.getvalue().decode().splitlines()
    return start


async def ends(task):
    async with asyncio.timeout(30):
        return await task


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_job_is_followed_from_pending_to_its_end(cluster, following, capsys):
    made, task = following()
    await cluster.show(JOBS, job("Pending", "TooFewFreeGpus", "8 are missing"))
    await cluster.show(PODS, pod())
    await until(lambda: len(cluster.log_calls) > 2)
    cluster.logs["train-1-0"] = lines("one", "two")
    await until(lambda: following.shown() == ["one", "two"])
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    assert (await ends(task)).status.phase == "Succeeded"
    assert made.status == 0
    printed = capsys.readouterr().err
    assert "Pending (TooFewFreeGpus): 8 are missing" in printed
    assert "Succeeded (Completed)" in printed


async def test_a_log_is_requested_again_until_the_kubelet_knows_the_pod(cluster, following):
    _, task = following()
    cluster.unknown_to_kubelet = 2
    cluster.logs["train-1-0"] = lines("one")
    await cluster.show(PODS, pod())
    await until(lambda: following.shown() == ["one"])
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    await ends(task)
    assert following.shown() == ["one"]


async def test_the_end_of_a_log_is_read_once_more(cluster, following):
    _, task = following()
    cluster.cut_logs = 1
    cluster.logs["train-1-0"] = lines("one", "two")
    await cluster.show(PODS, pod())
    await until(lambda: following.shown() == ["one", "two"])
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    await ends(task)
    assert following.shown() == ["one", "two"]


async def test_the_exit_code_of_a_failed_worker_is_the_exit_status(cluster, following):
    cluster.logs["train-1-0"] = lines("oops")
    made, task = following()
    await cluster.show(PODS, pod(exit_code=3))
    await cluster.show(JOBS, job("Failed", "WorkerFailed", "exit code 3"))
    ended = await ends(task)
    assert following.shown() == ["oops"]
    with pytest.raises(JobFailed, match="train failed: exit code 3") as error:
        raise_failure(ended, made.status)
    assert error.value.status == 3


async def test_a_failed_job_without_workers_has_exit_status_one():
    ended = msgspec.convert(job("Failed", "DeadlineExceeded"), GpuJob)
    with pytest.raises(JobFailed, match="DeadlineExceeded") as error:
        raise_failure(ended, 0)
    assert error.value.status == 1


async def test_after_a_lost_connection_the_log_continues(cluster, following, capsys):
    cluster.logs["train-1-0"] = lines(*map(str, range(6)))
    cluster.break_logs = 3
    _, task = following()
    await cluster.show(PODS, pod())
    await until(lambda: len(following.shown()) == 6)
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    await ends(task)
    assert following.shown() == list(map(str, range(6)))
    assert "connection was lost" in capsys.readouterr().err


async def test_a_silent_program_is_not_a_lost_connection(cluster, following, capsys, monkeypatch):
    monkeypatch.setattr(worker_log, "SILENCE_SECONDS", 0.05)
    cluster.logs["train-1-0"] = lines("one")
    _, task = following()
    await cluster.show(PODS, pod())
    await until(lambda: len(cluster.log_calls) > 5)
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    await ends(task)
    assert following.shown() == ["one"]
    assert "connection" not in capsys.readouterr().err


async def test_a_silent_log_of_an_unavailable_server_is_a_lost_connection(
    cluster, following, capsys, monkeypatch
):
    monkeypatch.setattr(worker_log, "SILENCE_SECONDS", 0.05)
    cluster.logs["train-1-0"] = lines("one")
    _, task = following()
    await cluster.show(PODS, pod())
    await until(following.shown)
    cluster.pods_away = True
    await until(lambda: "connection was lost" in capsys.readouterr().err)
    cluster.pods_away = False
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    await ends(task)


async def test_the_container_that_requests_the_gpus_is_the_worker(cluster, following):
    found = pod(exit_code=3)
    gpus = {"limits": {"gpupack.dev/gpu": "1"}}
    found["spec"]["containers"] = [{"name": "proxy"}, {"name": "trainer", "resources": gpus}]
    found["status"] |= {"phase": "Running"}
    found["status"]["containerStatuses"][0]["name"] = "trainer"
    cluster.logs["train-1-0"] = lines("one")
    made, task = following()
    await cluster.show(PODS, found)
    await cluster.show(JOBS, job("Failed", "WorkerFailed"))
    await ends(task)
    assert (following.shown(), made.status) == (["one"], 3)
    assert {call["container"] for call in cluster.log_calls} == {"trainer"}


async def test_broken_watches_are_opened_again(cluster, following):
    cluster.logs["train-1-0"] = lines("one")
    _, task = following()
    await cluster.show(PODS, pod())
    await until(lambda: following.shown() == ["one"])
    cluster.break_watches = 2
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    assert (await ends(task)).status.phase == "Succeeded"


async def test_the_log_of_the_next_attempt_follows_and_its_status_counts(cluster, following):
    made, task = following()
    cluster.logs["train-1-0"] = lines("first try")
    await cluster.show(PODS, pod(exit_code=9))
    await until(lambda: following.shown() == ["first try"])
    cluster.logs["train-2-0"] = lines("second try", second=30)
    await cluster.show(PODS, pod(attempt=2, exit_code=0))
    await until(lambda: len(following.shown()) == 2)
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    await ends(task)
    assert following.shown() == ["first try", "second try"]
    assert made.status == 0


async def test_lines_of_several_workers_have_prefixes(cluster, following):
    cluster.logs |= {"train-1-0": lines("a"), "train-1-1": lines("b")}
    _, task = following(job(workers=2))
    for worker in (0, 1):
        await cluster.show(PODS, pod(worker, exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed", workers=2))
    await ends(task)
    assert sorted(following.shown()) == ["[0] a", "[1] b"]


def shared_pod(*, codes=(None, None), ended_at=("", "")):
    """Return a pod with workers 0 and 1, and a sidecar."""
    found = pod()
    gpus = {"limits": {"gpupack.dev/gpu": "1"}}
    containers = [{"name": f"worker-{i}", "resources": gpus} for i in range(2)]
    found["spec"]["containers"] = [{"name": "proxy"}, *containers]
    states = [
        {"running": {}} if code is None else {"terminated": {"exitCode": code, "finishedAt": at}}
        for code, at in zip(codes, ended_at, strict=True)
    ]
    found["status"] = {
        "phase": "Running",
        "containerStatuses": [
            {"name": f"worker-{i}", "state": state} for i, state in enumerate(states)
        ],
    }
    return found


async def test_each_worker_of_a_shared_pod_is_followed_to_its_own_end(cluster, following):
    cluster.logs |= {"train-1-0": lines("a")}
    made, task = following(job(workers=2))
    await cluster.show(PODS, shared_pod())
    await until(lambda: sorted(following.shown()) == ["[0] a", "[1] a"])
    ended_at = ("2026-11-25T12:00:09Z", "2026-11-25T12:00:02Z")
    await cluster.show(PODS, shared_pod(codes=(137, 3), ended_at=ended_at))
    await cluster.show(JOBS, job("Failed", "WorkerFailed", workers=2))
    await ends(task)
    assert made.status == 3, "the worker that failed first, not one that was stopped for it"
    assert {call["container"] for call in cluster.log_calls} == {"worker-0", "worker-1"}


async def test_only_the_named_worker_of_a_shared_pod_is_followed(cluster, following):
    cluster.logs |= {"train-1-0": lines("a")}
    _, task = following(job(workers=2), workers=frozenset({1}))
    await cluster.show(PODS, shared_pod(codes=(0, 0), ended_at=("2026-11-25T12:00:09Z",) * 2))
    await cluster.show(JOBS, job("Succeeded", "Completed", workers=2))
    await ends(task)
    assert following.shown() == ["a"]
    assert {call["container"] for call in cluster.log_calls} == {"worker-1"}


async def test_of_many_workers_only_the_first_is_followed_by_default(cluster, following):
    cluster.logs |= {f"train-1-{i}": lines(str(i)) for i in range(9)}
    for options in ({}, {"workers": frozenset({7})}):
        _, task = following(job(workers=9), **options)
        for worker in range(9):
            await cluster.show(PODS, pod(worker, exit_code=0))
        await cluster.show(JOBS, job("Succeeded", "Completed", workers=9))
        await ends(task)
    assert following.shown() == ["0", "7"]


@pytest.mark.parametrize("break_watches", [0, 1])
async def test_a_deleted_job_ends_the_following(cluster, following, break_watches):
    _, task = following()
    await cluster.show(JOBS, job("Pending", "TooFewFreeGpus"))
    await until(lambda: cluster.watches == 2)
    cluster.break_watches = break_watches
    await cluster.show(JOBS, job(), kind="DELETED")
    with pytest.raises(ExceptionGroup) as group:
        await ends(task)
    assert group.group_contains(NotFound, match="team/train was deleted")


async def test_a_new_job_of_the_same_name_is_not_followed(cluster, following):
    _, task = following()
    await cluster.show(JOBS, job("Succeeded", uid="uid-2"))
    with pytest.raises(ExceptionGroup):
        await ends(task)


async def test_a_log_keeps_colours_on_a_terminal_and_all_bytes_in_a_pipe():
    line = b"\x1b[31mred\x1b[0m\x1b]0;owned\x07\xff"
    for screen, raw, shown in (
        (TERMINAL, False, "\x1b[31mred\x1b[0m\ufffd\x1b[0m\n".encode()),
        (WITHOUT_COLOURS, False, "red\ufffd\n".encode()),
        (TERMINAL, True, line + b"\n"),
        (PIPE, False, line + b"\n"),
    ):
        out = io.BytesIO()
        sink = LogSink(io.TextIOWrapper(out, encoding="utf-8"), screen, raw=raw)
        await sink.write("", line)
        assert out.getvalue() == shown


async def test_a_server_that_is_busy_does_not_end_the_following(cluster, following):
    cluster.refusals = [500, 503, 429]
    cluster.logs["train-1-0"] = lines("one")
    _, task = following()
    await cluster.show(PODS, pod())
    await until(lambda: following.shown() == ["one"])
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    assert (await ends(task)).status.phase == "Succeeded"


async def test_a_server_that_is_restarted_does_not_end_the_following(cluster, following):
    cluster.watch_refusals = [503, 500, 429, 503]
    cluster.logs["train-1-0"] = lines("one")
    _, task = following()
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    assert (await ends(task)).status.phase == "Succeeded"
    assert following.shown() == ["one"]


async def test_a_finished_job_is_shown_completely_with_a_slow_watch(cluster, following):
    cluster.late_seconds = 1.0
    cluster.logs["train-1-0"] = lines("one", "two")
    await cluster.show(PODS, pod(exit_code=3))
    await cluster.show(JOBS, job("Failed", "WorkerFailed"))
    _, task = following()
    found = await ends(task)
    assert following.shown() == ["one", "two"]
    assert found.status.phase == "Failed"


async def test_a_missing_permission_for_logs_is_reported(cluster, following):
    cluster.refusals = [403]
    _, task = following()
    await cluster.show(PODS, pod())
    with pytest.raises(ExceptionGroup) as group:
        await ends(task)
    assert group.group_contains(Forbidden)


async def test_a_too_long_line_is_cut_and_its_size_is_shown(cluster, following):
    cluster.logs["train-1-0"] = lines("x" * (LONGEST + 100))
    _, task = following()
    await cluster.show(PODS, pod())
    await until(following.shown)
    (shown,) = following.shown()
    assert shown.startswith("xxx")
    left = int(shown.rpartition(" … ")[2].removesuffix(" bytes more"))
    assert shown.count("x") + left == LONGEST + 100
    await cluster.show(PODS, pod(exit_code=0))
    await cluster.show(JOBS, job("Succeeded", "Completed"))
    await ends(task)
