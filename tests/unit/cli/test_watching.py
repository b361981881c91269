# SPDX-License-Identifier: Apache-2.0
"""The followed job when signals end the command."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE

import pytest
from command_process import CLI, SECONDS, environment

from gpupack_cli.errors import JobFailed
from gpupack_cli.watching import follow_to_end
from gpupack_crds.kinds import GPUJOBS

PATH = "/apis/gpupack.dev/v1beta1/namespaces/team/gpujobs/train"
POD = "/api/v1/namespaces/team/pods/train-1-0"


@pytest.mark.parametrize(("ended_by", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_signals_detach_from_the_job(server, ended_by, status, capsys):
    metadata = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    server.put(PATH, {"metadata": metadata, "status": {"phase": "Running"}})
    job = await server.api.get(GPUJOBS, "train", namespace="team")
    asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), ended_by)
    with pytest.raises(JobFailed) as ended:
        await follow_to_end(server.api, job)
    assert (ended.value.status, str(ended.value)) == (status, "")
    assert "gpupack logs -f -n team train" in capsys.readouterr().err
    assert PATH in server.objects


async def test_an_interrupted_process_detaches(server):
    """The first line may come before the job runs: the kubelet knows sooner than the operator."""
    metadata = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    server.put(PATH, {"metadata": metadata, "spec": {}, "status": {"phase": "Admitted"}})
    labels = {"gpupack.dev/job-uid": "u", "gpupack.dev/attempt": "1"}
    metadata = {"name": "train-1-0", "namespace": "team", "uid": "p", "labels": labels}
    spec = {"nodeName": "node", "containers": [{"name": "worker"}]}
    server.logs[f"{POD}/log"] = {"worker": "begun"}
    running = await asyncio.create_subprocess_exec(
        *CLI, "logs", "train", "-f", "-n", "team",
        env=environment(KUBECONFIG=str(server.kubeconfig)),
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    async with asyncio.timeout(SECONDS):
        while server.watches < 2:  # of the job and of its pods
            await asyncio.sleep(0.01)
        server.add_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
        assert await running.stdout.readline() == b"begun\n"
        running.send_signal(signal.SIGINT)
        _, printed = await running.communicate()
    assert running.returncode == 130, printed
    assert b"gpupack logs -f -n team train" in printed
