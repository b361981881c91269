# SPDX-License-Identifier: Apache-2.0
"""What becomes of a job that is followed when the command is ended from outside."""

import asyncio
import os
import signal

import pytest

from gpupack_cli.errors import JobFailed
from gpupack_cli.watching import watched_to_its_end
from gpupack_crds.kinds import GPUJOBS

PATH = "/apis/gpupack.dev/v1alpha1/namespaces/team/gpujobs/train"


@pytest.mark.parametrize(("ended_by", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_whoever_ends_the_command_detaches_from_the_job(server, ended_by, status, capsys):
    metadata = {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": "1"}
    server.put(PATH, {"metadata": metadata, "status": {"phase": "Running"}})
    job = await server.api.get(GPUJOBS, "train", namespace="team")
    asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), ended_by)
    with pytest.raises(JobFailed) as ended:
        await watched_to_its_end(server.api, job)
    assert (ended.value.status, str(ended.value)) == (status, "")
    assert "gpupack logs -f -n team train" in capsys.readouterr().err
    assert PATH in server.objects
