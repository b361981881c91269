# SPDX-License-Identifier: Apache-2.0
import pytest

JOBS = "/apis/gpupack.dev/v1alpha1/namespaces/default/gpujobs"


@pytest.mark.parametrize("follow", [(), ("--follow",)])
@pytest.mark.parametrize(
    ("workers", "has"), [(3, "workers 0 to 2"), (1, "worker 0 alone")], ids=["three", "one"]
)
async def test_of_a_worker_that_a_job_does_not_have_those_that_it_has_are_told(
    server, workers, has, follow, capsys
):
    job = {"metadata": {"name": "train", "namespace": "default"}, "spec": {"workers": workers}}
    server.put(f"{JOBS}/train", job)
    assert await server.called("logs", "train", "--worker", "9", *follow) == 66
    assert capsys.readouterr().err == f"gpupack: train has {has}, no worker 9\n"
