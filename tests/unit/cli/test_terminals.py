# SPDX-License-Identifier: Apache-2.0
"""The commands as processes: on a terminal, in a pipe, and in a pipe that no process reads."""

import asyncio
import json
import shlex

import pytest
from command_process import CLI, in_closed_pipe, in_pipe, on_terminal

JOBS = "/apis/gpupack.dev/v1beta1/namespaces/default/gpujobs"
NODES = "/apis/gpupack.dev/v1beta1/gpunodes"
PODS = "/api/v1/namespaces/default/pods"
JOB = "a-training-run-whose-name-is-as-long-as-names-get-ok"
MESSAGE = "insufficient quota: " + "8 GPUs requested " * 20
UUIDS = [f"GPU-{index}f3b1c9e-1111-2222-3333-44445555666{index}" for index in range(8)]
REST = ["--server", "https://127.0.0.1:9"]
ESCAPE = "\x1b"


def job(name, phase):
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "spec": {"workers": 1, "gpus": 8},
        "status": {"phase": phase, "reason": "QuotaExceeded", "message": MESSAGE, "gpus": "8"},
    }


def node(name):
    devices = [
        {"index": index, "uuid": uuid, "model": "NVIDIA H100 80GB HBM3", "memoryMiB": 81559}
        for index, uuid in enumerate(UUIDS)
    ]
    status = {"model": "NVIDIA H100 80GB HBM3", "gpus": 8, "free": 8, "devices": devices}
    return {"metadata": {"name": name}, "spec": {}, "status": status}


@pytest.fixture
async def run(server):
    """Return a function that runs a command in an environment, on a fake API server."""
    server.put(f"{JOBS}/{JOB}", job(JOB, "Pending"))
    server.put(f"{JOBS}/other", job("other", "Running"))
    server.put(f"{NODES}/gpu-1", node("gpu-1"))

    async def ended(where, *arguments, **environ):
        command = [*CLI, *arguments]
        environ |= {"KUBECONFIG": server.kubeconfig}
        if where in {in_pipe, in_closed_pipe}:
            return await asyncio.to_thread(where, command, **environ)
        return await asyncio.to_thread(on_terminal, command, where, **environ)

    return ended


@pytest.mark.parametrize(
    ("where", "form"), [(80, "table"), (80, "wide"), (120, "wide"), (in_pipe, "table")]
)
async def test_names_and_uuids_are_never_cut(run, where, form):
    assert JOB in (await run(where, "jobs", "-o", form)).out
    shown = (await run(where, "gpu", "show", "gpu-1", "-o", form)).out
    assert [uuid for uuid in UUIDS if uuid in shown] == UUIDS


async def test_a_message_is_cut_to_the_terminal_and_complete_with_wide(run):
    narrow = (await run(200, "jobs", NO_COLOR="1")).out
    assert MESSAGE.strip() not in narrow
    assert max(map(len, narrow.splitlines())) <= 200
    for where, form in ((200, "wide"), (in_pipe, "table")):
        assert MESSAGE.strip() in (await run(where, "jobs", "-o", form)).out


@pytest.mark.parametrize(
    "arguments",
    [
        *(["jobs", "-o", form] for form in ("table", "json", "yaml")),
        ["explain", "other", *REST],
        ["top", *REST],
        ["logs", "other"],
        ["completion", "bash"],
        ["--help"],
        ["submit", "--image", "i", "--dry-run", "--", "true"],
    ],
    ids=" ".join,
)
async def test_a_pipe_that_no_process_reads_ends_every_command_alike(run, server, arguments):
    server.put(f"{PODS}/other-1-0", worker("other-1-0"))
    server.logs[f"{PODS}/other-1-0/log"] = {"worker": "one"}
    done = await run(in_closed_pipe, *arguments)
    assert done.status == 141
    assert not any(word in done.err for word in ("Broken", "Traceback", "Exception"))


def worker(name):
    labels = {"gpupack.dev/job-uid": "uid-other", "gpupack.dev/attempt": "1"}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": name, "labels": labels},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "worker"}]},
        "status": {"phase": "Succeeded"},
    }


async def test_notes_to_a_pipe_that_no_process_reads_end_it_as_well(run, server):
    server.objects.clear()
    done = await asyncio.to_thread(
        in_closed_pipe, [*CLI, "jobs"], stream="stderr", KUBECONFIG=server.kubeconfig
    )
    assert done.status == 141


@pytest.mark.parametrize(
    ("where", "environ", "coloured"),
    [
        (80, {}, True),
        (80, {"NO_COLOR": "1"}, False),
        (in_pipe, {}, False),
        (in_pipe, {"CLICOLOR_FORCE": "1"}, True),
    ],
)
async def test_colours_follow_the_environment(run, where, environ, coloured):
    shown = (await run(where, "jobs", **environ)).out
    assert (ESCAPE in shown) == coloured
    assert JOB in shown


@pytest.mark.parametrize(
    ("where", "environ", "bar"),
    [
        (80, {"LC_ALL": "C"}, "........"),
        (in_pipe, {"LC_ALL": "C"}, "········"),
        (in_pipe, {"PYTHONIOENCODING": "ascii"}, "........"),
    ],
)
async def test_characters_outside_the_encoding_are_replaced(run, where, environ, bar):
    done = await run(where, "top", "--once", *REST, **environ)
    assert done.status == 0
    assert bar in done.out


async def test_top_prints_once_on_a_dumb_terminal(run):
    done = await run(80, "top", *REST, TERM="dumb")
    assert (done.status, ESCAPE in done.out) == (0, False)


def test_a_full_disk_is_reported_in_one_line():
    done = in_pipe(["bash", "-c", f"{shlex.join(CLI)} --help > /dev/full"])
    assert done.status == 74
    assert done.err == "gpupack: stdout cannot be written: No space left on device\n"


@pytest.mark.parametrize("phase", ["failed", "FAILED"])
async def test_an_empty_phase_is_reported_with_the_number_of_other_jobs(run, phase):
    done = await run(in_pipe, "jobs", "--phase", phase)
    assert (done.status, done.out) == (0, "")
    assert done.err == ("no GPUJobs in phase Failed in namespace default; 2 in other phases\n")
    listed = await run(in_pipe, "jobs", "--phase", "running", "-o", "json")
    assert [each["name"] for each in json.loads(listed.out)["jobs"]] == ["other"]


async def test_an_unknown_phase_is_refused_with_the_known_ones(run):
    done = await run(in_pipe, "jobs", "--phase", "broken")
    assert done.status == 2
    assert "'broken' is not one of 'pending', 'admitted', 'running'" in done.err
